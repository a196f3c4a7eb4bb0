//! Serializable: whether what a transaction read is still so at its commit timestamp.
//!
//! The locks are all written when the commit timestamp is fetched, and this is asked after it. Who changes one of the
//! documents later commits later. Who may still commit before us has locked them by now: such a lock is waited for. So of
//! two transactions that each write what the other one read, the one with the later commit timestamp sees the other's lock
//! or commit.

use bson::{RawDocumentBuf, rawdoc};
use handfast_mql::{CompileOptions, Filter};
use handfast_store::{Find, Namespace, Read, Result as StoreResult, StoreExt};

use super::core::{Core, conflict};
use super::resolver::Resolved;
use super::row::{Body, Key, Row, Timestamp};

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
                let row = settled(core, start, at, &key, row).await?;
                if changed_between(&row, start, at) {
                    return Err(conflict(format_args!("{key} was read and has been changed since")));
                }
            }
            Read::Matching { namespace, filter, variables } => {
                let compiled = Filter::compile(filter, &CompileOptions::with_variables(variables)?)?;
                let context = core.sources.context(variables);
                for row in changed(core, start, namespace).await? {
                    let key = Key { namespace: namespace.clone(), id: row.id.clone() };
                    let row = settled(core, start, at, &key, row).await?;
                    if !changed_between(&row, start, at) {
                        continue;
                    }
                    let matches = |document: &RawDocumentBuf| Ok(compiled.matches(document, &context)?);
                    if may_have_matched(&row, start, at, matches)? {
                        return Err(conflict(format_args!("{key} would change what was read of {namespace}")));
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
fn may_have_matched(
    row: &Row,
    start: Timestamp,
    at: Timestamp,
    matches: impl Fn(&RawDocumentBuf) -> StoreResult<bool>,
) -> StoreResult<bool> {
    for version in row.versions().filter(|version| version.commit <= at) {
        let may_match = match &version.body {
            Body::Document(document) => matches(document)?,
            Body::Deleted => false,
            Body::Cut => true,
        };
        if may_match || version.commit <= start {
            return Ok(may_match);
        }
    }
    Ok(true)
}

/// The rows of a collection that somebody changes, then those that somebody has changed since: in this order, so that
/// what is moved in meanwhile is among the latter.
async fn changed(core: &Core, start: Timestamp, namespace: &Namespace) -> StoreResult<Vec<Row>> {
    let since = i64::try_from(start.0).unwrap_or(i64::MAX);
    let mut rows = Vec::new();
    for filter in [rawdoc! { "_hf.lock": { "$exists": true } }, rawdoc! { "_hf.c": { "$gt": since } }] {
        let found = core.rows.store.find_all(Find::new(namespace.clone(), filter)).await?;
        for document in found {
            rows.push(Row::from_document(&document)?);
        }
    }
    Ok(rows)
}

/// The row, when no other transaction can change it before the timestamp any more.
async fn settled(core: &Core, start: Timestamp, at: Timestamp, key: &Key, mut row: Row) -> StoreResult<Row> {
    while row.lock.as_ref().is_some_and(|lock| lock.start != start && lock.start <= at) {
        row = match core.resolve(key, row).await? {
            Resolved::Free(row) => row,
            Resolved::Alive => {
                return Err(conflict(format_args!("{key} was read and another transaction is changing it")));
            }
        };
    }
    Ok(row)
}
