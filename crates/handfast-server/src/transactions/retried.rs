//! Finds the statements of a retryable write that were applied before, for `retriedStmtIds`. The store applies each statement once,
//! whatever the reply says, so this is looked up only for a request whose number was used before.

use std::collections::BTreeSet;

use bson::raw::{RawBsonRef, RawDocumentBuf};
use bson::rawdoc;
use handfast_store::ticket::STATEMENTS_PER_RECORD;
use handfast_store::{StoreExt, Ticket};

use super::RequestContext;
use crate::error::CommandResult;
use crate::state::Shared;
use crate::writer::Writer;

/// Returns which of a request's first `count` statements have a result in the store.
pub(crate) async fn statements_done(
    shared: &Shared,
    context: &RequestContext,
    count: usize,
) -> CommandResult<BTreeSet<usize>> {
    let mut found = BTreeSet::new();
    let RequestContext::RetryableWrite { ticket, again: true, .. } = context else { return Ok(found) };
    let namespace = Ticket::namespace()?;
    for first in (0..count).step_by(usize::try_from(STATEMENTS_PER_RECORD).unwrap_or(1)) {
        let part = ticket.of_statement(first);
        let record = shared.database.find_one(&namespace, rawdoc! { "_id": part.record_id() }).await?;
        let is_of_request =
            |record: &RawDocumentBuf| record.get_i64("number").is_ok_and(|number| number == ticket.number);
        let Some(record) = record.filter(is_of_request) else { continue };
        let Ok(results) = record.get_array("results") else { continue };
        let statements = results.into_iter().flatten().filter_map(|entry| {
            let RawBsonRef::Document(entry) = entry else { return None };
            usize::try_from(entry.get_i64("statement").ok()?).ok()
        });
        found.extend(statements.filter(|statement| *statement < count));
    }
    if !found.is_empty() {
        shared.metrics.retried_commands.increment();
        shared.metrics.retried_statements.add(found.len() as u64);
    }
    Ok(found)
}

/// Writes `retriedStmtIds`, if there are any.
pub(crate) fn put(writer: &mut Writer, statements: impl IntoIterator<Item = usize>) {
    let mut statements = statements.into_iter().peekable();
    if statements.peek().is_some() {
        writer.array("retriedStmtIds", statements.map(|statement| i32::try_from(statement).unwrap_or(i32::MAX)));
    }
}
