//! A part of a store that others use, too: for a suite that wants an empty store on a server that is not.
//!
//! ```text
//! in the room     on the server
//! app.c           handfast_test_5f3a09c1_app.c
//! ```
//!
//! The room's databases are those whose names begin in one way. Whoever is in it sees no others, and reads their names without
//! that beginning: in lists, and in what errors say. Names of databases within pipelines and documents are left as they are.

use std::sync::Arc;

use async_trait::async_trait;
use bson::{RawBson, RawDocumentBuf};

use crate::*;

/// The databases of a store whose names begin in one way. See the module's documentation.
#[derive(Clone)]
pub struct Room {
    store: Arc<dyn DocumentStore>,
    prefix: Arc<str>,
}

impl Room {
    /// The databases whose names begin with this, which should be something that no other name begins with.
    pub fn new(store: Arc<dyn DocumentStore>, prefix: &str) -> Self {
        Room { store, prefix: Arc::from(prefix) }
    }

    /// Drops all its databases.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn clear(&self) -> Result<()> {
        for database in self.list_databases().await? {
            self.drop_database(&database).await?;
        }
        Ok(())
    }

    /// The name that a database of the room has in the store.
    pub fn outside(&self, database: &str) -> String {
        format!("{}{database}", self.prefix)
    }

    fn place(&self, namespace: &Namespace) -> Result<Namespace> {
        Namespace::new(self.outside(namespace.database()), namespace.collection())
    }

    fn placed_aggregate(&self, mut request: Aggregate) -> Result<Aggregate> {
        request.source = match request.source {
            AggregateSource::Collection(namespace) => AggregateSource::Collection(self.place(&namespace)?),
            AggregateSource::Database(database) => AggregateSource::Database(self.outside(&database)),
        };
        Ok(request)
    }

    /// What is said in the room of what failed in the store, which stays its cause.
    fn told<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| self.told_error(error))
    }

    fn told_error(&self, error: Error) -> Error {
        let text = error.message().replace(&*self.prefix, "");
        let mut told = Error::new(error.class(), error.applied(), error.code(), text);
        if let Some(details) = error.details() {
            told = told.with_details(details.clone());
        }
        told.with_source(error)
    }

    fn told_of_each(&self, errors: &mut [WriteError]) {
        for error in errors {
            error.error = self.told_error(error.error.clone());
        }
    }

    fn cursor(&self, opened: Result<Box<dyn Cursor>>) -> Result<Box<dyn Cursor>> {
        Ok(Box::new(RoomCursor { cursor: self.told(opened)?, room: self.clone() }))
    }
}

struct RoomCursor {
    cursor: Box<dyn Cursor>,
    room: Room,
}

#[async_trait]
impl Cursor for RoomCursor {
    async fn next_page(&mut self, limit: BatchLimit) -> Result<Page> {
        self.room.told(self.cursor.next_page(limit).await)
    }
}

#[async_trait]
impl DocumentStore for Room {
    fn name(&self) -> &'static str {
        self.store.name()
    }

    async fn insert(&self, mut request: Insert) -> Result<InsertOutcome> {
        request.namespace = self.place(&request.namespace)?;
        let mut outcome = self.told(self.store.insert(request).await)?;
        self.told_of_each(&mut outcome.errors);
        Ok(outcome)
    }

    async fn find(&self, mut request: Find) -> Result<Box<dyn Cursor>> {
        request.namespace = self.place(&request.namespace)?;
        self.cursor(self.store.find(request).await)
    }

    async fn update(&self, mut request: Update) -> Result<UpdateOutcome> {
        request.namespace = self.place(&request.namespace)?;
        let mut outcome = self.told(self.store.update(request).await)?;
        self.told_of_each(&mut outcome.errors);
        Ok(outcome)
    }

    async fn find_and_modify(&self, mut request: FindAndModify) -> Result<FindAndModifyOutcome> {
        request.namespace = self.place(&request.namespace)?;
        self.told(self.store.find_and_modify(request).await)
    }

    async fn delete(&self, mut request: Delete) -> Result<DeleteOutcome> {
        request.namespace = self.place(&request.namespace)?;
        let mut outcome = self.told(self.store.delete(request).await)?;
        self.told_of_each(&mut outcome.errors);
        Ok(outcome)
    }

    async fn aggregate(&self, request: Aggregate) -> Result<Box<dyn Cursor>> {
        self.cursor(self.store.aggregate(self.placed_aggregate(request)?).await)
    }

    async fn count(&self, mut request: Count) -> Result<u64> {
        request.namespace = self.place(&request.namespace)?;
        self.told(self.store.count(request).await)
    }

    async fn distinct(&self, mut request: Distinct) -> Result<Vec<RawBson>> {
        request.namespace = self.place(&request.namespace)?;
        self.told(self.store.distinct(request).await)
    }

    async fn explain(&self, mut request: Explain) -> Result<RawDocumentBuf> {
        request.explained = match request.explained {
            Explained::Find(find) => Explained::Find(Find { namespace: self.place(&find.namespace)?, ..find }),
            Explained::Aggregate(aggregate) => Explained::Aggregate(self.placed_aggregate(aggregate)?),
        };
        self.told(self.store.explain(request).await)
    }

    async fn create_indexes(&self, mut request: CreateIndexes) -> Result<(u32, u32)> {
        request.namespace = self.place(&request.namespace)?;
        self.told(self.store.create_indexes(request).await)
    }

    async fn drop_indexes(&self, mut request: DropIndexes) -> Result<u32> {
        request.namespace = self.place(&request.namespace)?;
        self.told(self.store.drop_indexes(request).await)
    }

    async fn list_indexes(&self, namespace: &Namespace) -> Result<Vec<IndexInfo>> {
        self.told(self.store.list_indexes(&self.place(namespace)?).await)
    }

    async fn create_collection(&self, namespace: &Namespace, options: CollectionOptions) -> Result<()> {
        self.told(self.store.create_collection(&self.place(namespace)?, options).await)
    }

    async fn modify_collection(&self, mut request: ModifyCollection) -> Result<RawDocumentBuf> {
        request.namespace = self.place(&request.namespace)?;
        self.told(self.store.modify_collection(request).await)
    }

    async fn rename_collection(&self, mut request: RenameCollection) -> Result<()> {
        (request.from, request.to) = (self.place(&request.from)?, self.place(&request.to)?);
        self.told(self.store.rename_collection(request).await)
    }

    async fn drop_collection(&self, namespace: &Namespace) -> Result<bool> {
        self.told(self.store.drop_collection(&self.place(namespace)?).await)
    }

    async fn list_collections(&self, database: &str) -> Result<Vec<CollectionInfo>> {
        self.told(self.store.list_collections(&self.outside(database)).await)
    }

    async fn list_databases(&self) -> Result<Vec<String>> {
        let all = self.told(self.store.list_databases().await)?;
        Ok(all.iter().filter_map(|name| name.strip_prefix(&*self.prefix)).map(str::to_owned).collect())
    }

    async fn drop_database(&self, database: &str) -> Result<bool> {
        self.told(self.store.drop_database(&self.outside(database)).await)
    }

    async fn collection_stats(&self, namespace: &Namespace) -> Result<CollectionStats> {
        self.told(self.store.collection_stats(&self.place(namespace)?).await)
    }

    async fn check_collection(&self, namespace: &Namespace) -> Result<CollectionCheck> {
        self.told(self.store.check_collection(&self.place(namespace)?).await)
    }

    async fn flush(&self) -> Result<()> {
        self.told(self.store.flush().await)
    }
}
