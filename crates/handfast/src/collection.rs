//! Collections whose documents are values of a Rust type, through serde.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::Arc;

use bson::RawDocumentBuf;
use handfast_mql::Code;
use handfast_store::{
    BatchLimit, Cursor, DocumentStore, Error as StoreError, Find, FindAndModify, IndexSpec, Modification, Namespace,
    Result, ReturnDocument, StoreExt, UpdateOutcome, UpdateSpec, UpdateStatement,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The number of documents that a cursor reads ahead.
const READ_AHEAD: BatchLimit = BatchLimit { documents: 1000, bytes: 4 * 1024 * 1024 };

/// Opens collections of a store: of a database, an open transaction, or any other store.
pub trait Collections: DocumentStore + Clone {
    /// Returns a collection whose documents are values of type `T`.
    ///
    /// # Errors
    /// `InvalidNamespace` (73) for a name that is not valid.
    fn collection<T>(&self, database: &str, collection: &str) -> Result<Collection<T>> {
        let namespace = Namespace::new(database, collection)?;
        Ok(Collection { store: Arc::new(self.clone()), namespace, documents: PhantomData })
    }
}

impl<S: DocumentStore + Clone> Collections for S {}

/// A collection whose documents are values of type `T`. Filters and changes are documents of the query language.
///
/// Its methods return the errors of the store, such as `BadValue` (2) for a filter that is not valid, and `TypeMismatch` (14) for a
/// document that is no `T`.
#[derive(Clone)]
pub struct Collection<T> {
    store: Arc<dyn DocumentStore>,
    namespace: Namespace,
    documents: PhantomData<fn() -> T>,
}

impl<T> Collection<T> {
    /// Returns the name of the database and the collection.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Updates the first document that matches.
    ///
    /// # Errors
    /// `DuplicateKey` (11000) if a unique index refuses the change, and errors of the query language.
    pub async fn update_one(&self, filter: RawDocumentBuf, change: RawDocumentBuf) -> Result<UpdateOutcome> {
        self.store.update_one(&self.namespace, filter, change).await
    }

    /// Updates all documents that match, each atomically.
    ///
    /// # Errors
    /// Returns the errors of [`Collection::update_one`].
    pub async fn update_many(&self, filter: RawDocumentBuf, change: RawDocumentBuf) -> Result<UpdateOutcome> {
        self.store.update_many(&self.namespace, filter, change).await
    }

    /// Updates the first document that matches, or inserts one.
    ///
    /// # Errors
    /// Returns the errors of [`Collection::update_one`].
    pub async fn upsert_one(&self, filter: RawDocumentBuf, change: RawDocumentBuf) -> Result<UpdateOutcome> {
        self.store.upsert_one(&self.namespace, filter, change).await
    }

    /// Deletes the first document that matches. Returns whether there was one.
    pub async fn delete_one(&self, filter: RawDocumentBuf) -> Result<bool> {
        self.store.delete_one(&self.namespace, filter).await
    }

    /// Deletes all documents that match, each atomically. Returns their number.
    pub async fn delete_many(&self, filter: RawDocumentBuf) -> Result<u64> {
        self.store.delete_many(&self.namespace, filter).await
    }

    /// Returns the number of documents that match.
    pub async fn count(&self, filter: RawDocumentBuf) -> Result<u64> {
        self.store.count_matching(&self.namespace, filter).await
    }

    /// Creates an index.
    ///
    /// # Errors
    /// Returns the errors of [`DocumentStore::create_indexes`], such as another index of the same name.
    pub async fn create_index(&self, index: IndexSpec) -> Result<()> {
        self.store.create_index(&self.namespace, index).await
    }
}

impl<T: Serialize> Collection<T> {
    /// Inserts a document.
    ///
    /// # Errors
    /// `DuplicateKey` (11000) if the `_id` or a unique key exists, and an error for a document that no store can hold.
    pub async fn insert_one(&self, document: &T) -> Result<()> {
        self.store.insert_one(&self.namespace, written(document)?).await
    }

    /// Replaces the first document that matches. Returns whether there was one.
    ///
    /// # Errors
    /// Returns the errors of [`Collection::insert_one`], and `ImmutableField` (66) for another `_id`.
    pub async fn replace_one(&self, filter: RawDocumentBuf, document: &T) -> Result<bool> {
        let statement = UpdateStatement::one(filter, UpdateSpec::Document(written(document)?));
        let request = handfast_store::Update::new(self.namespace.clone(), vec![statement]);
        let outcome = self.store.update(request).await?;
        match outcome.errors.into_iter().next() {
            Some(refused) => Err(refused.error),
            None => Ok(outcome.matched > 0),
        }
    }
}

impl<T: DeserializeOwned> Collection<T> {
    /// Returns the first document that matches.
    pub async fn find_one(&self, filter: RawDocumentBuf) -> Result<Option<T>> {
        let found = self.store.find_one(&self.namespace, filter).await?;
        found.map(|document| read(&document)).transpose()
    }

    /// Returns a cursor over all documents that match.
    pub async fn find(&self, filter: RawDocumentBuf) -> Result<Documents<T>> {
        self.find_with(Find::new(self.namespace.clone(), filter)).await
    }

    /// Returns a cursor over the results of a request with sort, limit and so on. The collection replaces the request's namespace.
    pub async fn find_with(&self, find: Find) -> Result<Documents<T>> {
        let find = Find { namespace: self.namespace.clone(), ..find };
        let cursor = self.store.find(find).await?;
        Ok(Documents { cursor, ready: VecDeque::new(), exhausted: false, documents: PhantomData })
    }

    /// Updates the first document that matches, and returns it after the update.
    ///
    /// # Errors
    /// Returns the errors of [`Collection::update_one`].
    pub async fn find_one_and_update(&self, filter: RawDocumentBuf, change: RawDocumentBuf) -> Result<Option<T>> {
        let modification = Modification::Update {
            update: UpdateSpec::Document(change),
            upsert: false,
            returns: ReturnDocument::After,
            array_filters: Vec::new(),
        };
        let request = FindAndModify::new(self.namespace.clone(), filter, modification);
        let found = self.store.find_and_modify(request).await?.value;
        found.map(|document| read(&document)).transpose()
    }
}

/// A cursor over the documents of a find.
pub struct Documents<T> {
    cursor: Box<dyn Cursor>,
    ready: VecDeque<RawDocumentBuf>,
    exhausted: bool,
    documents: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Documents<T> {
    /// Returns the next document, or `None` at the end.
    ///
    /// # Errors
    /// `TypeMismatch` (14) for a document that is no `T`, and errors of the store.
    pub async fn next(&mut self) -> Result<Option<T>> {
        while self.ready.is_empty() && !self.exhausted {
            let page = self.cursor.next_page(READ_AHEAD).await?;
            self.exhausted = page.exhausted;
            self.ready = page.documents.into();
        }
        self.ready.pop_front().map(|document| read(&document)).transpose()
    }

    /// Returns all remaining documents, for results that are known to be small.
    ///
    /// # Errors
    /// Returns the errors of [`Documents::next`].
    pub async fn all(mut self) -> Result<Vec<T>> {
        let mut all = Vec::new();
        while let Some(document) = self.next().await? {
            all.push(document);
        }
        Ok(all)
    }
}

fn written(document: &impl Serialize) -> Result<RawDocumentBuf> {
    bson::serialize_to_raw_document_buf(document).map_err(|error| {
        StoreError::command(Code::BadValue, format!("the value cannot be written as a document: {error}"))
    })
}

fn read<T: DeserializeOwned>(document: &RawDocumentBuf) -> Result<T> {
    bson::deserialize_from_slice(document.as_bytes()).map_err(|error| {
        let kind = std::any::type_name::<T>();
        StoreError::command(Code::TypeMismatch, format!("a stored document cannot be read as {kind}: {error}"))
    })
}
