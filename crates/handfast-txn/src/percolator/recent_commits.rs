//! The last commits of this process. A transaction that began before one of them and writes the same document conflicts at its write, and not
//! after the round trips of its commit.

use std::num::NonZeroUsize;
use std::sync::Mutex;

use async_trait::async_trait;
use bson::{RawBsonRef, RawDocument};
use handfast_store::{AtomicBatch, Namespace, Result as StoreResult, Snapshot};
use lru::LruCache;

use super::core::{empty_cache, lock};
use super::row::Timestamp;
use crate::DocumentKey;
use crate::claims::ChangeDetector;

/// The most documents that are remembered: some 200 bytes for each, and its `_id`.
const DOCUMENTS_MAX: NonZeroUsize = NonZeroUsize::new(10_000).unwrap();
/// The most documents of one commit that are remembered: larger commits rarely contend for one document.
const DOCUMENTS_OF_COMMIT_MAX: usize = 100;

/// The most bytes of an `_id` that is remembered.
const ID_BYTES_MAX: usize = 1024;

/// The last commit of each document.
pub(super) struct RecentCommits(Mutex<LruCache<DocumentKey, Timestamp>>);

impl Default for RecentCommits {
    fn default() -> Self {
        RecentCommits(Mutex::new(empty_cache(DOCUMENTS_MAX)))
    }
}

impl RecentCommits {
    /// Returns the keys of the documents of a commit.
    pub(super) fn written_keys(writes: &AtomicBatch) -> Vec<DocumentKey> {
        let writes = writes.writes.iter().take(DOCUMENTS_OF_COMMIT_MAX);
        let keys = writes.map(|write| DocumentKey::new(&write.namespace, write.id.as_raw_bson_ref()));
        keys.filter(|key| key.id.len() <= ID_BYTES_MAX).collect()
    }

    /// Notes that these documents were committed.
    pub(super) fn note(&self, keys: Vec<DocumentKey>, at: Timestamp) {
        let mut recent = lock(&self.0);
        for key in keys {
            recent.put(key, at);
        }
    }
}

#[async_trait]
impl ChangeDetector for RecentCommits {
    async fn is_unchanged(
        &self,
        namespace: &Namespace,
        id: RawBsonRef<'_>,
        _seen: Option<&RawDocument>,
        snapshot: &dyn Snapshot,
    ) -> StoreResult<bool> {
        let at = lock(&self.0).get(&DocumentKey::new(namespace, id)).copied();
        Ok(at.is_none_or(|at| at.0 <= snapshot.timestamp().0))
    }
}
