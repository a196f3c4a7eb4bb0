//! `explain`: how a command would be carried out, or was.

use bson::raw::RawBsonRef;
use handfast_mql::Code;
use handfast_store::{Explain, Explained, Find, Verbosity};

use super::{Access, Call, Command, aggregate, count, delete, distinct, find, find_and_modify, update};
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
    run: |call| Box::pin(run(call)),
};

/// What the command needs that is explained.
fn needs(request: &Request<'_>, visitor: &mut Visitor<'_>) -> CommandResult<()> {
    let RawBsonRef::Document(inner) = request.subject else { return Ok(()) };
    let inner = Request::new(inner, request.sequences, Some(request.database), false)?;
    match super::find(inner.name) {
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
    let inner = Call { request: &request, ..*call };
    let explained = explained(&inner).await?;
    answer(call, Explain { explained, verbosity }).await
}

/// The store's document, and who made it.
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

async fn explained(call: &Call<'_>) -> CommandResult<Explained> {
    let name = call.request.name;
    match name {
        "find" => {
            let mut arguments = call.arguments("find");
            let find = find::read(call, &mut arguments, call.request.namespace()?).await?;
            arguments.ignored(&["batchSize", "singleBatch", "noCursorTimeout"])?;
            arguments.finish()?;
            Ok(Explained::Find(find))
        }
        "aggregate" => {
            let mut arguments = call.arguments("aggregate");
            let aggregate = aggregate::read(call, &mut arguments).await?;
            arguments.ignored(&["cursor", "explain"])?;
            arguments.finish()?;
            Ok(Explained::Aggregate(aggregate))
        }
        "count" => {
            let mut arguments = call.arguments("count");
            let count = count::read(&mut arguments, call.request.namespace()?)?;
            arguments.finish()?;
            let find = Find {
                skip: count.skip,
                limit: count.limit,
                hint: count.hint,
                ..Find::new(count.namespace, count.filter)
            };
            Ok(Explained::Find(find))
        }
        "distinct" => {
            let mut arguments = call.arguments("distinct");
            let distinct = distinct::read(&mut arguments, call.request.namespace()?)?;
            arguments.finish()?;
            Ok(Explained::Find(Find { hint: distinct.hint, ..Find::new(distinct.namespace, distinct.filter) }))
        }
        "update" => {
            let update = update::read(call).await?;
            let statement = only(update.statements)?;
            let find = Find {
                sort: statement.sort,
                hint: statement.hint,
                limit: (!statement.multi).then_some(1),
                variables: update.variables,
                ..Find::new(update.namespace, statement.filter)
            };
            Ok(Explained::Find(find))
        }
        "delete" => {
            let delete = delete::read(call).await?;
            let statement = only(delete.statements)?;
            let find = Find {
                hint: statement.hint,
                limit: (!statement.multi).then_some(1),
                variables: delete.variables,
                ..Find::new(delete.namespace, statement.filter)
            };
            Ok(Explained::Find(find))
        }
        "findAndModify" | "findandmodify" => {
            let request = find_and_modify::read(call).await?;
            let find = Find {
                sort: request.sort,
                hint: request.hint,
                limit: Some(1),
                variables: request.variables,
                ..Find::new(request.namespace, request.filter)
            };
            Ok(Explained::Find(find))
        }
        other => {
            let text = format!("Explain failed due to unknown command: {other}");
            Err(CommandError::new(Code::CommandNotFound, text))
        }
    }
}

/// The statement of a write command that is explained.
fn only<T>(statements: Vec<T>) -> CommandResult<T> {
    let text = "explained write batches must be of size 1";
    let [statement]: [T; 1] = statements.try_into().map_err(|_| CommandError::new(Code::InvalidLength, text))?;
    Ok(statement)
}
