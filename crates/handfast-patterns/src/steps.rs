//! The steps that patterns are made of: operations on one document that are safe to repeat.
//!
//! Repeating a step changes nothing more: its filter has the state that it expects, or the change has the same result
//! if it is made twice. So a step whose answer was lost is sent a second time, but not a third time: if both attempts
//! fail the error is not transient, and each further one would wait for the full server selection again (seed 4; spec:
//! resilience).
//!
//! The steps repeat requests themselves, on every store: a pattern knows that its guarded `$inc` may be sent again,
//! which a store cannot know. So a [`Resilient`](handfast_store::decorator::Resilient) store sends the request of a
//! step once (decision 18).
//!
//! The answer to a second attempt may differ from that to the first one: if the first was carried out the second
//! matches nothing. So "nothing matched" does not mean that the step was not made, and the caller reads the document.

#[cfg(test)]
mod tests;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bson::{Document, RawDocumentBuf, doc};
use handfast_mql::Code;
use handfast_store::decorator::resilient::repeated_by_caller;
use handfast_store::{
    Aggregate, BatchLimit, Cursor, DocumentStore, Error as StoreError, ErrorClass, Find, FindAndModify, IndexSpec,
    Insert, Modification, Namespace, Result as StoreResult, ReturnDocument, StoreExt, UpdateOutcome, UpdateSpec,
};

use crate::{Error, Result};

/// Limit on the documents of one insert, which a store takes at once if they are not large.
const INSERT_MAX: usize = 500;

/// The codes of a store that does not support an index, or has it in another form.
const LACKING: [Code; 3] = [Code::CommandNotSupported, Code::IndexOptionsConflict, Code::IndexKeySpecsConflict];

/// The steps on a collection of a store.
#[derive(Clone)]
pub(crate) struct Steps {
    store: Arc<dyn DocumentStore>,
    namespace: Namespace,
}

/// The filter and the update of a step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Request {
    pub(crate) filter: Document,
    pub(crate) update: Document,
}

/// The result of an insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Added {
    /// The document was inserted.
    New,
    /// A document with its `_id` exists: an earlier attempt whose answer was lost has inserted it, or it is another
    /// one.
    There,
}

impl Steps {
    pub(crate) fn new(store: Arc<dyn DocumentStore>, namespace: Namespace) -> Self {
        Steps { store, namespace }
    }

    /// Returns the same steps on another store, such as a transaction.
    pub(crate) fn on(&self, store: Arc<dyn DocumentStore>) -> Self {
        Steps { store, namespace: self.namespace.clone() }
    }

    /// Returns steps on another collection of the same store.
    pub(crate) fn at(&self, namespace: Namespace) -> Self {
        Steps { store: Arc::clone(&self.store), namespace }
    }

    pub(crate) fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Creates indexes. If a store supports no sparse or partial indexes, an index that only makes searches fast holds
    /// all documents instead.
    pub(crate) async fn create_indexes(&self, indexes: impl IntoIterator<Item = IndexSpec>) -> Result<()> {
        let indexes: Vec<_> = indexes.into_iter().collect();
        let error = match self.create_indexes_as_they_are(&indexes).await {
            // Indexes that were made in the other form before are in the way now.
            Err(Error::Store(error)) if LACKING.contains(&error.code()) => error,
            created => return created,
        };
        tracing::debug!(%error, "indexes are made without what the store lacks");
        let whole = indexes.into_iter().map(|index| match index.unique {
            true => index,
            false => IndexSpec { sparse: false, partial_filter: None, ..index },
        });
        let whole: Vec<_> = whole.collect();
        match self.create_indexes_as_they_are(&whole).await {
            // A unique index on all documents would have another meaning.
            Err(Error::Store(again)) if again.code() == Code::CommandNotSupported => Err(again.into()),
            Err(Error::Store(again)) if LACKING.contains(&again.code()) => Err(error.into()),
            created => created,
        }
    }

    /// Returns whether a unique index on these fields exists. The numbers of its key may be of any type, as shells
    /// write several.
    pub(crate) async fn has_unique_index(&self, key: &Document) -> Result<bool> {
        let indexes = again(|| self.store.list_indexes(&self.namespace)).await?;
        let is_it = |spec: &IndexSpec| {
            let fields = spec.key.iter().flatten().map(|(name, _)| name.to_string());
            spec.unique && spec.partial_filter.is_none() && fields.eq(key.keys().cloned())
        };
        Ok(indexes.iter().any(|index| is_it(&index.spec)))
    }

    async fn create_indexes_as_they_are(&self, indexes: &[IndexSpec]) -> Result<()> {
        let create = || {
            let request =
                handfast_store::CreateIndexes { namespace: self.namespace.clone(), indexes: indexes.to_vec() };
            self.store.create_indexes(request)
        };
        Ok(again(create).await.map(|_| ())?)
    }

    /// Checks the name that was given for a field: if documents have a fitting value under the default name, and none
    /// has one under the given name, the given name is misspelt.
    pub(crate) async fn check_given_name(&self, default: &str, given: &str, fits: &Document) -> Result<()> {
        let there = async |name: &str| self.find_one(&doc! { name: fits.clone() }).await;
        if default != given && there(default).await?.is_some() && there(given).await?.is_none() {
            return Err(Error::invalid(format!(
                "accounts of {} have the field {default}, and none has {given:?}, which was given for it",
                self.namespace
            )));
        }
        Ok(())
    }

    /// Inserts a document that has an `_id`.
    pub(crate) async fn insert(&self, document: &Document) -> Result<Added> {
        let document = raw(document)?;
        match again(|| self.store.insert_one(&self.namespace, document.clone())).await {
            Ok(()) => Ok(Added::New),
            Err(error) if is_duplicate_of(&error, "_id") => Ok(Added::There),
            Err(error) => Err(error.into()),
        }
    }

    /// Inserts all of these documents that unique indexes let in; each must have an `_id`. Returns the positions of
    /// the others, which an attempt whose answer was lost may have inserted.
    pub(crate) async fn insert_all(&self, documents: &[Document]) -> Result<Vec<usize>> {
        let mut taken = Vec::new();
        for (first, documents) in (0..).step_by(INSERT_MAX).zip(documents.chunks(INSERT_MAX)) {
            let documents = documents.iter().map(raw).collect::<Result<Vec<_>>>()?;
            let insert = Insert { ordered: false, ..Insert::new(self.namespace.clone(), documents) };
            let attempt = || async {
                let refused = self.store.insert(insert.clone()).await?.errors;
                match refused.iter().find(|refused| refused.error.code() != Code::DuplicateKey) {
                    // The other documents of the request may have been inserted.
                    Some(refused) => Err(refused.error.clone().in_doubt()),
                    None => Ok(refused),
                }
            };
            taken.extend(again(attempt).await?.into_iter().map(|refused| first + refused.index));
        }
        Ok(taken)
    }

    pub(crate) async fn find_one(&self, filter: &Document) -> Result<Option<Document>> {
        let filter = raw(filter)?;
        let found = again(|| self.store.find_one(&self.namespace, filter.clone())).await?;
        found.as_ref().map(|document| self.read(document)).transpose()
    }

    /// Returns the first documents that match, in this order, at most `limit`.
    pub(crate) async fn find(&self, filter: &Document, sort: &Document, limit: u32) -> Result<Vec<Document>> {
        self.find_after(0, filter, sort, limit).await
    }

    /// Returns the documents that match one of these filters, which exclude each other, one at a time: those of the
    /// first filter first, each group in this order, which an index must have. It reads `page` documents at once.
    /// Returns whether strings are not compared by their bytes in the collection.
    pub(crate) async fn has_default_collation(&self) -> Result<bool> {
        Ok(again(|| self.store.collection_options(&self.namespace)).await?.collation.is_some())
    }

    pub(crate) fn each_of(&self, filters: impl IntoIterator<Item = Document>, sort: Document, page: u32) -> Each<'_> {
        let filters: Vec<_> = filters.into_iter().collect();
        Each { steps: self, filters: filters.into_iter(), sort, page, pages: None, found: Vec::new().into_iter() }
    }

    pub(crate) async fn count_any(&self, filters: &[Document]) -> Result<u64> {
        let mut count = 0;
        for filter in filters {
            count += self.count(filter).await?;
        }
        Ok(count)
    }

    /// Returns documents as [`Steps::find`] does, without the first `skip` ones.
    pub(crate) async fn find_after(
        &self,
        skip: u64,
        filter: &Document,
        sort: &Document,
        limit: u32,
    ) -> Result<Vec<Document>> {
        let limit = Some(u64::from(limit));
        let find = Find { sort: raw(sort)?, skip, limit, ..Find::new(self.namespace.clone(), raw(filter)?) };
        let found = again(|| self.store.find_all(find.clone())).await?;
        found.iter().map(|document| self.read(document)).collect()
    }

    /// Returns all documents that match, a page at a time.
    pub(crate) async fn pages(&self, filter: &Document, documents: u32) -> Result<Pages<'_>> {
        self.pages_in_order(filter, &Document::new(), documents).await
    }

    /// Returns all documents that match, a page at a time, in this order, which an index must have if there may be
    /// many.
    pub(crate) async fn pages_in_order(&self, filter: &Document, sort: &Document, documents: u32) -> Result<Pages<'_>> {
        let find = Find { sort: raw(sort)?, ..Find::new(self.namespace.clone(), raw(filter)?) };
        let cursor = again(|| self.store.find(find.clone())).await?;
        Ok(self.paged(cursor, documents))
    }

    /// Returns the documents of a pipeline, which must bound their number itself.
    pub(crate) async fn aggregate(&self, pipeline: &[Document]) -> Result<Vec<Document>> {
        let pipeline = pipeline.iter().map(raw).collect::<Result<Vec<_>>>()?;
        let run = || self.store.aggregate_all(Aggregate::new(self.namespace.clone(), pipeline.clone()));
        again(run).await?.iter().map(|document| self.read(document)).collect()
    }

    /// Returns the documents of a pipeline, a page at a time.
    pub(crate) async fn aggregate_pages(&self, pipeline: &[Document], documents: u32) -> Result<Pages<'_>> {
        let pipeline = pipeline.iter().map(raw).collect::<Result<Vec<_>>>()?;
        let open = || self.store.aggregate(Aggregate::new(self.namespace.clone(), pipeline.clone()));
        Ok(self.paged(again(open).await?, documents))
    }

    fn paged(&self, cursor: Box<dyn Cursor>, documents: u32) -> Pages<'_> {
        let documents = usize::try_from(documents).unwrap_or(usize::MAX).max(1);
        Pages { steps: self, cursor, limit: BatchLimit { documents, ..BatchLimit::REPLY } }
    }

    /// Changes the document that matches; returns whether one did.
    pub(crate) async fn update_one(&self, filter: &Document, change: &Document) -> Result<bool> {
        let (filter, change) = (raw(filter)?, raw(change)?);
        let outcome = again(|| self.store.update_one(&self.namespace, filter.clone(), change.clone())).await?;
        Ok(outcome.matched > 0)
    }

    /// Changes all documents that match, one after the other; returns how many did.
    pub(crate) async fn update_many(&self, filter: &Document, change: &Document) -> Result<u64> {
        let (filter, change) = (raw(filter)?, raw(change)?);
        let outcome = again(|| self.store.update_many(&self.namespace, filter.clone(), change.clone())).await?;
        Ok(outcome.matched)
    }

    pub(crate) async fn upsert_one(&self, filter: &Document, change: &Document) -> Result<UpdateOutcome> {
        let (filter, change) = (raw(filter)?, raw(change)?);
        Ok(again(|| self.store.upsert_one(&self.namespace, filter.clone(), change.clone())).await?)
    }

    /// Changes the document that matches, and returns its new state. The change must have the same result if it is
    /// made twice, or make the filter match nothing any more.
    pub(crate) async fn find_and_update(&self, filter: &Document, change: &Document) -> Result<Option<Document>> {
        let request = self.find_and_update_request(filter, change)?;
        let outcome = again(|| self.store.find_and_modify(request.clone())).await?;
        outcome.value.as_ref().map(|document| self.read(document)).transpose()
    }

    /// Changes the first document that matches, and returns its new state. `ours` is a filter for a document that an
    /// earlier attempt has changed, which is looked for before another document is changed.
    pub(crate) async fn find_first_and_update(
        &self,
        filter: &Document,
        sort: &Document,
        change: &Document,
        ours: &Document,
    ) -> Result<Option<Document>> {
        let request = FindAndModify { sort: raw(sort)?, ..self.find_and_update_request(filter, change)? };
        let (ours, first) = (raw(ours)?, AtomicBool::new(true));
        // The second attempt of a step is a new request.
        let attempt = || async {
            if !first.swap(false, Ordering::Relaxed)
                && let Some(found) = self.store.find_one(&self.namespace, ours.clone()).await?
            {
                return Ok(Some(found));
            }
            Ok(self.store.find_and_modify(request.clone()).await?.value)
        };
        again(attempt).await?.as_ref().map(|document| self.read(document)).transpose()
    }

    fn find_and_update_request(&self, filter: &Document, change: &Document) -> Result<FindAndModify> {
        let modification = Modification::Update {
            update: UpdateSpec::Document(raw(change)?),
            upsert: false,
            returns: ReturnDocument::After,
            array_filters: Vec::new(),
        };
        Ok(FindAndModify::new(self.namespace.clone(), raw(filter)?, modification))
    }

    pub(crate) async fn count(&self, filter: &Document) -> Result<u64> {
        let filter = raw(filter)?;
        Ok(again(|| self.store.count_matching(&self.namespace, filter.clone())).await?)
    }

    /// Deletes the document that matches; returns whether one did.
    pub(crate) async fn delete_one(&self, filter: &Document) -> Result<bool> {
        let filter = raw(filter)?;
        Ok(again(|| self.store.delete_one(&self.namespace, filter.clone())).await?)
    }

    /// Deletes all documents that match, one after the other; returns how many did.
    pub(crate) async fn delete_many(&self, filter: &Document) -> Result<u64> {
        let filter = raw(filter)?;
        Ok(again(|| self.store.delete_many(&self.namespace, filter.clone())).await?)
    }

    pub(crate) fn damaged(&self, document: &Document, what: impl std::fmt::Display) -> Error {
        damaged(&self.namespace, document, what)
    }

    fn read(&self, document: &RawDocumentBuf) -> Result<Document> {
        Document::try_from(&**document).map_err(|error| Error::Damaged {
            namespace: self.namespace.to_string(),
            id: "of unknown id".to_owned(),
            what: error.to_string(),
        })
    }
}

/// Returns the error for a document that is not what its collection has.
pub(crate) fn damaged(namespace: &Namespace, document: &Document, what: impl std::fmt::Display) -> Error {
    let id = document.get("_id").map_or_else(|| "without _id".to_owned(), ToString::to_string);
    Error::Damaged { namespace: namespace.to_string(), id, what: what.to_string() }
}

/// The pages of a find.
pub(crate) struct Pages<'a> {
    steps: &'a Steps,
    cursor: Box<dyn Cursor>,
    limit: BatchLimit,
}

impl Pages<'_> {
    /// Returns the next page, which is not empty; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<Document>>> {
        loop {
            let page = self.cursor.next_page(self.limit).await?;
            if !page.documents.is_empty() {
                return page
                    .documents
                    .iter()
                    .map(|document| self.steps.read(document))
                    .collect::<Result<_>>()
                    .map(Some);
            }
            if page.exhausted {
                return Ok(None);
            }
        }
    }
}

/// The documents of [`Steps::each_of`].
pub(crate) struct Each<'a> {
    steps: &'a Steps,
    filters: std::vec::IntoIter<Document>,
    sort: Document,
    page: u32,
    pages: Option<Pages<'a>>,
    found: std::vec::IntoIter<Document>,
}

impl Each<'_> {
    /// Returns the next document; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Document>> {
        loop {
            if let Some(document) = self.found.next() {
                return Ok(Some(document));
            }
            if let Some(pages) = &mut self.pages
                && let Some(found) = pages.next().await?
            {
                self.found = found.into_iter();
                continue;
            }
            let Some(filter) = self.filters.next() else { return Ok(None) };
            self.pages = Some(self.steps.pages_in_order(&filter, &self.sort, self.page).await?);
        }
    }
}

/// Runs a step, and runs it a second time after a transient failure of the network.
pub(crate) async fn again<T, F: Future<Output = StoreResult<T>>>(step: impl Fn() -> F) -> StoreResult<T> {
    match repeated_by_caller(step()).await {
        Err(error) if error.class() == ErrorClass::TransientNetwork => {
            tracing::debug!(%error, "a step is sent once more");
            // A second attempt that reports no change, or fails, does not show that the first one changed nothing.
            repeated_by_caller(step()).await.map_err(|second| match error.applied() {
                handfast_store::Applied::Maybe => second.in_doubt(),
                handfast_store::Applied::No => second,
            })
        }
        result => result,
    }
}

/// Returns whether an insert was refused because of the index whose first field this is.
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
