//! Serializable: whether what a transaction read is still so at its commit timestamp.
//!
//! The locks are all written when the commit timestamp is fetched, and this is asked after it. Who changes one of the
//! documents later commits later. Who may still commit before us has locked them by now: such a lock is waited for. So of
//! two transactions that each write what the other one read, the one with the later commit timestamp sees the other's lock
//! or commit.

use bson::RawDocumentBuf;
use handfast_mql::{CompileOptions, Filter};
use handfast_store::{Find, Read, Result as StoreResult};

use super::core::{Core, conflict};
use super::resolver::Resolved;
use super::row::{Body, Key, Row, Timestamp};
use super::rows::{locked_up_to, newer_than};
use super::scan::next_rows;

/// Looks at all that was read.
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
                // What cannot be judged may be what matters: the transaction runs again, and reads it then.
                let matches = |document: &RawDocumentBuf| compiled.matches(document, &context).unwrap_or(true);
                // Those that somebody changes, then those that somebody has changed since: in this order, so that what is moved
                // in meanwhile is among the latter.
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

/// Whether one of a row's versions from the one at the start on matches, or is not kept any more.
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

/// The row, when no other transaction can change it before the timestamp any more.
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
