//! `validate`: reads a whole collection, and compares its indexes with its documents.
//!
//! It always checks everything; `full` and `background` have no effect.

use handfast_mql::Code;

use super::{Access, Call, Command, Properties};
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::{CommandError, CommandResult};
use crate::reply::Answer;
use crate::writer::{Writer, put_count};

pub(crate) const COMMAND: Command = Command {
    name: "validate",
    aliases: &[],
    help: "reads a whole collection and says whether its indexes agree with its documents",
    access: Access::Read,
    needs: Needs::Collection(&[Action::Validate]),
    admin_only: false,
    confidential: false,
    versioned: false,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let namespace = call.request.namespace()?;
    let mut arguments = call.arguments("validate");
    let full = arguments.flag("full")?.unwrap_or(false);
    let background = arguments.flag("background")?.unwrap_or(false);
    arguments.flag("checkBSONConformance")?;
    // Some drivers send this old name of `full`.
    arguments.flag("scandata")?;
    arguments.unsupported(&["repair", "metadata"])?;
    arguments.finish()?;
    if full && background {
        let text = "Running the validate command with both { background: true } and { full: true } is not supported.";
        return Err(CommandError::new(Code::InvalidOptions, text));
    }
    let check = call.store().check_collection(&namespace).await.map_err(|error| match error.code() {
        Code::NamespaceNotFound => {
            let text = format!("Collection '{namespace}' does not exist to validate.");
            CommandError::new(Code::NamespaceNotFound, text)
        }
        _ => error.into(),
    })?;
    let mut writer = Writer::new();
    writer.put("ns", namespace.to_string());
    put_count(&mut writer, "nInvalidDocuments", check.documents_damaged);
    put_count(&mut writer, "nrecords", check.documents);
    writer.put("nIndexes", i32::try_from(check.indexes.len()).unwrap_or(i32::MAX));
    writer.begin_document("keysPerIndex");
    for index in &check.indexes {
        put_count(&mut writer, &index.name, index.keys);
    }
    writer.end().begin_document("indexDetails");
    for index in &check.indexes {
        writer.begin_document(&index.name).put("valid", index.valid).end();
    }
    writer.end();
    writer.put("valid", check.errors.is_empty()).put("repaired", false);
    writer.array("warnings", std::iter::empty::<&str>());
    writer.array("errors", check.errors.iter().map(String::as_str));
    Ok(writer.into())
}

#[cfg(test)]
mod tests;
