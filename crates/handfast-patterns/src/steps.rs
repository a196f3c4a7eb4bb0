//! The steps that patterns are made of: operations on one document that are safe to repeat.
//!
//! A pattern writes each step so that doing it again changes nothing more: its filter carries the state that it expects,
//! or the change is one that can be made twice. So a step whose answer got lost is sent once more, and only once: if the
//! second attempt fails as well it is no hiccup, and each further one would wait for the full server selection again
//! (seed 4; spec: resilience).
//!
//! What a second attempt answers may differ from what the first one would have: the first was perhaps carried out, and
//! the second matches nothing. Who asks therefore never takes "nothing matched" for "it was not done", but reads.

use std::future::Future;
use std::sync::Arc;

use bson::{Document, RawDocumentBuf};
use handfast_mql::Code;
use handfast_store::{
    Aggregate, BatchLimit, Cursor, DocumentStore, Error as StoreError, ErrorClass, Find, IndexSpec, Namespace,
    Result as StoreResult, StoreExt, UpdateOutcome,
};

use crate::{Error, Result};

/// A collection of a store, for steps.
#[derive(Clone)]
pub(crate) struct Steps {
    store: Arc<dyn DocumentStore>,
    namespace: Namespace,
}

impl Steps {
    pub(crate) fn new(store: Arc<dyn DocumentStore>, namespace: Namespace) -> Self {
        Steps { store, namespace }
    }

    /// The same steps on another store: a transaction, say.
    pub(crate) fn on(&self, store: Arc<dyn DocumentStore>) -> Self {
        Steps { store, namespace: self.namespace.clone() }
    }

    pub(crate) async fn create_indexes(&self, indexes: impl IntoIterator<Item = IndexSpec>) -> Result<()> {
        let indexes: Vec<_> = indexes.into_iter().collect();
        let create = || {
            let request = handfast_store::CreateIndexes { namespace: self.namespace.clone(), indexes: indexes.clone() };
            self.store.create_indexes(request)
        };
        Ok(again(create).await.map(|_| ())?)
    }

    pub(crate) async fn find_one(&self, filter: &Document) -> Result<Option<Document>> {
        let filter = raw(filter)?;
        let found = again(|| self.store.find_one(&self.namespace, filter.clone())).await?;
        found.as_ref().map(|document| self.read(document)).transpose()
    }

    /// The first documents that match, in this order, at most `limit`.
    pub(crate) async fn find(&self, filter: &Document, sort: &Document, limit: u32) -> Result<Vec<Document>> {
        let limit = Some(u64::from(limit));
        let find = Find { sort: raw(sort)?, limit, ..Find::new(self.namespace.clone(), raw(filter)?) };
        let found = again(|| self.store.find_all(find.clone())).await?;
        found.iter().map(|document| self.read(document)).collect()
    }

    /// What a pipeline gives, which the pipeline itself must keep small.
    pub(crate) async fn aggregate(&self, pipeline: &[Document]) -> Result<Vec<Document>> {
        let pipeline = pipeline.iter().map(raw).collect::<Result<Vec<_>>>()?;
        let run = || async {
            let cursor = self.store.aggregate(Aggregate::new(self.namespace.clone(), pipeline.clone())).await?;
            read_all(cursor).await
        };
        again(run).await?.iter().map(|document| self.read(document)).collect()
    }

    /// Changes the document that matches; says whether one did.
    pub(crate) async fn update_one(&self, filter: &Document, change: &Document) -> Result<bool> {
        let (filter, change) = (raw(filter)?, raw(change)?);
        let outcome = again(|| self.store.update_one(&self.namespace, filter.clone(), change.clone())).await?;
        Ok(outcome.matched > 0)
    }

    pub(crate) async fn upsert_one(&self, filter: &Document, change: &Document) -> Result<UpdateOutcome> {
        let (filter, change) = (raw(filter)?, raw(change)?);
        Ok(again(|| self.store.upsert_one(&self.namespace, filter.clone(), change.clone())).await?)
    }

    pub(crate) fn damaged(&self, document: &Document, what: impl std::fmt::Display) -> Error {
        let id = document.get("_id").map_or_else(|| "without _id".to_owned(), ToString::to_string);
        Error::Damaged { namespace: self.namespace.to_string(), id, what: what.to_string() }
    }

    fn read(&self, document: &RawDocumentBuf) -> Result<Document> {
        Document::try_from(&**document).map_err(|error| Error::Damaged {
            namespace: self.namespace.to_string(),
            id: "of unknown id".to_owned(),
            what: error.to_string(),
        })
    }
}

async fn read_all(mut cursor: Box<dyn Cursor>) -> StoreResult<Vec<RawDocumentBuf>> {
    let mut documents = Vec::new();
    loop {
        let page = cursor.next_page(BatchLimit::REPLY).await?;
        documents.extend(page.documents);
        if page.exhausted {
            return Ok(documents);
        }
    }
}

/// Runs a step, and once more if the network hiccuped.
pub(crate) async fn again<T, F: Future<Output = StoreResult<T>>>(step: impl Fn() -> F) -> StoreResult<T> {
    match step().await {
        Err(error) if error.class() == ErrorClass::TransientNetwork => {
            tracing::debug!(%error, "a step is sent once more");
            // The second answer may say that nothing was done while the first attempt did it; so may its failure.
            step().await.map_err(|second| match error.applied() {
                handfast_store::Applied::Maybe => second.in_doubt(),
                handfast_store::Applied::No => second,
            })
        }
        result => result,
    }
}

/// Whether an insert was refused because of the index whose first field this is.
pub(crate) fn is_duplicate_of(error: &StoreError, field: &str) -> bool {
    error.code() == Code::DuplicateKey
        && error
            .details()
            .and_then(|details| details.get_document("keyPattern").ok())
            .and_then(|pattern| pattern.iter().next()?.ok())
            .is_some_and(|(name, _)| name.as_str() == field)
}

pub(crate) fn raw(document: &Document) -> Result<RawDocumentBuf> {
    RawDocumentBuf::try_from(document)
        .map_err(|error| Error::invalid(format!("the value cannot be written as a document: {error}")))
}
