//! The requests that read one snapshot: find, count, distinct.

use std::sync::Arc;

use async_trait::async_trait;
use bson::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use handfast_mql::Code;
use handfast_mql::collation::with_variable;
use handfast_mql::context::StopOnDrop;
use handfast_mql::expression::may_take_long;
use handfast_store::distinct::DistinctValues;
use handfast_store::page::IteratorCursor;
use handfast_store::selection::{BackendGuarantees, Documents, Selection};
use handfast_store::view::ViewCatalog as _;
use handfast_store::{
    BatchLimit, Count, Cursor, Distinct, Error as StoreError, Find, Namespace, OperationStatistics, Page, PlanSummary,
    Result as StoreResult, Sources, blocking, default_collation,
};

use super::candidates::{Candidates, ExaminedCounts, RequestedMetadata, Source};
use super::plan::{self, Plan};
use super::scan::{Access, Reader};
use crate::catalog::Collection;
use crate::committer::Snapshot;
use crate::format::{Verify, document_key};
use crate::keys;

/// Documents named by `_id` that are read without another thread.
const INLINE_POINTS_MAX: usize = 16;

/// Carries out the requests that read one snapshot.
#[derive(Clone)]
pub(crate) struct SnapshotReader {
    pub(crate) snapshot: Snapshot,
    pub(crate) sources: Sources,
    pub(crate) verify: Verify,
}

/// A find with its plan.
pub(crate) struct PreparedFind {
    pub(crate) selection: Selection,
    pub(crate) collection: Option<Arc<Collection>>,
    pub(crate) plan: Plan,
}

impl PreparedFind {
    /// Interrupts scan and evaluation when the request is dropped.
    pub(crate) fn stop_on_drop(&self) -> StopOnDrop {
        self.selection.context().interrupt.stop_on_drop()
    }
}

impl SnapshotReader {
    /// Compiles a find and chooses its plan.
    pub(crate) fn prepare(&self, request: &Find) -> StoreResult<PreparedFind> {
        let selection = Selection::compile(request, &self.sources)?;
        let collection = self.snapshot.catalog().get(&request.namespace).cloned();
        let plan = match &collection {
            Some(collection) => {
                plan::choose(collection, selection.filter(), selection.context(), selection.sort(), request)?
            }
            None => Plan::nothing(),
        };
        Ok(PreparedFind { selection, collection, plan })
    }

    pub(crate) fn get(&self, namespace: &Namespace, id: RawBsonRef<'_>) -> StoreResult<Option<RawDocumentBuf>> {
        let Some(collection) = self.snapshot.catalog().get(namespace) else { return Ok(None) };
        let Some(key) = document_key(collection.id, &keys::of_id(id)) else { return Ok(None) };
        let reader = Reader { view: self.snapshot.view()?, verify: self.verify };
        let stored = reader.get(namespace, &key)?;
        Ok(stored.map(|stored| stored.document().map(RawDocument::to_owned)).transpose()?)
    }

    /// Returns the default collation of a collection, if it has one.
    pub(crate) fn default_collation(&self, namespace: &Namespace) -> Option<&RawDocumentBuf> {
        default_collation::of(self.snapshot.catalog().options(namespace))
    }

    /// Opens a cursor over the documents that match.
    pub(crate) fn find(self, request: &Find) -> StoreResult<Box<dyn Cursor>> {
        if let Some(request) = default_collation::of_find(request, self.default_collation(&request.namespace)) {
            return Ok(default_collation::cursor(self.find(&request)?));
        }
        if let Some(id) = request.id_alone() {
            let document = self.get(&request.namespace, id)?;
            OperationStatistics::add_plan(PlanSummary::IdHack);
            OperationStatistics::add_examined(document.is_some().into(), document.is_some().into());
            return Ok(Box::new(IteratorCursor::new(document.map(Ok).into_iter())));
        }
        let prepared = self.prepare(request)?;
        if prepared.collection.is_none() {
            return Ok(Box::new(IteratorCursor::new(std::iter::empty())));
        }
        let stop = prepared.stop_on_drop();
        let few = matches!(&prepared.plan.access, Access::Points(keys) if keys.len() <= INLINE_POINTS_MAX);
        let inline = few && !may_take_long(&request.filter) && !may_take_long(&request.projection);
        let documents = self.documents(request, prepared, Arc::default())?;
        Ok(Box::new(FindCursor { state: State::Ready(Box::new(IteratorCursor::new(documents))), inline, _stop: stop }))
    }

    /// Returns the documents of a find, as an iterator that reads from the disk.
    pub(crate) fn documents(
        self,
        request: &Find,
        prepared: PreparedFind,
        examined: Arc<ExaminedCounts>,
    ) -> StoreResult<Documents<Candidates>> {
        let PreparedFind { selection, collection, plan } = prepared;
        let collection = collection.ok_or_else(|| crate::Error::Engine("there is no such collection".to_owned()))?;
        let expected = self.snapshot.catalog().counts(collection.id).documents;
        let metadata = RequestedMetadata::of(&plan, request);
        let source = Source::Snapshot(self.snapshot);
        let candidates = Candidates::new(source, self.verify, collection, plan.access, Some(expected))
            .with_metadata(metadata)
            .counting(examined)
            .stopped_by(selection.context().interrupt.clone());
        Ok(selection.documents(candidates, BackendGuarantees { sorted: plan.sorted, filtered: plan.filtered }))
    }

    pub(crate) async fn count(self, request: Count) -> StoreResult<u64> {
        let Count { namespace, filter, skip, limit, hint, collation } = request;
        let collation = collation.or_else(|| self.default_collation(&namespace).cloned());
        let bounded = |count: u64| count.saturating_sub(skip).min(limit.unwrap_or(u64::MAX));
        if filter.is_empty() && hint.is_none() {
            let collection = self.snapshot.catalog().get(&namespace);
            let counts = collection.map(|collection| self.snapshot.catalog().counts(collection.id));
            return Ok(bounded(counts.unwrap_or_default().documents));
        }
        let mut find = Find::new(namespace, filter);
        (find.skip, find.limit, find.hint) = (skip, limit, hint);
        find.variables = with_variable(find.variables, collation.as_deref());
        self.fold(find, 0, |count, _| {
            *count += 1;
            Ok(())
        })
        .await
    }

    pub(crate) async fn distinct(self, request: Distinct) -> StoreResult<Vec<RawBson>> {
        let collation = request.collation.clone().or_else(|| self.default_collation(&request.namespace).cloned());
        let request = Distinct { collation, ..request };
        let values = DistinctValues::of(&request)?;
        let Distinct { namespace, filter, hint, collation, .. } = request;
        let mut find = Find::new(namespace, filter);
        find.hint = hint;
        find.variables = with_variable(find.variables, collation.as_deref());
        let values = self.fold(find, values, |values, document| values.add(&document)).await?;
        Ok(values.finish())
    }

    /// Folds all documents of a find on another thread.
    async fn fold<T, F>(self, find: Find, start: T, mut step: F) -> StoreResult<T>
    where
        T: Send + 'static,
        F: FnMut(&mut T, RawDocumentBuf) -> StoreResult<()> + Send + 'static,
    {
        let prepared = self.prepare(&find)?;
        let mut folded = start;
        if prepared.collection.is_none() {
            return Ok(folded);
        }
        let _stop = prepared.stop_on_drop();
        let documents = self.documents(&find, prepared, Arc::default())?;
        blocking(move || {
            for document in documents {
                step(&mut folded, document?)?;
            }
            Ok(folded)
        })
        .await
    }
}

struct FindCursor {
    state: State,
    inline: bool,
    _stop: StopOnDrop,
}

enum State {
    Ready(Box<IteratorCursor<Documents<Candidates>>>),
    /// A page is being read. A request for the next page finds this state if the caller dropped the future of this one; the
    /// documents read for it are lost.
    Reading,
    Done,
}

#[async_trait]
impl Cursor for FindCursor {
    async fn next_page(&mut self, limit: BatchLimit) -> StoreResult<Page> {
        let mut documents = match std::mem::replace(&mut self.state, State::Reading) {
            State::Ready(documents) => documents,
            State::Done => {
                self.state = State::Done;
                return Ok(Page { documents: Vec::new(), exhausted: true });
            }
            State::Reading => {
                let text = "the cursor lost a page, as the reader went away while it was read: query again";
                return Err(StoreError::command(Code::CursorKilled, text));
            }
        };
        let read = move || {
            let page = documents.page(limit)?;
            Ok((documents, page))
        };
        let result = if self.inline { read() } else { blocking(read).await };
        match result {
            Ok((documents, page)) => {
                self.state = if page.exhausted { State::Done } else { State::Ready(documents) };
                Ok(page)
            }
            Err(error) => {
                self.state = State::Done;
                Err(error)
            }
        }
    }
}
