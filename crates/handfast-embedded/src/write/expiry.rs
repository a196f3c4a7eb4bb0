//! Removes documents that have expired under a TTL index.
//!
//! A document expires when the earliest date of the index's field is the index's lifetime in the past. What a search
//! finds is judged again by the committer, so a document whose date was moved in the meantime stays.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bson::raw::{CString, cstr};
use bson::{DateTime, RawDocumentBuf, rawdoc};
use handfast_mql::{Code, CompileOptions, Filter, Sort};
use handfast_store::{Durability, Error as StoreError, Hint, Result as StoreResult};

use super::judge::{Judge, Judging, Verdict, Write};
use super::target::Target;
use crate::catalog::{Collection, CollectionIndex};
use crate::store::EmbeddedStore;

/// Ranges of time that are divided in one round under one index, at most: 63 lead to one millisecond.
const DIVISIONS_MAX: u32 = 1000;

impl EmbeddedStore {
    /// Removes all documents that have expired at a moment; returns how many.
    ///
    /// # Errors
    /// Those of a write, the first of them: what has expired under other indexes is removed all the same.
    pub async fn expire(&self, now: DateTime) -> StoreResult<u64> {
        let snapshot = self.snapshot_now();
        let (mut expired, mut failure) = (0, None);
        for collection in snapshot.catalog().collections() {
            for index in collection.indexes.iter().filter(|index| index.spec().expire_after_seconds.is_some()) {
                if self.inner.closing.load(Ordering::Relaxed) {
                    break;
                }
                let (removed, error) = self.expire_under(collection, index, now).await;
                expired += removed;
                failure = failure.or(error);
            }
        }
        if expired > 0 {
            self.settle(Durability::Journaled).await?;
        }
        failure.map_or(Ok(expired), Err)
    }

    /// Removes what expired under an index: all at once or, where something is damaged, by halves of the time, so that
    /// a damaged document keeps from their end only those of its very date.
    async fn expire_under(
        &self,
        collection: &Arc<Collection>,
        index: &Arc<CollectionIndex>,
        now: DateTime,
    ) -> (u64, Option<StoreError>) {
        let (mut removed, mut failure, mut divisions) = (0, None, 0);
        let lifetime_millis = index.spec().expire_after_seconds.map_or(0, |seconds| seconds.saturating_mul(1000));
        let mut ranges = vec![(None, now.timestamp_millis().saturating_sub(lifetime_millis))];
        while let Some(range) = ranges.pop() {
            let ended = self.expire_between(collection, index, now, range, &mut removed).await;
            let Some(error) = ended.unwrap_or_else(Some) else { continue };
            let (after, until) = (range.0.unwrap_or(i64::MIN), range.1);
            let middle = i64::midpoint(after, until);
            let divisible = after < middle && middle < until && divisions < DIVISIONS_MAX;
            let goes_on = !self.inner.closing.load(Ordering::Relaxed);
            if error.code() == Code::DataCorruptionDetected && divisible && goes_on {
                divisions += 1;
                ranges.extend([(Some(after), middle), (Some(middle), until)]);
            }
            failure.get_or_insert(error);
        }
        (removed, failure)
    }

    /// Removes what has a date after one and until another, in milliseconds, and expired.
    async fn expire_between(
        &self,
        collection: &Arc<Collection>,
        index: &Arc<CollectionIndex>,
        now: DateTime,
        (after, until): (Option<i64>, i64),
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
            // A part of the time must not cost a look at the whole collection.
            hint: after.map(|_| Hint::Name(index.spec().name.clone())),
            context: self.inner.sources.context(&RawDocumentBuf::new()),
        });
        let _stop = target.stop_on_drop();
        let id = index.id;
        let judge: Arc<Judge<()>> = Arc::new(move |collection, document| {
            let Some(index) = collection.indexes.iter().find(|index| index.id == id) else {
                return Ok(None);
            };
            let expired = index.index.expires_at(document).is_some_and(|at| at <= now);
            if !expired || !index.index.holds(document)? {
                return Ok(None);
            }
            Ok(Some(Verdict { write: Write::Remove, told: () }))
        });
        self.change_all(&mut Judging::new(target, judge, None), 0, |()| *removed += 1).await
    }
}
