//! The implementation of `DocumentStore`: reads run on a copy, writes one after the other.

use async_trait::async_trait;
use bson::{RawBson, RawDocument, RawDocumentBuf};
use handfast_store::{
    Aggregate, CollectionInfo, CollectionOptions, CollectionStats, Count, CreateIndexes, Cursor, Delete, DeleteOutcome,
    Distinct, DocumentStore, DropIndexes, Explain, Explained, Find, FindAndModify, FindAndModifyOutcome, Hint,
    IndexCounts, IndexInfo, Insert, InsertOutcome, ModifyCollection, Namespace, RenameCollection, Result, Update,
    UpdateOutcome, aggregation,
};

use super::ClientSideStore;
use super::working_copy::WorkingCopy;

impl ClientSideStore {
    /// Makes the copy for a read. It has indexes only if the read names one.
    async fn copy(
        &self,
        namespace: &Namespace,
        filter: &RawDocument,
        variables: &RawDocument,
        hint: Option<&Hint>,
    ) -> Result<WorkingCopy> {
        match hint {
            Some(_) => self.inner.copy_collection(namespace).await,
            None => self.inner.copy_matching(namespace, filter, variables).await,
        }
    }
}

#[async_trait]
impl DocumentStore for ClientSideStore {
    fn name(&self) -> &'static str {
        self.inner.direct.name()
    }

    async fn insert(&self, request: Insert) -> Result<InsertOutcome> {
        self.insert_serially(request).await
    }

    async fn find(&self, request: Find) -> Result<Box<dyn Cursor>> {
        let copy = self.copy(&request.namespace, &request.filter, &request.variables, request.hint.as_ref()).await?;
        copy.store.find(request).await
    }

    async fn update(&self, request: Update) -> Result<UpdateOutcome> {
        self.update_serially(request).await
    }

    async fn find_and_modify(&self, request: FindAndModify) -> Result<FindAndModifyOutcome> {
        self.find_and_modify_serially(request).await
    }

    async fn delete(&self, request: Delete) -> Result<DeleteOutcome> {
        self.delete_serially(request).await
    }

    async fn aggregate(&self, request: Aggregate) -> Result<Box<dyn Cursor>> {
        aggregation::open(std::sync::Arc::new(self.clone()), &self.inner.sources, request).await
    }

    async fn count(&self, request: Count) -> Result<u64> {
        let none = RawDocumentBuf::new();
        let copy = self.copy(&request.namespace, &request.filter, &none, request.hint.as_ref()).await?;
        copy.store.count(request).await
    }

    async fn distinct(&self, request: Distinct) -> Result<Vec<RawBson>> {
        let none = RawDocumentBuf::new();
        let copy = self.copy(&request.namespace, &request.filter, &none, request.hint.as_ref()).await?;
        copy.store.distinct(request).await
    }

    async fn explain(&self, request: Explain) -> Result<RawDocumentBuf> {
        match &request.explained {
            Explained::Find(find) => self.inner.copy_collection(&find.namespace).await?.store.explain(request).await,
            Explained::Aggregate(aggregate) => aggregation::explain(self, aggregate.clone(), request.verbosity).await,
        }
    }

    async fn create_indexes(&self, request: CreateIndexes) -> Result<IndexCounts> {
        self.define(move |inner| async move { inner.create_indexes(request).await }).await
    }

    async fn drop_indexes(&self, request: DropIndexes) -> Result<u32> {
        self.define(move |inner| async move { inner.drop_indexes(request).await }).await
    }

    async fn list_indexes(&self, namespace: &Namespace) -> Result<Vec<IndexInfo>> {
        self.inner.direct.list_indexes(namespace).await
    }

    async fn create_collection(&self, namespace: &Namespace, options: CollectionOptions) -> Result<()> {
        let namespace = namespace.clone();
        self.define(move |inner| async move { inner.direct.create_collection(&namespace, options).await }).await
    }

    async fn modify_collection(&self, request: ModifyCollection) -> Result<RawDocumentBuf> {
        self.define(move |inner| async move { inner.modify_collection(request).await }).await
    }

    async fn rename_collection(&self, request: RenameCollection) -> Result<()> {
        self.define(move |inner| async move { inner.rename_collection(request).await }).await
    }

    async fn drop_collection(&self, namespace: &Namespace) -> Result<bool> {
        let namespace = namespace.clone();
        self.define(move |inner| async move { inner.drop_collection(&namespace).await }).await
    }

    async fn list_collections(&self, database: &str) -> Result<Vec<CollectionInfo>> {
        self.inner.direct.list_collections(database).await
    }

    async fn list_databases(&self) -> Result<Vec<String>> {
        self.inner.list_databases().await
    }

    async fn drop_database(&self, database: &str) -> Result<bool> {
        let database = database.to_owned();
        self.define(move |inner| async move { inner.direct.drop_database(&database).await }).await
    }

    async fn collection_stats(&self, namespace: &Namespace) -> Result<CollectionStats> {
        self.inner.collection_stats(namespace).await
    }

    async fn flush(&self) -> Result<()> {
        self.inner.direct.flush().await
    }
}
