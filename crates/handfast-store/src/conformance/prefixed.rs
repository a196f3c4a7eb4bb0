//! A view of the databases of a store that have a prefix, for a suite that needs an empty store on a server in use.
//!
//! ```text
//! in the view     on the server
//! app.c           handfast_test_5f3a09c1_app.c
//! ```
//!
//! The view shows only databases with the prefix, and shows their names without it: in lists and in messages of errors. Names of
//! databases within pipelines and documents are not changed.

use std::sync::Arc;

use async_trait::async_trait;
use bson::{RawBson, RawDocumentBuf};

use crate::{
    Aggregate, AggregateSource, BatchLimit, CollectionCheck, CollectionInfo, CollectionOptions, CollectionStats, Count,
    CreateIndexes, Cursor, Delete, DeleteOutcome, Distinct, DocumentStore, DropIndexes, Error, Explain, Explained,
    Find, FindAndModify, FindAndModifyOutcome, IndexCounts, IndexInfo, Insert, InsertOutcome, ModifyCollection,
    Namespace, Page, RenameCollection, Result, Update, UpdateOutcome, WriteError,
};

/// The databases of a store that have a prefix. See the module's documentation.
#[derive(Clone)]
pub struct PrefixedStore {
    store: Arc<dyn DocumentStore>,
    prefix: Arc<str>,
}

impl PrefixedStore {
    /// Wraps the databases with this prefix, which no other database should have.
    pub fn new(store: Arc<dyn DocumentStore>, prefix: &str) -> Self {
        PrefixedStore { store, prefix: Arc::from(prefix) }
    }

    /// Drops all databases with the prefix.
    pub async fn clear(&self) -> Result<()> {
        for database in self.list_databases().await? {
            self.drop_database(&database).await?;
        }
        Ok(())
    }

    /// Returns the name of a database in the inner store.
    pub fn outer_database(&self, database: &str) -> String {
        format!("{}{database}", self.prefix)
    }

    fn outer(&self, namespace: &Namespace) -> Result<Namespace> {
        Namespace::new(self.outer_database(namespace.database()), namespace.collection())
    }

    fn outer_aggregate(&self, mut request: Aggregate) -> Result<Aggregate> {
        request.source = match request.source {
            AggregateSource::Collection(namespace) => AggregateSource::Collection(self.outer(&namespace)?),
            AggregateSource::Database(database) => AggregateSource::Database(self.outer_database(&database)),
        };
        Ok(request)
    }

    /// Removes the prefix from the message of an error, and keeps the original error as its cause.
    fn renamed<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| self.renamed_error(error))
    }

    fn renamed_error(&self, error: Error) -> Error {
        let text = error.message().replace(&*self.prefix, "");
        let mut renamed = Error::new(error.class(), error.applied(), error.code(), text);
        if let Some(details) = error.details() {
            renamed = renamed.with_details(details.clone());
        }
        renamed.with_source(error)
    }

    fn rename_each(&self, errors: &mut [WriteError]) {
        for error in errors {
            error.error = self.renamed_error(error.error.clone());
        }
    }

    fn cursor(&self, opened: Result<Box<dyn Cursor>>) -> Result<Box<dyn Cursor>> {
        Ok(Box::new(PrefixedCursor { cursor: self.renamed(opened)?, store: self.clone() }))
    }
}

struct PrefixedCursor {
    cursor: Box<dyn Cursor>,
    store: PrefixedStore,
}

#[async_trait]
impl Cursor for PrefixedCursor {
    async fn next_page(&mut self, limit: BatchLimit) -> Result<Page> {
        self.store.renamed(self.cursor.next_page(limit).await)
    }
}

#[async_trait]
impl DocumentStore for PrefixedStore {
    fn name(&self) -> &'static str {
        self.store.name()
    }

    async fn insert(&self, mut request: Insert) -> Result<InsertOutcome> {
        request.namespace = self.outer(&request.namespace)?;
        let mut outcome = self.renamed(self.store.insert(request).await)?;
        self.rename_each(&mut outcome.errors);
        Ok(outcome)
    }

    async fn find(&self, mut request: Find) -> Result<Box<dyn Cursor>> {
        request.namespace = self.outer(&request.namespace)?;
        self.cursor(self.store.find(request).await)
    }

    async fn update(&self, mut request: Update) -> Result<UpdateOutcome> {
        request.namespace = self.outer(&request.namespace)?;
        let mut outcome = self.renamed(self.store.update(request).await)?;
        self.rename_each(&mut outcome.errors);
        Ok(outcome)
    }

    async fn find_and_modify(&self, mut request: FindAndModify) -> Result<FindAndModifyOutcome> {
        request.namespace = self.outer(&request.namespace)?;
        self.renamed(self.store.find_and_modify(request).await)
    }

    async fn delete(&self, mut request: Delete) -> Result<DeleteOutcome> {
        request.namespace = self.outer(&request.namespace)?;
        let mut outcome = self.renamed(self.store.delete(request).await)?;
        self.rename_each(&mut outcome.errors);
        Ok(outcome)
    }

    async fn aggregate(&self, request: Aggregate) -> Result<Box<dyn Cursor>> {
        self.cursor(self.store.aggregate(self.outer_aggregate(request)?).await)
    }

    async fn count(&self, mut request: Count) -> Result<u64> {
        request.namespace = self.outer(&request.namespace)?;
        self.renamed(self.store.count(request).await)
    }

    async fn distinct(&self, mut request: Distinct) -> Result<Vec<RawBson>> {
        request.namespace = self.outer(&request.namespace)?;
        self.renamed(self.store.distinct(request).await)
    }

    async fn explain(&self, mut request: Explain) -> Result<RawDocumentBuf> {
        request.explained = match request.explained {
            Explained::Find(find) => Explained::Find(Find { namespace: self.outer(&find.namespace)?, ..find }),
            Explained::Aggregate(aggregate) => Explained::Aggregate(self.outer_aggregate(aggregate)?),
        };
        self.renamed(self.store.explain(request).await)
    }

    async fn create_indexes(&self, mut request: CreateIndexes) -> Result<IndexCounts> {
        request.namespace = self.outer(&request.namespace)?;
        self.renamed(self.store.create_indexes(request).await)
    }

    async fn drop_indexes(&self, mut request: DropIndexes) -> Result<u32> {
        request.namespace = self.outer(&request.namespace)?;
        self.renamed(self.store.drop_indexes(request).await)
    }

    async fn list_indexes(&self, namespace: &Namespace) -> Result<Vec<IndexInfo>> {
        self.renamed(self.store.list_indexes(&self.outer(namespace)?).await)
    }

    async fn create_collection(&self, namespace: &Namespace, options: CollectionOptions) -> Result<()> {
        self.renamed(self.store.create_collection(&self.outer(namespace)?, options).await)
    }

    async fn modify_collection(&self, mut request: ModifyCollection) -> Result<RawDocumentBuf> {
        request.namespace = self.outer(&request.namespace)?;
        self.renamed(self.store.modify_collection(request).await)
    }

    async fn rename_collection(&self, mut request: RenameCollection) -> Result<()> {
        (request.from, request.to) = (self.outer(&request.from)?, self.outer(&request.to)?);
        self.renamed(self.store.rename_collection(request).await)
    }

    async fn drop_collection(&self, namespace: &Namespace) -> Result<bool> {
        self.renamed(self.store.drop_collection(&self.outer(namespace)?).await)
    }

    async fn list_collections(&self, database: &str) -> Result<Vec<CollectionInfo>> {
        self.renamed(self.store.list_collections(&self.outer_database(database)).await)
    }

    async fn list_databases(&self) -> Result<Vec<String>> {
        let all = self.renamed(self.store.list_databases().await)?;
        Ok(all.iter().filter_map(|name| name.strip_prefix(&*self.prefix)).map(str::to_owned).collect())
    }

    async fn drop_database(&self, database: &str) -> Result<bool> {
        self.renamed(self.store.drop_database(&self.outer_database(database)).await)
    }

    async fn collection_stats(&self, namespace: &Namespace) -> Result<CollectionStats> {
        self.renamed(self.store.collection_stats(&self.outer(namespace)?).await)
    }

    async fn check_collection(&self, namespace: &Namespace) -> Result<CollectionCheck> {
        self.renamed(self.store.check_collection(&self.outer(namespace)?).await)
    }

    async fn flush(&self) -> Result<()> {
        self.renamed(self.store.flush().await)
    }
}
