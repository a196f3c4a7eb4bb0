//! `update`: changes documents.

use bson::raw::{RawDocument, RawDocumentBuf};
use handfast_mql::collation::with_variable;
use handfast_store::{Explained, Find, Namespace, Update, UpdateOutcome, UpdateStatement, WriteError};

use super::write::{
    BypassOptions, Run, UpdateNames, check_batch, check_single, explained_statement, put_errors, runs, update_statement,
};
use super::{Access, Call, Command, Counter, InTransaction, Properties};
use crate::arguments::Arguments;
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::{CommandError, CommandResult};
use crate::fail_points;
use crate::reply::Answer;
use crate::transactions::retried;
use crate::writer::{Writer, decimal, put_count};

pub(crate) const COMMAND: Command = Command {
    name: "update",
    aliases: &[],
    help: "changes documents",
    access: Access::Write,
    needs: Needs::Collection(&[Action::Write]),
    admin_only: false,
    confidential: false,
    versioned: true,
    properties: Properties {
        retryable: true,
        in_transaction: InTransaction::Allowed,
        counter: Counter::PerStatement,
        explain: Some(|call| Box::pin(explained(call))),
        ..Properties::DEFAULT
    },
    run: |call| Box::pin(run(call)),
};

/// The command, whose statements have collations of their own.
struct UpdateCommand {
    namespace: Namespace,
    statements: Vec<(UpdateStatement, Option<RawDocumentBuf>)>,
    ordered: bool,
    variables: RawDocumentBuf,
}

async fn read(call: &Call<'_>) -> CommandResult<UpdateCommand> {
    let namespace = call.request.written_namespace()?;
    let mut arguments = call.arguments("update");
    let statements = arguments.documents("updates")?;
    let statements = arguments.required("updates", statements)?;
    let ordered = arguments.flag("ordered")?.unwrap_or(true);
    let variables = call.variables(&mut arguments).await?;
    let bypass = BypassOptions::read(&mut arguments)?;
    arguments.finish()?;
    check_batch(statements.len())?;
    let statements =
        statements.into_iter().map(|document| statement(document, bypass)).collect::<CommandResult<Vec<_>>>()?;
    Ok(UpdateCommand { namespace, statements, ordered, variables })
}

/// Reads the command for `explain`: it explains the search for the documents.
async fn explained(call: &Call<'_>) -> CommandResult<Explained> {
    let update = read(call).await?;
    let (statement, collation) = explained_statement(update.statements)?;
    let find = Find {
        sort: statement.sort,
        hint: statement.hint,
        limit: (!statement.multi).then_some(1),
        variables: with_variable(update.variables, collation.as_deref()),
        ..Find::new(update.namespace, statement.filter)
    };
    Ok(Explained::Find(find))
}

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let UpdateCommand { namespace, mut statements, ordered, variables } = read(call).await?;
    call.shared.metrics.operations.update.add(statements.len() as u64);
    check_single(call, statements.iter().map(|(statement, _)| statement.multi), "multi=true")?;
    let retried = call.retried(statements.len()).await?;
    let injected_error = fail_points::write::fail_statements(call, &retried, &mut statements);
    let mut outcome = UpdateOutcome::default();
    for Run { first, statements, collation } in runs(statements) {
        let variables = with_variable(variables.clone(), collation.as_deref());
        let ticket = call.ticket().map(|ticket| ticket.of_statement(first));
        let (namespace, durability) = (namespace.clone(), call.durability());
        let request = Update { namespace, statements, ordered, durability, variables, ticket };
        let part = call.store().update(request).await;
        // Earlier statements may have changed something.
        let part = part.map_err(|error| CommandError { partly: first > 0, ..error.into() })?;
        outcome.matched += part.matched;
        outcome.modified += part.modified;
        outcome.upserted.extend(part.upserted.into_iter().map(|(index, id)| (first + index, id)));
        outcome.errors.extend(part.errors.into_iter().map(|error| WriteError { index: first + error.index, ..error }));
        if ordered && !outcome.errors.is_empty() {
            break;
        }
    }
    outcome.errors.extend(injected_error.filter(|_| !ordered || outcome.errors.is_empty()));
    let mut writer = Writer::new();
    put_count(&mut writer, "n", outcome.matched + outcome.upserted.len() as u64);
    if !outcome.upserted.is_empty() {
        writer.begin_array("upserted");
        let mut digits = [0; 20];
        for (place, (index, id)) in outcome.upserted.iter().enumerate() {
            writer.begin_document(decimal(place, &mut digits));
            writer.put("index", i32::try_from(*index).unwrap_or(i32::MAX)).put_any("_id", id.as_raw_bson_ref()).end();
        }
        writer.end();
    }
    put_count(&mut writer, "nModified", outcome.modified);
    put_errors(&mut writer, &outcome.errors);
    retried::put(&mut writer, retried);
    Ok(Answer { refused: !outcome.errors.is_empty(), ..Answer::from(writer) })
}

/// Reads a statement, and its collation.
fn statement(
    document: &RawDocument,
    bypass: BypassOptions,
) -> CommandResult<(UpdateStatement, Option<RawDocumentBuf>)> {
    let mut arguments = Arguments::of_document("update.updates", document)?;
    let names = UpdateNames { filter: "q", update: "u", constants: "c" };
    let statement = update_statement(&mut arguments, names, bypass)?;
    let collation = arguments.collation()?;
    arguments.ignored(&["upsertSupplied"])?;
    arguments.finish()?;
    Ok((statement, collation))
}

#[cfg(test)]
mod tests;
