//! The contract of a store for a database.
//!
//! A request that the engine's store cannot do alone is a transaction of its own: all its documents are changed or none, and the results
//! for its tickets are stored in the same step.

use async_trait::async_trait;
use bson::{RawBson, RawDocumentBuf};
use handfast_store::{
    Aggregate, ChangeStream, CollectionCheck, CollectionInfo, CollectionOptions, CollectionStats, Count, CreateIndexes,
    Cursor, Delete, DeleteOutcome, Distinct, DocumentStore, DropIndexes, Explain, Find, FindAndModify,
    FindAndModifyOutcome, IndexCounts, IndexInfo, Insert, InsertOutcome, ModifyCollection, Namespace, RenameCollection,
    Result as StoreResult, Update, UpdateOutcome, Watch, change_stream, check_by_reading,
};

use super::Database;

#[async_trait]
impl DocumentStore for Database {
    fn name(&self) -> &'static str {
        self.shared.engine.traits().name
    }

    async fn insert(&self, request: Insert) -> StoreResult<InsertOutcome> {
        match self.plain() {
            Some(store) => store.insert(request).await,
            None => self.run_alone(&request, |tx, request| async move { tx.insert_once(request).await }).await,
        }
    }

    async fn find(&self, request: Find) -> StoreResult<Box<dyn Cursor>> {
        match self.plain() {
            Some(store) => store.find(request).await,
            None => self.find_outside_transaction(request).await,
        }
    }

    async fn update(&self, request: Update) -> StoreResult<UpdateOutcome> {
        match self.plain() {
            Some(store) => store.update(request).await,
            None => self.run_alone(&request, |tx, request| async move { tx.update_once(request).await }).await,
        }
    }

    async fn find_and_modify(&self, request: FindAndModify) -> StoreResult<FindAndModifyOutcome> {
        match self.plain() {
            Some(store) => store.find_and_modify(request).await,
            None => self.run_alone(&request, |tx, request| async move { tx.find_and_modify_once(request).await }).await,
        }
    }

    async fn delete(&self, request: Delete) -> StoreResult<DeleteOutcome> {
        match self.plain() {
            Some(store) => store.delete(request).await,
            None => self.run_alone(&request, |tx, request| async move { tx.delete_once(request).await }).await,
        }
    }

    async fn aggregate(&self, request: Aggregate) -> StoreResult<Box<dyn Cursor>> {
        match self.plain() {
            Some(store) => store.aggregate(request).await,
            None => self.aggregate_outside_transaction(request).await,
        }
    }

    async fn count(&self, request: Count) -> StoreResult<u64> {
        match self.plain() {
            Some(store) => store.count(request).await,
            None => self.run_alone(&request, |tx, request| async move { tx.count(request).await }).await,
        }
    }

    async fn distinct(&self, request: Distinct) -> StoreResult<Vec<RawBson>> {
        match self.plain() {
            Some(store) => store.distinct(request).await,
            None => self.run_alone(&request, |tx, request| async move { tx.distinct(request).await }).await,
        }
    }

    async fn explain(&self, request: Explain) -> StoreResult<RawDocumentBuf> {
        self.catalog().explain(request).await
    }

    async fn create_indexes(&self, request: CreateIndexes) -> StoreResult<IndexCounts> {
        self.shared.check_not_own(request.namespace.database())?;
        self.catalog().create_indexes(request).await
    }

    async fn drop_indexes(&self, request: DropIndexes) -> StoreResult<u32> {
        self.shared.check_not_own(request.namespace.database())?;
        self.catalog().drop_indexes(request).await
    }

    async fn list_indexes(&self, namespace: &Namespace) -> StoreResult<Vec<IndexInfo>> {
        self.catalog().list_indexes(namespace).await
    }

    async fn create_collection(&self, namespace: &Namespace, options: CollectionOptions) -> StoreResult<()> {
        self.shared.check_not_own(namespace.database())?;
        self.catalog().create_collection(namespace, options).await
    }

    async fn modify_collection(&self, request: ModifyCollection) -> StoreResult<RawDocumentBuf> {
        self.shared.check_not_own(request.namespace.database())?;
        self.catalog().modify_collection(request).await
    }

    async fn rename_collection(&self, request: RenameCollection) -> StoreResult<()> {
        self.shared.check_not_own(request.from.database())?;
        self.shared.check_not_own(request.to.database())?;
        self.catalog().rename_collection(request).await
    }

    async fn drop_collection(&self, namespace: &Namespace) -> StoreResult<bool> {
        self.shared.check_not_own(namespace.database())?;
        self.catalog().drop_collection(namespace).await
    }

    async fn list_collections(&self, database: &str) -> StoreResult<Vec<CollectionInfo>> {
        self.catalog().list_collections(database).await
    }

    async fn list_databases(&self) -> StoreResult<Vec<String>> {
        self.catalog().list_databases().await
    }

    async fn drop_database(&self, database: &str) -> StoreResult<bool> {
        self.shared.check_not_own(database)?;
        self.catalog().drop_database(database).await
    }

    async fn collection_stats(&self, namespace: &Namespace) -> StoreResult<CollectionStats> {
        match self.plain() {
            Some(store) => store.collection_stats(namespace).await,
            None => {
                self.run_alone(namespace, |tx, namespace| async move { tx.collection_stats(&namespace).await }).await
            }
        }
    }

    async fn check_collection(&self, namespace: &Namespace) -> StoreResult<CollectionCheck> {
        match self.plain() {
            Some(store) => store.check_collection(namespace).await,
            None => check_by_reading(self, namespace).await,
        }
    }

    async fn watch(&self, request: Watch) -> StoreResult<Box<dyn ChangeStream>> {
        match self.plain() {
            Some(store) => store.watch(request).await,
            None => Err(change_stream::unsupported()),
        }
    }

    async fn flush(&self) -> StoreResult<()> {
        self.shared.engine.flush().await
    }
}
