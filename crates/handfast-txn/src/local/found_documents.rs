//! The snapshot of a transaction, with the documents that its finds have returned: a write of one of them by its `_id` does not read it again.
//!
//! ```text
//! find {status: "open"}      reads 1, 2 and 3, and keeps them
//! update {_id: 2}            has 2
//! update {_id: 9}            reads 9, and keeps nothing
//! ```
//!
//! A snapshot does not change, so what is kept is what would be read. What is found when there is no more room takes the place of all that was found
//! before: documents are mostly written soon after they were found.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bson::{RawBsonRef, RawDocumentBuf};
use handfast_store::validation::Validator;
use handfast_store::view::ResolvedView;
use handfast_store::{
    BatchLimit, CommitTimestamp, Cursor, Find, Namespace, Page, Result as StoreResult, Snapshot, insertion,
};

use crate::DocumentKey;

#[cfg(test)]
mod tests;

/// The most bytes of kept documents, with their keys: some thousand documents, as a transaction may write that it has searched for.
const KEPT_BYTES_MAX: usize = 1024 * 1024;
/// The memory that a kept document takes besides its bytes and its key: an entry in a hash table, which may just have doubled, and two allocations.
const KEPT_OVERHEAD_BYTES: usize = 192;

/// A snapshot that keeps what finds return.
pub(super) struct CachingSnapshot {
    snapshot: Box<dyn Snapshot>,
    found: Arc<Mutex<FoundDocuments>>,
}

#[derive(Default)]
struct FoundDocuments {
    documents: HashMap<DocumentKey, RawDocumentBuf>,
    bytes: usize,
}

impl CachingSnapshot {
    pub(super) fn new(snapshot: Box<dyn Snapshot>) -> Self {
        CachingSnapshot { snapshot, found: Arc::default() }
    }
}

impl FoundDocuments {
    /// Keeps documents, except those that alone are too large.
    fn keep(&mut self, namespace: &Namespace, documents: &[RawDocumentBuf]) -> StoreResult<()> {
        for document in documents {
            let key = DocumentKey::new(namespace, insertion::id(document)?);
            let bytes = bytes_of(&key, document);
            if bytes > KEPT_BYTES_MAX {
                continue;
            }
            if self.bytes + bytes > KEPT_BYTES_MAX {
                (self.documents, self.bytes) = (HashMap::new(), 0);
            }
            if self.documents.insert(key, document.clone()).is_none() {
                self.bytes += bytes;
            }
        }
        Ok(())
    }

    fn get(&self, namespace: &Namespace, id: RawBsonRef<'_>) -> Option<RawDocumentBuf> {
        if self.documents.is_empty() {
            return None;
        }
        self.documents.get(&DocumentKey::new(namespace, id)).cloned()
    }
}

fn bytes_of(key: &DocumentKey, document: &RawDocumentBuf) -> usize {
    key.id.len() + document.as_bytes().len() + KEPT_OVERHEAD_BYTES
}

#[async_trait]
impl Snapshot for CachingSnapshot {
    fn timestamp(&self) -> CommitTimestamp {
        self.snapshot.timestamp()
    }

    async fn get(&self, namespace: &Namespace, id: RawBsonRef<'_>) -> StoreResult<Option<RawDocumentBuf>> {
        let found = lock(&self.found).get(namespace, id);
        match found {
            Some(document) => Ok(Some(document)),
            None => self.snapshot.get(namespace, id).await,
        }
    }

    async fn find(&self, request: Find) -> StoreResult<Box<dyn Cursor>> {
        let is_whole = request.projection.is_empty() && !request.return_key && !request.show_record_id;
        let namespace = request.namespace.clone();
        let cursor = self.snapshot.find(request).await?;
        if !is_whole {
            return Ok(cursor);
        }
        Ok(Box::new(KeepingCursor { cursor, namespace, found: Arc::clone(&self.found) }))
    }

    fn is_unchanged(&self, namespace: &Namespace, id: RawBsonRef<'_>) -> bool {
        self.snapshot.is_unchanged(namespace, id)
    }

    fn validator(&self, namespace: &Namespace) -> Option<Arc<Validator>> {
        self.snapshot.validator(namespace)
    }

    fn default_collation(&self, namespace: &Namespace) -> Option<RawDocumentBuf> {
        self.snapshot.default_collation(namespace)
    }

    fn view(&self, namespace: &Namespace) -> StoreResult<Option<ResolvedView>> {
        self.snapshot.view(namespace)
    }
}

/// A cursor over whole documents, which are kept.
struct KeepingCursor {
    cursor: Box<dyn Cursor>,
    namespace: Namespace,
    found: Arc<Mutex<FoundDocuments>>,
}

#[async_trait]
impl Cursor for KeepingCursor {
    async fn next_page(&mut self, limit: BatchLimit) -> StoreResult<Page> {
        let page = self.cursor.next_page(limit).await?;
        lock(&self.found).keep(&self.namespace, &page.documents)?;
        Ok(page)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code that holds the lock can panic in the middle of a change.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
