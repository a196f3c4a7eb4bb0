//! Removes documents that have expired under a TTL index.
//!
//! A document expires when the earliest date of the index's field is the index's lifetime in the past. What a search
//! finds is judged again by the committer, so a document whose date was moved in the meantime stays.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bson::raw::CString;
use bson::{DateTime, RawDocumentBuf, rawdoc};
use handfast_mql::{CompileOptions, Filter, Sort};
use handfast_store::{Durability, Error as StoreError, Result as StoreResult};

use super::target::{Apply, Target};
use crate::catalog::{Collection, CollectionIndex};
use crate::store::EmbeddedStore;

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

    async fn expire_under(
        &self,
        collection: &Arc<Collection>,
        index: &Arc<CollectionIndex>,
        now: DateTime,
    ) -> (u64, Option<StoreError>) {
        let mut removed = 0;
        let ended = self.expire_counting(collection, index, now, &mut removed).await;
        (removed, ended.unwrap_or_else(Some))
    }

    async fn expire_counting(
        &self,
        collection: &Arc<Collection>,
        index: &Arc<CollectionIndex>,
        now: DateTime,
        removed: &mut u64,
    ) -> StoreResult<Option<StoreError>> {
        let field = index.spec().key.iter().flatten().next().map(|(name, _)| CString::from(name));
        let lifetime = index.spec().expire_after_seconds.and_then(|seconds| seconds.checked_mul(1000));
        let (Some(field), Some(lifetime)) = (field, lifetime) else {
            return Ok(None);
        };
        let latest = DateTime::from_millis(now.timestamp_millis().saturating_sub(lifetime));
        let mut filter = RawDocumentBuf::new();
        filter.append(field, rawdoc! { "$lte": latest });
        let target = Arc::new(Target {
            namespace: collection.namespace.clone(),
            filter: Filter::compile(&filter, &CompileOptions::default())?,
            sort: Sort::compile(&RawDocumentBuf::new())?,
            hint: None,
            context: self.inner.sources.context(&RawDocumentBuf::new()),
        });
        let _stop = target.stop_on_drop();
        let id = index.id;
        let apply: Arc<Apply<()>> = Arc::new(move |writer, collection, id_key, stored| {
            let Some(index) = collection.indexes.iter().find(|index| index.id == id) else {
                return Ok(None);
            };
            let document = stored.document()?;
            let expired = index.index.expires_at(document).is_some_and(|at| at <= now);
            if !expired || !index.index.holds(document)? {
                return Ok(None);
            }
            writer.remove(collection, id_key, stored).map(Some)
        });
        self.change_all(target, 0, apply, |()| *removed += 1).await
    }
}
