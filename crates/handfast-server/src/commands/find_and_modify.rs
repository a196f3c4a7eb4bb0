//! `findAndModify`: changes or removes one document and returns it.

use handfast_mql::Code;
use handfast_mql::collation::with_variable;
use handfast_store::{Explained, Find, FindAndModify, Modification, RequestedDocument, ReturnDocument};

use super::write::{BypassOptions, update_spec};
use super::{Access, Call, Command, InTransaction, Properties, hint, natural_order};
use crate::arguments::Arguments;
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::{CommandError, CommandResult};
use crate::fail_points;
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const COMMAND: Command = Command {
    name: "findAndModify",
    aliases: &["findandmodify"],
    help: "changes or removes one document and returns it",
    access: Access::Write,
    needs: Needs::Collection(&[Action::Find, Action::Write]),
    admin_only: false,
    confidential: false,
    versioned: true,
    properties: Properties {
        retryable: true,
        in_transaction: InTransaction::Allowed,
        explain: Some(|call| Box::pin(explained(call))),
        ..Properties::DEFAULT
    },
    run: |call| Box::pin(run(call)),
};

async fn read(call: &Call<'_>) -> CommandResult<FindAndModify> {
    let namespace = call.request.written_namespace()?;
    let mut arguments = call.arguments("findAndModify");
    let collation = arguments.collation()?;
    let BypassOptions { keep_empty_timestamps, validation } = BypassOptions::read(&mut arguments)?;
    let modification = modification(&mut arguments)?;
    let projection = arguments.document("fields")?.map(ToOwned::to_owned).unwrap_or_default();
    let (sort, hint) = natural_order(arguments.document_or_empty("sort")?, hint(&mut arguments)?)?;
    let request = FindAndModify {
        ticket: call.ticket().map(|ticket| ticket.requesting(requested_document(&modification))),
        namespace,
        filter: arguments.document_or_empty("query")?,
        sort,
        projection,
        hint,
        durability: call.durability(),
        variables: with_variable(call.variables(&mut arguments).await?, collation.as_deref()),
        modification,
        keep_empty_timestamps,
        validation,
    };
    arguments.finish()?;
    Ok(request)
}

/// Reads the command for `explain`: it explains the search for the document.
async fn explained(call: &Call<'_>) -> CommandResult<Explained> {
    let request = read(call).await?;
    let find = Find {
        sort: request.sort,
        hint: request.hint,
        limit: Some(1),
        variables: request.variables,
        ..Find::new(request.namespace, request.filter)
    };
    Ok(Explained::Find(find))
}

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let request = read(call).await?;
    let removes = matches!(request.modification, Modification::Remove);
    let retried = call.retried(1).await?;
    if retried.is_empty()
        && let Some(error) = fail_points::write::fail_statement(call)
    {
        return Err(error.into());
    }
    let outcome = call.store().find_and_modify(request).await?;
    let mut writer = Writer::new();
    writer.begin_document("lastErrorObject");
    writer.put("n", i32::from(outcome.matched || outcome.upserted.is_some()));
    if !removes {
        writer.put("updatedExisting", outcome.matched);
        if let Some(id) = &outcome.upserted {
            writer.put_any("upserted", id.as_raw_bson_ref());
        }
    }
    writer.end();
    match &outcome.value {
        Some(value) => writer.put("value", value),
        None => writer.put("value", ()),
    };
    if !retried.is_empty() {
        writer.put("retriedStmtId", 0);
    }
    Ok(writer.into())
}

/// Returns the kind of result of a request, which must be the same when the request is repeated.
fn requested_document(modification: &Modification) -> RequestedDocument {
    match modification {
        Modification::Remove => RequestedDocument::Removed,
        Modification::Update { upsert, returns, .. } => {
            RequestedDocument::Changed { returns: *returns, upsert: *upsert }
        }
    }
}

fn modification(arguments: &mut Arguments<'_>) -> CommandResult<Modification> {
    let remove = arguments.lenient_flag("remove")?.unwrap_or(false);
    let update = update_spec(arguments, "update")?;
    let upsert = arguments.lenient_flag("upsert")?.unwrap_or(false);
    let new = arguments.lenient_flag("new")?.unwrap_or(false);
    let array_filters = arguments.owned_documents("arrayFilters")?;
    let refused = |text: &str| Err(CommandError::new(Code::FailedToParse, text));
    match (remove, update) {
        (false, None) => refused("Either an update or remove=true must be specified"),
        (true, Some(_)) => refused("Cannot specify both an update and remove=true"),
        (true, None) if upsert => refused("Cannot specify both upsert=true and remove=true "),
        (true, None) if new => {
            refused("Cannot specify both new=true and remove=true; 'remove' always returns the deleted document")
        }
        (true, None) if !array_filters.is_empty() => refused("Cannot specify arrayFilters and remove=true"),
        (true, None) => Ok(Modification::Remove),
        (false, Some(update)) => {
            let returns = if new { ReturnDocument::After } else { ReturnDocument::Before };
            Ok(Modification::Update { update, upsert, returns, array_filters })
        }
    }
}

#[cfg(test)]
mod tests;
