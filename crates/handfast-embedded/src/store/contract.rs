//! The contract of the store: each request goes to the module that carries it out.

use std::sync::Arc;

use async_trait::async_trait;
use bson::{RawBson, RawDocumentBuf};
use handfast_store::view::ResolvedView;
use handfast_store::{
    Aggregate, ChangeStream, CollectionCheck, CollectionInfo, CollectionOptions, CollectionStats, Count, CreateIndexes,
    Cursor, Delete, DeleteOutcome, Distinct, DocumentStore, DropIndexes, Durability, Explain, Explained, Find,
    FindAndModify, FindAndModifyOutcome, IndexCounts, IndexInfo, Insert, InsertOutcome, ModifyCollection, Namespace,
    RenameCollection, Result, Update, UpdateOutcome, Watch, view,
};

use super::EmbeddedStore;
use crate::check::check_collection;
use crate::write::{collections, index_build, indexes, insert, modify};

impl EmbeddedStore {
    /// Returns what a view stands for; `None` if there is none of this name.
    fn view(&self, namespace: &Namespace) -> Result<Option<ResolvedView>> {
        view::resolve(&**self.context.snapshot().catalog(), namespace)
    }
}

#[async_trait]
impl DocumentStore for EmbeddedStore {
    fn name(&self) -> &'static str {
        "embedded"
    }

    async fn insert(&self, request: Insert) -> Result<InsertOutcome> {
        insert::insert(&self.context, request).await
    }

    async fn find(&self, request: Find) -> Result<Box<dyn Cursor>> {
        match self.view(&request.namespace)? {
            Some(view) => view::find(self, view, request).await,
            None => self.reader().find(&request),
        }
    }

    async fn update(&self, request: Update) -> Result<UpdateOutcome> {
        modify::update(&self.context, request).await
    }

    async fn find_and_modify(&self, request: FindAndModify) -> Result<FindAndModifyOutcome> {
        modify::find_and_modify(&self.context, request).await
    }

    async fn delete(&self, request: Delete) -> Result<DeleteOutcome> {
        modify::delete(&self.context, request).await
    }

    async fn aggregate(&self, request: Aggregate) -> Result<Box<dyn Cursor>> {
        let request = view::of_source(&**self.context.snapshot().catalog(), request)?;
        handfast_store::aggregation::open(Arc::new(self.clone()), &self.context.sources, request).await
    }

    async fn count(&self, request: Count) -> Result<u64> {
        match self.view(&request.namespace)? {
            Some(view) => view::count(self, view, request).await,
            None => self.reader().count(request).await,
        }
    }

    async fn distinct(&self, request: Distinct) -> Result<Vec<RawBson>> {
        match self.view(&request.namespace)? {
            Some(view) => view::distinct(self, view, request).await,
            None => self.reader().distinct(request).await,
        }
    }

    async fn explain(&self, request: Explain) -> Result<RawDocumentBuf> {
        let aggregate = match request.explained {
            Explained::Find(find) => match self.view(&find.namespace)? {
                Some(view) => view.find(find)?,
                None => return self.reader().explain(find, request.verbosity).await,
            },
            Explained::Aggregate(aggregate) => view::of_source(&**self.context.snapshot().catalog(), aggregate)?,
        };
        handfast_store::aggregation::explain(self, aggregate, request.verbosity).await
    }

    async fn create_indexes(&self, request: CreateIndexes) -> Result<IndexCounts> {
        index_build::create_indexes(&self.context, request).await
    }

    async fn drop_indexes(&self, request: DropIndexes) -> Result<u32> {
        indexes::drop_indexes(&self.context, request).await
    }

    async fn list_indexes(&self, namespace: &Namespace) -> Result<Vec<IndexInfo>> {
        indexes::list_indexes(&self.context.snapshot(), namespace)
    }

    async fn create_collection(&self, namespace: &Namespace, options: CollectionOptions) -> Result<()> {
        collections::create_collection(&self.context, namespace, options).await
    }

    async fn modify_collection(&self, request: ModifyCollection) -> Result<RawDocumentBuf> {
        indexes::modify_collection(&self.context, request).await
    }

    async fn rename_collection(&self, request: RenameCollection) -> Result<()> {
        collections::rename_collection(&self.context, request).await
    }

    async fn drop_collection(&self, namespace: &Namespace) -> Result<bool> {
        collections::drop_collection(&self.context, namespace).await
    }

    async fn list_collections(&self, database: &str) -> Result<Vec<CollectionInfo>> {
        Ok(collections::list_collections(&self.context.snapshot(), database))
    }

    async fn list_databases(&self) -> Result<Vec<String>> {
        Ok(collections::list_databases(&self.context.snapshot()))
    }

    async fn drop_database(&self, database: &str) -> Result<bool> {
        collections::drop_database(&self.context, database).await
    }

    async fn collection_stats(&self, namespace: &Namespace) -> Result<CollectionStats> {
        collections::collection_stats(&self.context, namespace).await
    }

    async fn check_collection(&self, namespace: &Namespace) -> Result<CollectionCheck> {
        check_collection(self.context.snapshot(), namespace).await
    }

    async fn watch(&self, request: Watch) -> Result<Box<dyn ChangeStream>> {
        self.open_stream(request).await
    }

    async fn flush(&self) -> Result<()> {
        self.context.wait_until_durable(Durability::Journaled).await
    }
}
