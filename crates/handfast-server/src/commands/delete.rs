//! `delete`: removes documents.

use bson::raw::{RawDocument, RawDocumentBuf};
use handfast_mql::Code;
use handfast_mql::collation::with_variable;
use handfast_store::{Delete, DeleteOutcome, DeleteStatement, Explained, Find, Namespace, WriteError};

use super::write::{BypassOptions, Run, check_batch, check_single, explained_statement, put_errors, runs};
use super::{Access, Call, Command, Counter, InTransaction, Properties, hint};
use crate::arguments::Arguments;
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::{CommandError, CommandResult};
use crate::fail_points;
use crate::reply::Answer;
use crate::transactions::retried;
use crate::writer::{Writer, put_count};

pub(crate) const COMMAND: Command = Command {
    name: "delete",
    aliases: &[],
    help: "removes documents",
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
struct DeleteCommand {
    namespace: Namespace,
    statements: Vec<(DeleteStatement, Option<RawDocumentBuf>)>,
    ordered: bool,
    variables: RawDocumentBuf,
}

async fn read(call: &Call<'_>) -> CommandResult<DeleteCommand> {
    let namespace = call.request.written_namespace()?;
    let mut arguments = call.arguments("delete");
    let statements = arguments.documents("deletes")?;
    let statements = arguments.required("deletes", statements)?;
    let ordered = arguments.flag("ordered")?.unwrap_or(true);
    let variables = call.variables(&mut arguments).await?;
    BypassOptions::read(&mut arguments)?;
    arguments.finish()?;
    check_batch(statements.len())?;
    let statements = statements.into_iter().map(statement).collect::<CommandResult<Vec<_>>>()?;
    Ok(DeleteCommand { namespace, statements, ordered, variables })
}

/// Reads the command for `explain`: it explains the search for the documents.
async fn explained(call: &Call<'_>) -> CommandResult<Explained> {
    let delete = read(call).await?;
    let (statement, collation) = explained_statement(delete.statements)?;
    let find = Find {
        hint: statement.hint,
        limit: (!statement.multi).then_some(1),
        variables: with_variable(delete.variables, collation.as_deref()),
        ..Find::new(delete.namespace, statement.filter)
    };
    Ok(Explained::Find(find))
}

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let DeleteCommand { namespace, mut statements, ordered, variables } = read(call).await?;
    call.shared.metrics.operations.delete.add(statements.len() as u64);
    check_single(call, statements.iter().map(|(statement, _)| statement.multi), "limit=0")?;
    let retried = call.retried(statements.len()).await?;
    let injected_error = fail_points::write::fail_statements(call, &retried, &mut statements);
    let mut outcome = DeleteOutcome::default();
    for Run { first, statements, collation } in runs(statements) {
        let variables = with_variable(variables.clone(), collation.as_deref());
        let ticket = call.ticket().map(|ticket| ticket.of_statement(first));
        let (namespace, durability) = (namespace.clone(), call.durability());
        let request = Delete { namespace, statements, ordered, durability, variables, ticket };
        let part = call.store().delete(request).await;
        // Earlier statements may have changed something.
        let part = part.map_err(|error| CommandError { partly: first > 0, ..error.into() })?;
        outcome.deleted += part.deleted;
        outcome.errors.extend(part.errors.into_iter().map(|error| WriteError { index: first + error.index, ..error }));
        if ordered && !outcome.errors.is_empty() {
            break;
        }
    }
    outcome.errors.extend(injected_error.filter(|_| !ordered || outcome.errors.is_empty()));
    let mut writer = Writer::new();
    put_count(&mut writer, "n", outcome.deleted);
    put_errors(&mut writer, &outcome.errors);
    retried::put(&mut writer, retried);
    Ok(Answer { refused: !outcome.errors.is_empty(), ..Answer::from(writer) })
}

/// Reads a statement, and its collation.
fn statement(document: &RawDocument) -> CommandResult<(DeleteStatement, Option<RawDocumentBuf>)> {
    let mut arguments = Arguments::of_document("delete.deletes", document)?;
    let filter = arguments.document("q")?;
    let filter = arguments.required("q", filter)?.to_owned();
    let limit = arguments.integer("limit")?;
    let multi = match arguments.required("limit", limit)? {
        0 => true,
        1 => false,
        other => {
            let text = format!("The limit field in delete objects must be 0 or 1. Got {other}");
            return Err(CommandError::new(Code::FailedToParse, text));
        }
    };
    let hint = hint(&mut arguments)?;
    let collation = arguments.collation()?;
    arguments.finish()?;
    Ok((DeleteStatement { filter, multi, hint }, collation))
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use crate::testing::{TestServer, insert, numbered};

    #[tokio::test]
    async fn a_limit_of_one_or_none_is_respected() {
        let mut server = TestServer::adjustable();
        let mut client = server.connect();
        insert(&mut client, "c", &numbered(5)).await;
        let statements = [rawdoc! { "q": { "_id": { "$lt": 3 } }, "limit": 0 }, rawdoc! { "q": {}, "limit": 1 }];
        let reply = client.run_with("d", rawdoc! { "delete": "c" }, &[("deletes", &statements)]).await;
        assert_eq!(reply, rawdoc! { "n": 4, "ok": 1.0 });
        let wrong = rawdoc! { "delete": "c", "deletes": [{ "q": {}, "limit": 2 }] };
        assert_eq!(client.refused("d", wrong).await.0, 9);
        let missing = rawdoc! { "delete": "c", "deletes": [{ "q": {} }] };
        let text = "BSON field 'delete.deletes.limit' is missing but a required field";
        assert_eq!(client.refused("d", missing).await, (40_414, "Location40414".to_owned(), text.to_owned()));
    }
}
