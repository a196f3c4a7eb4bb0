//! A store in front of another one, by what it does otherwise: all the rest is handed on.

use async_trait::async_trait;
use bson::{RawBson, RawDocumentBuf};

use crate::*;

/// A store that hands on to another one whatever it does not do itself. Each operation is that of [`DocumentStore`], which all
/// such stores are.
#[async_trait]
#[allow(missing_docs, reason = "those of `DocumentStore`")]
pub trait DelegatingStore: Send + Sync + 'static {
    /// The store behind it.
    type Inner: DocumentStore + ?Sized;

    /// The store behind it.
    fn inner(&self) -> &Self::Inner;

    fn name(&self) -> &'static str {
        self.inner().name()
    }

    async fn insert(&self, request: Insert) -> Result<InsertOutcome> {
        self.inner().insert(request).await
    }

    async fn find(&self, request: Find) -> Result<Box<dyn Cursor>> {
        self.inner().find(request).await
    }

    async fn update(&self, request: Update) -> Result<UpdateOutcome> {
        self.inner().update(request).await
    }

    async fn find_and_modify(&self, request: FindAndModify) -> Result<FindAndModifyOutcome> {
        self.inner().find_and_modify(request).await
    }

    async fn delete(&self, request: Delete) -> Result<DeleteOutcome> {
        self.inner().delete(request).await
    }

    async fn aggregate(&self, request: Aggregate) -> Result<Box<dyn Cursor>> {
        self.inner().aggregate(request).await
    }

    async fn count(&self, request: Count) -> Result<u64> {
        self.inner().count(request).await
    }

    async fn distinct(&self, request: Distinct) -> Result<Vec<RawBson>> {
        self.inner().distinct(request).await
    }

    async fn explain(&self, request: Explain) -> Result<RawDocumentBuf> {
        self.inner().explain(request).await
    }

    async fn create_indexes(&self, request: CreateIndexes) -> Result<(u32, u32)> {
        self.inner().create_indexes(request).await
    }

    async fn drop_indexes(&self, request: DropIndexes) -> Result<u32> {
        self.inner().drop_indexes(request).await
    }

    async fn list_indexes(&self, namespace: &Namespace) -> Result<Vec<IndexInfo>> {
        self.inner().list_indexes(namespace).await
    }

    async fn create_collection(&self, namespace: &Namespace, options: CollectionOptions) -> Result<()> {
        self.inner().create_collection(namespace, options).await
    }

    async fn modify_collection(&self, request: ModifyCollection) -> Result<RawDocumentBuf> {
        self.inner().modify_collection(request).await
    }

    fn check_rename(&self, from: &Namespace, to: &Namespace) -> Result<()> {
        self.inner().check_rename(from, to)
    }

    async fn rename_collection(&self, request: RenameCollection) -> Result<()> {
        self.inner().rename_collection(request).await
    }

    async fn drop_collection(&self, namespace: &Namespace) -> Result<bool> {
        self.inner().drop_collection(namespace).await
    }

    async fn list_collections(&self, database: &str) -> Result<Vec<CollectionInfo>> {
        self.inner().list_collections(database).await
    }

    async fn list_databases(&self) -> Result<Vec<String>> {
        self.inner().list_databases().await
    }

    async fn drop_database(&self, database: &str) -> Result<bool> {
        self.inner().drop_database(database).await
    }

    async fn collection_stats(&self, namespace: &Namespace) -> Result<CollectionStats> {
        self.inner().collection_stats(namespace).await
    }

    async fn check_collection(&self, namespace: &Namespace) -> Result<CollectionCheck> {
        self.inner().check_collection(namespace).await
    }

    async fn flush(&self) -> Result<()> {
        self.inner().flush().await
    }
}

#[async_trait]
impl<T: DelegatingStore> DocumentStore for T {
    fn name(&self) -> &'static str {
        DelegatingStore::name(self)
    }

    async fn insert(&self, request: Insert) -> Result<InsertOutcome> {
        DelegatingStore::insert(self, request).await
    }

    async fn find(&self, request: Find) -> Result<Box<dyn Cursor>> {
        DelegatingStore::find(self, request).await
    }

    async fn update(&self, request: Update) -> Result<UpdateOutcome> {
        DelegatingStore::update(self, request).await
    }

    async fn find_and_modify(&self, request: FindAndModify) -> Result<FindAndModifyOutcome> {
        DelegatingStore::find_and_modify(self, request).await
    }

    async fn delete(&self, request: Delete) -> Result<DeleteOutcome> {
        DelegatingStore::delete(self, request).await
    }

    async fn aggregate(&self, request: Aggregate) -> Result<Box<dyn Cursor>> {
        DelegatingStore::aggregate(self, request).await
    }

    async fn count(&self, request: Count) -> Result<u64> {
        DelegatingStore::count(self, request).await
    }

    async fn distinct(&self, request: Distinct) -> Result<Vec<RawBson>> {
        DelegatingStore::distinct(self, request).await
    }

    async fn explain(&self, request: Explain) -> Result<RawDocumentBuf> {
        DelegatingStore::explain(self, request).await
    }

    async fn create_indexes(&self, request: CreateIndexes) -> Result<(u32, u32)> {
        DelegatingStore::create_indexes(self, request).await
    }

    async fn drop_indexes(&self, request: DropIndexes) -> Result<u32> {
        DelegatingStore::drop_indexes(self, request).await
    }

    async fn list_indexes(&self, namespace: &Namespace) -> Result<Vec<IndexInfo>> {
        DelegatingStore::list_indexes(self, namespace).await
    }

    async fn create_collection(&self, namespace: &Namespace, options: CollectionOptions) -> Result<()> {
        DelegatingStore::create_collection(self, namespace, options).await
    }

    async fn modify_collection(&self, request: ModifyCollection) -> Result<RawDocumentBuf> {
        DelegatingStore::modify_collection(self, request).await
    }

    fn check_rename(&self, from: &Namespace, to: &Namespace) -> Result<()> {
        DelegatingStore::check_rename(self, from, to)
    }

    async fn rename_collection(&self, request: RenameCollection) -> Result<()> {
        DelegatingStore::rename_collection(self, request).await
    }

    async fn drop_collection(&self, namespace: &Namespace) -> Result<bool> {
        DelegatingStore::drop_collection(self, namespace).await
    }

    async fn list_collections(&self, database: &str) -> Result<Vec<CollectionInfo>> {
        DelegatingStore::list_collections(self, database).await
    }

    async fn list_databases(&self) -> Result<Vec<String>> {
        DelegatingStore::list_databases(self).await
    }

    async fn drop_database(&self, database: &str) -> Result<bool> {
        DelegatingStore::drop_database(self, database).await
    }

    async fn collection_stats(&self, namespace: &Namespace) -> Result<CollectionStats> {
        DelegatingStore::collection_stats(self, namespace).await
    }

    async fn check_collection(&self, namespace: &Namespace) -> Result<CollectionCheck> {
        DelegatingStore::check_collection(self, namespace).await
    }

    async fn flush(&self) -> Result<()> {
        DelegatingStore::flush(self).await
    }
}
