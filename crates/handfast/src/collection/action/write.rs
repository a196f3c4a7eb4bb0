//! Requests that change documents.

use std::future::IntoFuture;
use std::marker::PhantomData;
use std::sync::Arc;

use bson::RawDocumentBuf;
use handfast_store::{
    Delete as DeleteRequest, DeleteStatement, DocumentStore, FindAndModify, Hint, Modification, Namespace, Result,
    ReturnDocument, Update as UpdateRequest, UpdateOutcome, UpdateSpec, UpdateStatement, WriteError,
};
use serde::de::DeserializeOwned;

use super::options::setters;
use super::{BoxFuture, IntoDocument, Parts, Ready, after_changes};
use crate::collection::document::into_documents;
use crate::collection::documents::read;

/// An update or a replacement of the first document that matches, or an update of all that match, each atomically.
#[must_use = "a request runs when it is awaited"]
pub struct Update {
    parts: Parts,
    change: UpdateSpec,
    multi: bool,
}

/// A removal of documents, each atomically, whose result is their number.
#[must_use = "a request runs when it is awaited"]
pub struct Delete {
    parts: Parts,
    multi: bool,
}

/// An update or a replacement of the first document that matches, whose result is this document.
#[must_use = "a request runs when it is awaited"]
pub struct FindOneAndUpdate<T> {
    parts: Parts,
    change: UpdateSpec,
    documents: PhantomData<fn() -> T>,
}

/// A removal of the first document that matches, whose result is this document.
#[must_use = "a request runs when it is awaited"]
pub struct FindOneAndDelete<T> {
    parts: Parts,
    documents: PhantomData<fn() -> T>,
}

impl Update {
    pub(in crate::collection) fn new(
        store: Arc<dyn DocumentStore>,
        namespace: Namespace,
        filter: impl IntoDocument,
        change: Result<UpdateSpec>,
        multi: bool,
    ) -> Self {
        let mut parts = Parts::new(store, namespace).with_filter(filter);
        let change = parts.part(change).unwrap_or(UpdateSpec::Document(RawDocumentBuf::new()));
        Update { parts, change, multi }
    }

    setters!(upsert array_filters sort hint collation let_vars);
}

impl IntoFuture for Update {
    type Output = Result<UpdateOutcome>;
    type IntoFuture = BoxFuture<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let Ready { store, namespace, filter, options, variables } = self.parts.ready().await?;
            let statement = UpdateStatement {
                multi: self.multi,
                upsert: options.upsert,
                array_filters: options.array_filters,
                sort: options.sort,
                hint: options.hint,
                ..UpdateStatement::one(filter, self.change)
            };
            let request = UpdateRequest { variables, ..UpdateRequest::new(namespace, vec![statement]) };
            let mut outcome = store.update(request).await?;
            let any = outcome.modified > 0 || !outcome.upserted.is_empty();
            only(std::mem::take(&mut outcome.errors), any).map(|()| outcome)
        })
    }
}

impl Delete {
    pub(in crate::collection) fn new(
        store: Arc<dyn DocumentStore>,
        namespace: Namespace,
        filter: impl IntoDocument,
        multi: bool,
    ) -> Self {
        Delete { parts: Parts::new(store, namespace).with_filter(filter), multi }
    }

    setters!(hint collation let_vars);
}

impl IntoFuture for Delete {
    type Output = Result<u64>;
    type IntoFuture = BoxFuture<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let Ready { store, namespace, filter, options, variables } = self.parts.ready().await?;
            let statement = DeleteStatement { filter, multi: self.multi, hint: options.hint };
            let request = DeleteRequest { variables, ..DeleteRequest::new(namespace, vec![statement]) };
            let outcome = store.delete(request).await?;
            only(outcome.errors, outcome.deleted > 0).map(|()| outcome.deleted)
        })
    }
}

impl<T> FindOneAndUpdate<T> {
    pub(in crate::collection) fn new(
        store: Arc<dyn DocumentStore>,
        namespace: Namespace,
        filter: impl IntoDocument,
        change: Result<UpdateSpec>,
    ) -> Self {
        let mut parts = Parts::new(store, namespace).with_filter(filter);
        let change = parts.part(change).unwrap_or(UpdateSpec::Document(RawDocumentBuf::new()));
        FindOneAndUpdate { parts, change, documents: PhantomData }
    }

    /// Sets whether the document is returned as it was before the change, which is the default, or as it is after it.
    pub fn return_document(mut self, returns: ReturnDocument) -> Self {
        self.parts.options.returns = returns;
        self
    }

    /// Returns the document as a value of another type, for a projection that leaves fields out.
    pub fn with_type<D>(self) -> FindOneAndUpdate<D> {
        FindOneAndUpdate { parts: self.parts, change: self.change, documents: PhantomData }
    }

    setters!(sort projection upsert array_filters hint collation let_vars);
}

impl<T: DeserializeOwned + 'static> IntoFuture for FindOneAndUpdate<T> {
    type Output = Result<Option<T>>;
    type IntoFuture = BoxFuture<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let mut ready = self.parts.ready().await?;
            let modification = Modification::Update {
                update: self.change,
                upsert: ready.options.upsert,
                returns: ready.options.returns,
                array_filters: std::mem::take(&mut ready.options.array_filters),
            };
            modified(ready, modification).await
        })
    }
}

impl<T> FindOneAndDelete<T> {
    pub(in crate::collection) fn new(
        store: Arc<dyn DocumentStore>,
        namespace: Namespace,
        filter: impl IntoDocument,
    ) -> Self {
        FindOneAndDelete { parts: Parts::new(store, namespace).with_filter(filter), documents: PhantomData }
    }

    /// Returns the document as a value of another type, for a projection that leaves fields out.
    pub fn with_type<D>(self) -> FindOneAndDelete<D> {
        FindOneAndDelete { parts: self.parts, documents: PhantomData }
    }

    setters!(sort projection hint collation let_vars);
}

impl<T: DeserializeOwned + 'static> IntoFuture for FindOneAndDelete<T> {
    type Output = Result<Option<T>>;
    type IntoFuture = BoxFuture<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { modified(self.parts.ready().await?, Modification::Remove).await })
    }
}

async fn modified<T: DeserializeOwned>(ready: Ready, modification: Modification) -> Result<Option<T>> {
    let Ready { store, namespace, filter, options, variables } = ready;
    let request = FindAndModify {
        sort: options.sort,
        projection: options.projection,
        hint: options.hint,
        variables,
        ..FindAndModify::new(namespace, filter, modification)
    };
    let found = store.find_and_modify(request).await?.value;
    found.map(|document| read(&document)).transpose()
}

/// Returns the error of the only statement, if it failed. `any` says whether it had changed documents before.
fn only(errors: Vec<WriteError>, any: bool) -> Result<()> {
    match errors.into_iter().next() {
        None => Ok(()),
        Some(WriteError { error, .. }) if any => Err(after_changes(error)),
        Some(WriteError { error, .. }) => Err(error),
    }
}
