//! Requests that read.

use std::future::IntoFuture;
use std::marker::PhantomData;
use std::sync::Arc;

use bson::{Bson, RawDocumentBuf};
use handfast_store::{
    Aggregate as AggregateRequest, Count as CountRequest, Distinct as DistinctRequest, DocumentStore,
    Find as FindRequest, Hint, Namespace, Result,
};
use serde::de::DeserializeOwned;

use super::options::setters;
use super::{BoxFuture, IntoDocument, Parts, Ready};
use crate::collection::document::into_documents;
use crate::collection::documents::Documents;

/// A find, whose result is a cursor over the documents that match.
#[must_use = "a request runs when it is awaited"]
pub struct Find<T> {
    parts: Parts,
    documents: PhantomData<fn() -> T>,
}

impl<T> Find<T> {
    pub(in crate::collection) fn new(
        store: Arc<dyn DocumentStore>,
        namespace: Namespace,
        filter: impl IntoDocument,
    ) -> Self {
        Find { parts: Parts::new(store, namespace).with_filter(filter), documents: PhantomData }
    }

    /// Returns the documents as values of another type, for a projection that leaves fields out.
    pub fn with_type<D>(self) -> Find<D> {
        Find { parts: self.parts, documents: PhantomData }
    }

    setters!(sort projection skip limit hint collation let_vars);
}

impl<T: DeserializeOwned + 'static> IntoFuture for Find<T> {
    type Output = Result<Documents<T>>;
    type IntoFuture = BoxFuture<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (store, request) = request(self.parts.ready().await?);
            Ok(Documents::new(store.find(request).await?))
        })
    }
}

/// A find of the first document that matches.
#[must_use = "a request runs when it is awaited"]
pub struct FindOne<T> {
    parts: Parts,
    documents: PhantomData<fn() -> T>,
}

impl<T> FindOne<T> {
    pub(in crate::collection) fn new(
        store: Arc<dyn DocumentStore>,
        namespace: Namespace,
        filter: impl IntoDocument,
    ) -> Self {
        FindOne { parts: Parts::new(store, namespace).with_filter(filter), documents: PhantomData }
    }

    /// Returns the document as a value of another type, for a projection that leaves fields out.
    pub fn with_type<D>(self) -> FindOne<D> {
        FindOne { parts: self.parts, documents: PhantomData }
    }

    setters!(sort projection skip hint collation let_vars);
}

impl<T: DeserializeOwned + 'static> IntoFuture for FindOne<T> {
    type Output = Result<Option<T>>;
    type IntoFuture = BoxFuture<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (store, request) = request(self.parts.ready().await?);
            Documents::new(store.find(FindRequest { limit: Some(1), ..request }).await?).next().await
        })
    }
}

/// A count of the documents that match.
#[must_use = "a request runs when it is awaited"]
pub struct Count {
    parts: Parts,
}

impl Count {
    pub(in crate::collection) fn new(
        store: Arc<dyn DocumentStore>,
        namespace: Namespace,
        filter: impl IntoDocument,
    ) -> Self {
        Count { parts: Parts::new(store, namespace).with_filter(filter) }
    }

    setters!(skip limit hint collation);
}

impl IntoFuture for Count {
    type Output = Result<u64>;
    type IntoFuture = BoxFuture<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let Ready { store, namespace, filter, options, .. } = self.parts.ready().await?;
            let (skip, limit) = (options.skip, options.limit);
            let request = CountRequest { skip, limit, hint: options.hint, ..CountRequest::new(namespace, filter) };
            store.count(CountRequest { collation: options.collation, ..request }).await
        })
    }
}

/// The distinct values of a field, in ascending order; an array counts as its elements.
#[must_use = "a request runs when it is awaited"]
pub struct Distinct {
    parts: Parts,
    key: String,
}

impl Distinct {
    pub(in crate::collection) fn new(
        store: Arc<dyn DocumentStore>,
        namespace: Namespace,
        key: String,
        filter: impl IntoDocument,
    ) -> Self {
        Distinct { parts: Parts::new(store, namespace).with_filter(filter), key }
    }

    setters!(hint collation);
}

impl IntoFuture for Distinct {
    type Output = Result<Vec<Bson>>;
    type IntoFuture = BoxFuture<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let Ready { store, namespace, filter, options, .. } = self.parts.ready().await?;
            let (hint, collation) = (options.hint, options.collation);
            let values = store.distinct(DistinctRequest { namespace, key: self.key, filter, hint, collation }).await?;
            values.into_iter().map(|value| Ok(value.try_into().map_err(handfast_mql::Error::from)?)).collect()
        })
    }
}

/// An aggregation, whose result is a cursor over the documents of its last stage.
#[must_use = "a request runs when it is awaited"]
pub struct Aggregate<T> {
    parts: Parts,
    pipeline: Vec<RawDocumentBuf>,
    documents: PhantomData<fn() -> T>,
}

impl<T> Aggregate<T> {
    pub(in crate::collection) fn new<D: IntoDocument>(
        store: Arc<dyn DocumentStore>,
        namespace: Namespace,
        pipeline: impl IntoIterator<Item = D>,
    ) -> Self {
        let mut parts = Parts::new(store, namespace);
        let pipeline = parts.part(into_documents(pipeline)).unwrap_or_default();
        Aggregate { parts, pipeline, documents: PhantomData }
    }

    /// Returns the documents as values of a type.
    pub fn with_type<D>(self) -> Aggregate<D> {
        Aggregate { parts: self.parts, pipeline: self.pipeline, documents: PhantomData }
    }

    setters!(hint collation let_vars);
}

impl<T: DeserializeOwned + 'static> IntoFuture for Aggregate<T> {
    type Output = Result<Documents<T>>;
    type IntoFuture = BoxFuture<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let Ready { store, namespace, options, variables, .. } = self.parts.ready().await?;
            let request = AggregateRequest::new(namespace, self.pipeline);
            let cursor = store.aggregate(AggregateRequest { hint: options.hint, variables, ..request }).await?;
            Ok(Documents::new(cursor))
        })
    }
}

fn request(ready: Ready) -> (Arc<dyn DocumentStore>, FindRequest) {
    let Ready { store, namespace, filter, options, variables } = ready;
    let request = FindRequest {
        sort: options.sort,
        projection: options.projection,
        skip: options.skip,
        limit: options.limit,
        hint: options.hint,
        variables,
        ..FindRequest::new(namespace, filter)
    };
    (store, request)
}
