//! The store behind the contract: each request goes to the module that carries it out.

use std::sync::Arc;

use async_trait::async_trait;
use bson::{RawBson, RawDocumentBuf};
use handfast_store::{
    Aggregate, CollectionCheck, CollectionInfo, CollectionOptions, CollectionStats, Count, CreateIndexes, Cursor,
    Delete, DeleteOutcome, Distinct, DocumentStore, DropIndexes, Durability, Explain, Find, FindAndModify,
    FindAndModifyOutcome, IndexInfo, Insert, InsertOutcome, ModifyCollection, Namespace, RenameCollection, Result,
    Update, UpdateOutcome,
};

use super::EmbeddedStore;

#[async_trait]
impl DocumentStore for EmbeddedStore {
    fn name(&self) -> &'static str {
        "embedded"
    }

    async fn insert(&self, request: Insert) -> Result<InsertOutcome> {
        self.insert_documents(request).await
    }

    async fn find(&self, request: Find) -> Result<Box<dyn Cursor>> {
        self.find_at(self.snapshot_now(), &request)
    }

    async fn update(&self, request: Update) -> Result<UpdateOutcome> {
        self.run_update(request).await
    }

    async fn find_and_modify(&self, request: FindAndModify) -> Result<FindAndModifyOutcome> {
        self.run_find_and_modify(request).await
    }

    async fn delete(&self, request: Delete) -> Result<DeleteOutcome> {
        self.run_delete(request).await
    }

    async fn aggregate(&self, request: Aggregate) -> Result<Box<dyn Cursor>> {
        handfast_store::aggregation::open(Arc::new(self.clone()), &self.inner.sources, request).await
    }

    async fn count(&self, request: Count) -> Result<u64> {
        self.count_at(self.snapshot_now(), request).await
    }

    async fn distinct(&self, request: Distinct) -> Result<Vec<RawBson>> {
        self.distinct_at(self.snapshot_now(), request).await
    }

    async fn explain(&self, request: Explain) -> Result<RawDocumentBuf> {
        self.explained(request).await
    }

    async fn create_indexes(&self, request: CreateIndexes) -> Result<(u32, u32)> {
        self.add_indexes(request).await
    }

    async fn drop_indexes(&self, request: DropIndexes) -> Result<u32> {
        self.remove_indexes(request).await
    }

    async fn list_indexes(&self, namespace: &Namespace) -> Result<Vec<IndexInfo>> {
        self.indexes_of(namespace)
    }

    async fn create_collection(&self, namespace: &Namespace, options: CollectionOptions) -> Result<()> {
        self.create(namespace, options).await
    }

    async fn modify_collection(&self, request: ModifyCollection) -> Result<RawDocumentBuf> {
        self.modify(request).await
    }

    async fn rename_collection(&self, request: RenameCollection) -> Result<()> {
        self.rename(request).await
    }

    async fn drop_collection(&self, namespace: &Namespace) -> Result<bool> {
        self.drop_one(namespace).await
    }

    async fn list_collections(&self, database: &str) -> Result<Vec<CollectionInfo>> {
        Ok(self.collections_of(database))
    }

    async fn list_databases(&self) -> Result<Vec<String>> {
        Ok(self.databases())
    }

    async fn drop_database(&self, database: &str) -> Result<bool> {
        self.drop_all_of(database).await
    }

    async fn collection_stats(&self, namespace: &Namespace) -> Result<CollectionStats> {
        self.stats(namespace).await
    }

    async fn check_collection(&self, namespace: &Namespace) -> Result<CollectionCheck> {
        self.check_one(namespace).await
    }

    async fn flush(&self) -> Result<()> {
        self.settle(Durability::Journaled).await
    }
}
