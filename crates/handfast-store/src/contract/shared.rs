//! A shared store is a store: decorators can be put around an `Arc<dyn DocumentStore>`.

use std::sync::Arc;

use async_trait::async_trait;
use bson::{RawBson, RawDocumentBuf};

use super::{AtomicStore, Cursor, DocumentStore, Snapshot};
use crate::*;

#[async_trait]
impl<S: DocumentStore + ?Sized> DocumentStore for Arc<S> {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    async fn insert(&self, request: Insert) -> Result<InsertOutcome> {
        (**self).insert(request).await
    }

    async fn find(&self, request: Find) -> Result<Box<dyn Cursor>> {
        (**self).find(request).await
    }

    async fn update(&self, request: Update) -> Result<UpdateOutcome> {
        (**self).update(request).await
    }

    async fn find_and_modify(&self, request: FindAndModify) -> Result<FindAndModifyOutcome> {
        (**self).find_and_modify(request).await
    }

    async fn delete(&self, request: Delete) -> Result<DeleteOutcome> {
        (**self).delete(request).await
    }

    async fn aggregate(&self, request: Aggregate) -> Result<Box<dyn Cursor>> {
        (**self).aggregate(request).await
    }

    async fn count(&self, request: Count) -> Result<u64> {
        (**self).count(request).await
    }

    async fn distinct(&self, request: Distinct) -> Result<Vec<RawBson>> {
        (**self).distinct(request).await
    }

    async fn explain(&self, request: Explain) -> Result<RawDocumentBuf> {
        (**self).explain(request).await
    }

    async fn create_indexes(&self, request: CreateIndexes) -> Result<(u32, u32)> {
        (**self).create_indexes(request).await
    }

    async fn drop_indexes(&self, request: DropIndexes) -> Result<u32> {
        (**self).drop_indexes(request).await
    }

    async fn list_indexes(&self, namespace: &Namespace) -> Result<Vec<IndexInfo>> {
        (**self).list_indexes(namespace).await
    }

    async fn create_collection(&self, namespace: &Namespace, options: CollectionOptions) -> Result<()> {
        (**self).create_collection(namespace, options).await
    }

    async fn modify_collection(&self, request: ModifyCollection) -> Result<RawDocumentBuf> {
        (**self).modify_collection(request).await
    }

    fn check_rename(&self, from: &Namespace, to: &Namespace) -> Result<()> {
        (**self).check_rename(from, to)
    }

    async fn rename_collection(&self, request: RenameCollection) -> Result<()> {
        (**self).rename_collection(request).await
    }

    async fn drop_collection(&self, namespace: &Namespace) -> Result<bool> {
        (**self).drop_collection(namespace).await
    }

    async fn list_collections(&self, database: &str) -> Result<Vec<CollectionInfo>> {
        (**self).list_collections(database).await
    }

    async fn list_databases(&self) -> Result<Vec<String>> {
        (**self).list_databases().await
    }

    async fn drop_database(&self, database: &str) -> Result<bool> {
        (**self).drop_database(database).await
    }

    async fn collection_stats(&self, namespace: &Namespace) -> Result<CollectionStats> {
        (**self).collection_stats(namespace).await
    }

    async fn check_collection(&self, namespace: &Namespace) -> Result<CollectionCheck> {
        (**self).check_collection(namespace).await
    }

    async fn flush(&self) -> Result<()> {
        (**self).flush().await
    }
}

#[async_trait]
impl<S: AtomicStore + ?Sized> AtomicStore for Arc<S> {
    async fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        (**self).snapshot().await
    }

    async fn commit(&self, batch: AtomicBatch) -> Result<CommitTimestamp> {
        (**self).commit(batch).await
    }
}
