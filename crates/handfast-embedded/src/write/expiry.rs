//! Removes documents that have expired under a TTL index.
//!
//! A document expires when the earliest date of the index's field is the index's lifetime in the past. The committer evaluates
//! each document again that a search finds, so a document whose date changed meanwhile stays.

use std::sync::Arc;

use bson::raw::{CString, cstr};
use bson::{DateTime, RawDocumentBuf, rawdoc};
use handfast_mql::{Code, CompileOptions, Filter, Sort};
use handfast_store::{Durability, Error as StoreError, Hint, Result as StoreResult};

use super::change_many::change_many;
use super::context::WriteContext;
use super::evaluation::{Evaluated, Evaluation};
use super::target::Target;
use crate::catalog::{Collection, CollectionIndex};

/// Ranges of time that one round divides under one index, at most: 63 lead to one millisecond.
const DIVISIONS_MAX: u32 = 1000;

/// A range of dates in milliseconds: after one, and up to another.
#[derive(Clone, Copy)]
struct DateRange {
    after: Option<i64>,
    until: i64,
}

/// Removes all documents that have expired at `now`, and returns their number. After an error, the documents that expired under
/// other indexes are removed all the same.
pub(crate) async fn expire(context: &WriteContext, now: DateTime) -> StoreResult<u64> {
    let snapshot = context.snapshot();
    let (mut expired, mut failure) = (0, None);
    for collection in snapshot.catalog().collections() {
        for index in collection.indexes.iter().filter(|index| index.spec().expire_after_seconds.is_some()) {
            if context.is_closing() {
                break;
            }
            let (removed, error) = expire_under(context, collection, index, now).await;
            expired += removed;
            failure = failure.or(error);
        }
    }
    if expired > 0 {
        context.wait_until_durable(Durability::Journaled).await?;
    }
    failure.map_or(Ok(expired), Err)
}

/// Removes the documents that expired under an index: all at once or, if some are damaged, by halves of the time range, so that
/// a damaged document blocks only those with its date.
async fn expire_under(
    context: &WriteContext,
    collection: &Arc<Collection>,
    index: &Arc<CollectionIndex>,
    now: DateTime,
) -> (u64, Option<StoreError>) {
    let (mut removed, mut failure, mut divisions) = (0, None, 0);
    let lifetime_millis = index.spec().expire_after_seconds.map_or(0, |seconds| seconds.saturating_mul(1000));
    let until = now.timestamp_millis().saturating_sub(lifetime_millis);
    let mut ranges = vec![DateRange { after: None, until }];
    while let Some(range) = ranges.pop() {
        let ended = expire_between(context, collection, index, now, range, &mut removed).await;
        let Some(error) = ended.unwrap_or_else(Some) else { continue };
        let (after, until) = (range.after.unwrap_or(i64::MIN), range.until);
        let middle = i64::midpoint(after, until);
        let divisible = after < middle && middle < until && divisions < DIVISIONS_MAX;
        if error.code() == Code::DataCorruptionDetected && divisible && !context.is_closing() {
            divisions += 1;
            ranges.push(DateRange { after: Some(after), until: middle });
            ranges.push(DateRange { after: Some(middle), until });
        }
        failure.get_or_insert(error);
    }
    (removed, failure)
}

/// Removes the expired documents with a date in a range.
async fn expire_between(
    context: &WriteContext,
    collection: &Arc<Collection>,
    index: &Arc<CollectionIndex>,
    now: DateTime,
    DateRange { after, until }: DateRange,
    removed: &mut u64,
) -> StoreResult<Option<StoreError>> {
    let Some((field, _)) = index.spec().key.iter().flatten().next() else {
        return Ok(None);
    };
    let mut dates = rawdoc! { "$lte": DateTime::from_millis(until) };
    if let Some(after) = after {
        dates.append(cstr!("$gt"), DateTime::from_millis(after));
    }
    let mut filter = RawDocumentBuf::new();
    filter.append(CString::from(field), dates);
    let target = Arc::new(Target {
        namespace: collection.namespace.clone(),
        filter: Filter::compile(&filter, &CompileOptions::default())?,
        sort: Sort::compile(&RawDocumentBuf::new())?,
        // A part of the time range must not cost a scan of the collection.
        hint: after.map(|_| Hint::Name(index.spec().name.clone())),
        context: context.sources.context(&RawDocumentBuf::new()),
    });
    let _stop = target.stop_on_drop();
    let id = index.id;
    let mut evaluation = Evaluation::new(target, move |collection, document| {
        let Some(index) = collection.indexes.iter().find(|index| index.id == id) else {
            return Ok(Evaluated::NoMatch);
        };
        let expired = index.index.expires_at(document).is_some_and(|at| at <= now);
        let removes = expired && index.index.holds(document)?;
        Ok(if removes { Evaluated::Remove(()) } else { Evaluated::NoMatch })
    });
    change_many(context, &mut evaluation, 0, |()| *removed += 1).await
}
