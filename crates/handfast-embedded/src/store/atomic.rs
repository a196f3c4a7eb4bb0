//! The contract of atomic batches: snapshots and commits.

use std::sync::Arc;

use async_trait::async_trait;
use bson::{RawBsonRef, RawDocumentBuf};
use handfast_store::validation::Validator;
use handfast_store::view::{self, ResolvedView, ViewCatalog as _};
use handfast_store::{
    AtomicBatch, AtomicStore, CommitTimestamp, Cursor, Find, Namespace, Result, Snapshot as StoreSnapshot,
    default_collation,
};

use super::EmbeddedStore;
use crate::format::document_key;
use crate::keys;
use crate::read::find::SnapshotReader;
use crate::write::batch;

struct OpenSnapshot {
    store: EmbeddedStore,
    reader: SnapshotReader,
}

#[async_trait]
impl StoreSnapshot for OpenSnapshot {
    fn timestamp(&self) -> CommitTimestamp {
        self.reader.snapshot.timestamp()
    }

    async fn get(&self, namespace: &Namespace, id: RawBsonRef<'_>) -> Result<Option<RawDocumentBuf>> {
        self.reader.get(namespace, id)
    }

    async fn find(&self, request: Find) -> Result<Box<dyn Cursor>> {
        self.reader.clone().find(&request)
    }

    fn is_unchanged(&self, namespace: &Namespace, id: RawBsonRef<'_>) -> bool {
        let collection = self.reader.snapshot.catalog().get(namespace);
        let key = collection.and_then(|collection| document_key(collection.id, &keys::of_id(id)));
        let recent_changes = &self.store.context.shared().recent_changes;
        key.is_some_and(|key| recent_changes.is_unchanged(&key, self.timestamp()))
    }

    fn validator(&self, namespace: &Namespace) -> Option<Arc<Validator>> {
        self.reader.snapshot.catalog().get(namespace)?.validator.clone()
    }

    fn default_collation(&self, namespace: &Namespace) -> Option<RawDocumentBuf> {
        default_collation::of(self.reader.snapshot.catalog().options(namespace)).cloned()
    }

    fn view(&self, namespace: &Namespace) -> Result<Option<ResolvedView>> {
        view::resolve(&**self.reader.snapshot.catalog(), namespace)
    }
}

#[async_trait]
impl AtomicStore for EmbeddedStore {
    async fn snapshot(&self) -> Result<Box<dyn StoreSnapshot>> {
        Ok(Box::new(OpenSnapshot { store: self.clone(), reader: self.reader() }))
    }

    async fn commit(&self, batch: AtomicBatch) -> Result<CommitTimestamp> {
        batch::commit(&self.context, batch).await
    }
}
