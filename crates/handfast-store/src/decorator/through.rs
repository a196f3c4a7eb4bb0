//! A store in front of another one, by what it does otherwise: all the rest is handed on.

use async_trait::async_trait;
use bson::{RawBson, RawDocumentBuf};

use crate::*;

/// A store that hands on to another one whatever it does not do itself. Each operation is that of [`DocumentStore`], which all
/// such stores are.
#[async_trait]
#[allow(missing_docs, reason = "those of `DocumentStore`")]
pub trait Through: Send + Sync + 'static {
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
impl<T: Through> DocumentStore for T {
    fn name(&self) -> &'static str {
        Through::name(self)
    }

    async fn insert(&self, request: Insert) -> Result<InsertOutcome> {
        Through::insert(self, request).await
    }

    async fn find(&self, request: Find) -> Result<Box<dyn Cursor>> {
        Through::find(self, request).await
    }

    async fn update(&self, request: Update) -> Result<UpdateOutcome> {
        Through::update(self, request).await
    }

    async fn find_and_modify(&self, request: FindAndModify) -> Result<FindAndModifyOutcome> {
        Through::find_and_modify(self, request).await
    }

    async fn delete(&self, request: Delete) -> Result<DeleteOutcome> {
        Through::delete(self, request).await
    }

    async fn aggregate(&self, request: Aggregate) -> Result<Box<dyn Cursor>> {
        Through::aggregate(self, request).await
    }

    async fn count(&self, request: Count) -> Result<u64> {
        Through::count(self, request).await
    }

    async fn distinct(&self, request: Distinct) -> Result<Vec<RawBson>> {
        Through::distinct(self, request).await
    }

    async fn explain(&self, request: Explain) -> Result<RawDocumentBuf> {
        Through::explain(self, request).await
    }

    async fn create_indexes(&self, request: CreateIndexes) -> Result<(u32, u32)> {
        Through::create_indexes(self, request).await
    }

    async fn drop_indexes(&self, request: DropIndexes) -> Result<u32> {
        Through::drop_indexes(self, request).await
    }

    async fn list_indexes(&self, namespace: &Namespace) -> Result<Vec<IndexInfo>> {
        Through::list_indexes(self, namespace).await
    }

    async fn create_collection(&self, namespace: &Namespace, options: CollectionOptions) -> Result<()> {
        Through::create_collection(self, namespace, options).await
    }

    async fn modify_collection(&self, request: ModifyCollection) -> Result<RawDocumentBuf> {
        Through::modify_collection(self, request).await
    }

    fn check_rename(&self, from: &Namespace, to: &Namespace) -> Result<()> {
        Through::check_rename(self, from, to)
    }

    async fn rename_collection(&self, request: RenameCollection) -> Result<()> {
        Through::rename_collection(self, request).await
    }

    async fn drop_collection(&self, namespace: &Namespace) -> Result<bool> {
        Through::drop_collection(self, namespace).await
    }

    async fn list_collections(&self, database: &str) -> Result<Vec<CollectionInfo>> {
        Through::list_collections(self, database).await
    }

    async fn list_databases(&self) -> Result<Vec<String>> {
        Through::list_databases(self).await
    }

    async fn drop_database(&self, database: &str) -> Result<bool> {
        Through::drop_database(self, database).await
    }

    async fn collection_stats(&self, namespace: &Namespace) -> Result<CollectionStats> {
        Through::collection_stats(self, namespace).await
    }

    async fn check_collection(&self, namespace: &Namespace) -> Result<CollectionCheck> {
        Through::check_collection(self, namespace).await
    }

    async fn flush(&self) -> Result<()> {
        Through::flush(self).await
    }
}
