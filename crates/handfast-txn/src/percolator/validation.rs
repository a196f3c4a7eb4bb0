//! Validates the read set of a serializable transaction at its commit timestamp.
//!
//! Validation follows the commit timestamp, which follows all locks of the transaction. A transaction that locks one of the documents later
//! commits later; one that may commit before has locked them by now, and its lock is resolved or conflicts. So of two transactions that
//! each write what the other one read, the one with the later commit timestamp sees the other's lock or commit.

use bson::RawDocumentBuf;
use handfast_mql::{CompileOptions, Filter};
use handfast_store::{Find, Read, Result as StoreResult};

use super::core::{Core, conflict};
use super::resolver::Resolved;
use super::row::{Body, Key, Row, Timestamp};
use super::rows::{locked_up_to, newer_than};
use super::scan::next_rows;

/// Checks that nothing that was read has changed.
///
/// # Errors
/// `WriteConflict` (112) if something was changed between the two timestamps.
pub(super) async fn check(core: &Core, start: Timestamp, at: Timestamp, reads: &[Read]) -> StoreResult<()> {
    for read in reads {
        match read {
            Read::Document(namespace, id) => {
                let key = Key { namespace: namespace.clone(), id: id.clone() };
                let row = core.rows.read(&key).await?;
                let row = without_earlier_lock(core, start, at, &key, row).await?;
                if changed_between(&row, start, at) {
                    return Err(conflict(format_args!("{key} was read and has been changed since")));
                }
            }
            Read::Matching { namespace, filter, variables } => {
                let compiled = Filter::compile(filter, &CompileOptions::with_variables(variables)?)?;
                let context = core.sources.context(variables);
                // A document on which the filter fails counts as a match: the transaction runs again, and meets the error.
                let matches = |document: &RawDocumentBuf| compiled.matches(document, &context).unwrap_or(true);
                // Locked rows first, then newer commits: a lock that is committed in between is found by the second query.
                for filter in [locked_up_to(at), newer_than(start)] {
                    let mut changed = core.rows.store.find(Find::new(namespace.clone(), filter)).await?;
                    while let Some(rows) = next_rows(&mut *changed, namespace).await? {
                        for (key, row) in rows {
                            let row = without_earlier_lock(core, start, at, &key, row).await?;
                            if changed_between(&row, start, at) && may_have_matched(&row, start, at, matches) {
                                return Err(conflict(format_args!("{key} would change what was read of {namespace}")));
                            }
                        }
                    }
                }
            }
        }
    }
    Ok(())
}

fn changed_between(row: &Row, start: Timestamp, at: Timestamp) -> bool {
    row.versions().any(|version| version.commit > start && version.commit <= at && version.start != start)
}

/// Returns whether a version of a row from the start timestamp on matches, or is no longer kept.
fn may_have_matched(row: &Row, start: Timestamp, at: Timestamp, matches: impl Fn(&RawDocumentBuf) -> bool) -> bool {
    for version in row.versions().filter(|version| version.commit <= at) {
        let may_match = match &version.body {
            Body::Document(document) => matches(document),
            Body::Deleted => false,
            Body::Cut => true,
        };
        if may_match || version.commit <= start {
            return may_match;
        }
    }
    true
}

/// Returns the row once no other transaction can commit a change of it before the timestamp.
async fn without_earlier_lock(
    core: &Core,
    start: Timestamp,
    at: Timestamp,
    key: &Key,
    mut row: Row,
) -> StoreResult<Row> {
    while row.lock.as_ref().is_some_and(|lock| lock.start != start && lock.start <= at) {
        row = match core.learn_decision(key, row).await? {
            Resolved::Free(row) => core.rolled_forward(&row).into_owned(),
            Resolved::Alive => {
                return Err(conflict(format_args!("{key} was read and another transaction is changing it")));
            }
        };
    }
    Ok(row)
}
