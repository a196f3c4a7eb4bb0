//! Collections whose documents are values of a Rust type, through serde.

pub mod action;
mod document;
mod documents;

pub use document::{IntoDocument, IntoUpdate};
pub use documents::Documents;

use std::marker::PhantomData;
use std::sync::Arc;

use bson::Document;
use handfast_store::{DocumentStore, IndexSpec, Namespace, Result, StoreExt};
use serde::Serialize;

use self::action::{
    Aggregate, Count, Delete, Distinct, Find, FindOne, FindOneAndDelete, FindOneAndUpdate, InsertMany, Update,
};
use self::document::{operators, replacement, written};

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
/// Most methods return a request, which runs when it is awaited; before, its methods set options, as those of MongoDB's driver do:
/// `accounts.find(doc! {}).sort(doc! { "balance": -1 }).limit(3).await?`.
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

    /// Returns the same collection with documents of another type.
    pub fn with_type<D>(&self) -> Collection<D> {
        Collection { store: Arc::clone(&self.store), namespace: self.namespace.clone(), documents: PhantomData }
    }

    /// Finds all documents that match: a cursor over them.
    pub fn find(&self, filter: impl IntoDocument) -> Find<T> {
        let (store, namespace) = self.place();
        Find::new(store, namespace, filter)
    }

    /// Finds the first document that matches.
    pub fn find_one(&self, filter: impl IntoDocument) -> FindOne<T> {
        let (store, namespace) = self.place();
        FindOne::new(store, namespace, filter)
    }

    /// Counts the documents that match.
    pub fn count_documents(&self, filter: impl IntoDocument) -> Count {
        let (store, namespace) = self.place();
        Count::new(store, namespace, filter)
    }

    /// Returns the distinct values of a field of the documents that match.
    pub fn distinct(&self, field: impl Into<String>, filter: impl IntoDocument) -> Distinct {
        let (store, namespace) = self.place();
        Distinct::new(store, namespace, field.into(), filter)
    }

    /// Runs the stages of a pipeline: a cursor over the documents of the last one.
    pub fn aggregate<D: IntoDocument>(&self, pipeline: impl IntoIterator<Item = D>) -> Aggregate<Document> {
        let (store, namespace) = self.place();
        Aggregate::new(store, namespace, pipeline)
    }

    /// Updates the first document that matches. If none matches, nothing is changed, and that is no error: see
    /// [`UpdateOutcome::matched`](handfast_store::UpdateOutcome::matched).
    pub fn update_one(&self, filter: impl IntoDocument, change: impl IntoUpdate) -> Update {
        let (store, namespace) = self.place();
        Update::new(store, namespace, filter, operators(change), false)
    }

    /// Updates all documents that match, each atomically. After an error, the documents before the one that failed stay changed.
    pub fn update_many(&self, filter: impl IntoDocument, change: impl IntoUpdate) -> Update {
        let (store, namespace) = self.place();
        Update::new(store, namespace, filter, operators(change), true)
    }

    /// Deletes the first document that matches. Returns the number of deleted documents, which is 0 or 1.
    pub fn delete_one(&self, filter: impl IntoDocument) -> Delete {
        let (store, namespace) = self.place();
        Delete::new(store, namespace, filter, false)
    }

    /// Deletes all documents that match, each atomically. Returns their number.
    pub fn delete_many(&self, filter: impl IntoDocument) -> Delete {
        let (store, namespace) = self.place();
        Delete::new(store, namespace, filter, true)
    }

    /// Updates the first document that matches, and returns it as it was before, or after the update if
    /// [`return_document`](FindOneAndUpdate::return_document) says so.
    pub fn find_one_and_update(&self, filter: impl IntoDocument, change: impl IntoUpdate) -> FindOneAndUpdate<T> {
        let (store, namespace) = self.place();
        FindOneAndUpdate::new(store, namespace, filter, operators(change))
    }

    /// Deletes the first document that matches, and returns it.
    pub fn find_one_and_delete(&self, filter: impl IntoDocument) -> FindOneAndDelete<T> {
        let (store, namespace) = self.place();
        FindOneAndDelete::new(store, namespace, filter)
    }

    /// Creates an index.
    ///
    /// # Errors
    /// Returns the errors of [`DocumentStore::create_indexes`], such as another index of the same name.
    pub async fn create_index(&self, index: IndexSpec) -> Result<()> {
        self.store.create_index(&self.namespace, index).await
    }

    fn place(&self) -> (Arc<dyn DocumentStore>, Namespace) {
        (Arc::clone(&self.store), self.namespace.clone())
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

    /// Inserts documents, each atomically. In a transaction they are inserted all or none, as all that it writes.
    pub fn insert_many<'d>(&self, documents: impl IntoIterator<Item = &'d T>) -> InsertMany
    where
        T: 'd,
    {
        let (store, namespace) = self.place();
        InsertMany::new(store, namespace, documents.into_iter().map(written).collect())
    }

    /// Replaces the first document that matches. A document keeps its `_id`.
    pub fn replace_one(&self, filter: impl IntoDocument, document: &T) -> Update {
        let (store, namespace) = self.place();
        Update::new(store, namespace, filter, replacement(document), false)
    }

    /// Replaces the first document that matches, and returns it as it was before, or after the replacement if
    /// [`return_document`](FindOneAndUpdate::return_document) says so.
    pub fn find_one_and_replace(&self, filter: impl IntoDocument, document: &T) -> FindOneAndUpdate<T> {
        let (store, namespace) = self.place();
        FindOneAndUpdate::new(store, namespace, filter, replacement(document))
    }
}
