//! `explain`: shows the plan of a command.

use bson::raw::RawBsonRef;
use handfast_mql::Code;
use handfast_store::{Explain, Verbosity};

use super::{Access, Call, Command, Properties};
use crate::auth::guard::{Needs, Visitor, visit};
use crate::error::{CommandError, CommandResult};
use crate::reply::Answer;
use crate::request::Request;
use crate::writer::Writer;

pub(crate) const COMMAND: Command = Command {
    name: "explain",
    aliases: &[],
    help: "shows how a command is carried out",
    access: Access::Read,
    needs: Needs::Visited(needs),
    admin_only: false,
    confidential: false,
    versioned: true,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(run(call)),
};

/// Visits what the explained command needs.
fn needs(request: &Request<'_>, visitor: &mut Visitor<'_>) -> CommandResult<()> {
    let RawBsonRef::Document(inner) = request.subject else { return Ok(()) };
    let inner = Request::new(inner, request.sequences, Some(request.database), false)?;
    match inner.command {
        Some(command) if command.name != COMMAND.name => visit(command, &inner, visitor),
        _ => Ok(()),
    }
}

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("explain");
    let verbosity = match arguments.text("verbosity")? {
        Some("queryPlanner") => Verbosity::QueryPlanner,
        None | Some("executionStats" | "allPlansExecution") => Verbosity::ExecutionStats,
        Some(other) => {
            let text = format!("Enumeration value '{other}' for field 'explain.verbosity' is not a valid value.");
            return Err(CommandError::new(Code::BadValue, text));
        }
    };
    arguments.finish()?;
    let RawBsonRef::Document(inner) = call.request.subject else {
        let text = "BSON field 'explain.explain' is the wrong type, expected type 'object'";
        return Err(CommandError::new(Code::TypeMismatch, text));
    };
    let request = Request::new(inner, call.request.sequences, Some(call.request.database), false)?;
    let Some(explained) = request.properties().explain else {
        let text = format!("Explain failed due to unknown command: {}", request.name);
        return Err(CommandError::new(Code::CommandNotFound, text));
    };
    let inner = Call { request: &request, ..*call };
    let explained = explained(&inner).await?;
    if request.command.is_some_and(|command| command.access == Access::Write) {
        // The plan of a write is that of a find, which a view would have.
        match call.store().list_indexes(&request.namespace()?).await {
            Err(error) if error.code() == Code::CommandNotSupportedOnView => return Err(error.into()),
            _ => {}
        }
    }
    answer(call, Explain { explained, verbosity }).await
}

/// Replies with the store's plan, the command and the server.
pub(super) async fn answer(call: &Call<'_>, request: Explain) -> CommandResult<Answer> {
    let document = call.store().explain(request).await?;
    let mut writer = Writer::new();
    writer.put_all(&document);
    writer.put("command", call.request.body);
    writer.begin_document("serverInfo");
    writer.put("host", &*super::host_info::host_name()).put("version", super::build_info::MONGODB_VERSION);
    writer.put("handfast", super::build_info::VERSION).end();
    Ok(writer.into())
}

#[cfg(test)]
mod tests;
