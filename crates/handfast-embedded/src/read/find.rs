//! Cursors over one snapshot.

use std::sync::Arc;

use async_trait::async_trait;
use bson::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use handfast_mql::Code;
use handfast_mql::context::StopOnDrop;
use handfast_mql::expression::may_take_long;
use handfast_store::distinct::DistinctValues;
use handfast_store::page::IteratorCursor;
use handfast_store::selection::{BackendGuarantees, Documents, Selection};
use handfast_store::{
    BatchLimit, Count, Cursor, Distinct, Error as StoreError, Find, Namespace, Page, Result as StoreResult, blocking,
};

use super::candidates::{Candidates, Looked, Shown, Source};
use super::plan::{self, Plan};
use super::scan::{Access, Reader};
use crate::catalog::Collection;
use crate::committer::Snapshot;
use crate::format::document_key;
use crate::keys;
use crate::store::EmbeddedStore;

/// Reads of so few documents are done at once, without another thread.
const INLINE_POINTS_MAX: usize = 16;

/// A find with its plan.
pub(crate) struct Prepared {
    pub(crate) selection: Selection,
    pub(crate) collection: Option<Arc<Collection>>,
    pub(crate) plan: Plan,
}

impl Prepared {
    /// Ends scan and evaluation, on whatever thread they are, when nobody waits for them any more.
    pub(crate) fn stop_on_drop(&self) -> StopOnDrop {
        self.selection.context().interrupt.stop_on_drop()
    }
}

impl EmbeddedStore {
    /// Compiles a find and chooses its plan.
    pub(crate) fn prepare(&self, snapshot: &Snapshot, request: &Find) -> StoreResult<Prepared> {
        let selection = Selection::compile(request, &self.inner.sources)?;
        let collection = self.collection(snapshot, &request.namespace);
        let plan = match &collection {
            Some(collection) => plan::choose(collection, selection.filter(), selection.sort(), request)?,
            None => Plan::nothing(),
        };
        Ok(Prepared { selection, collection, plan })
    }

    /// The document with this `_id` at a snapshot.
    pub(crate) fn get_at(
        &self,
        snapshot: &Snapshot,
        namespace: &Namespace,
        id: RawBsonRef<'_>,
    ) -> StoreResult<Option<RawDocumentBuf>> {
        let Some(collection) = snapshot.catalog().get(namespace) else { return Ok(None) };
        let Some(key) = document_key(collection.id, &keys::of_id(id)) else { return Ok(None) };
        let reader = Reader { view: snapshot.view()?, verify: self.shared().verify };
        let stored = reader.get(namespace, &key)?;
        Ok(stored.map(|stored| stored.document().map(RawDocument::to_owned)).transpose()?)
    }

    /// Opens a cursor over the documents that match at a snapshot.
    pub(crate) fn find_at(&self, snapshot: Snapshot, request: &Find) -> StoreResult<Box<dyn Cursor>> {
        if let Some(id) = request.id_alone() {
            let document = self.get_at(&snapshot, &request.namespace, id)?;
            return Ok(Box::new(IteratorCursor::new(document.map(Ok).into_iter())));
        }
        let prepared = self.prepare(&snapshot, request)?;
        if prepared.collection.is_none() {
            return Ok(Box::new(IteratorCursor::new(std::iter::empty())));
        }
        let stop = prepared.stop_on_drop();
        let few = matches!(&prepared.plan.access, Access::Points(keys) if keys.len() <= INLINE_POINTS_MAX);
        let inline = few && !may_take_long(&request.filter) && !may_take_long(&request.projection);
        let documents = self.documents(snapshot, request, prepared, Arc::default())?;
        Ok(Box::new(FindCursor { state: State::Ready(Box::new(IteratorCursor::new(documents))), inline, _stop: stop }))
    }

    /// The documents of a find, as an iterator that reads from the disk.
    pub(crate) fn documents(
        &self,
        snapshot: Snapshot,
        request: &Find,
        prepared: Prepared,
        looked: Arc<Looked>,
    ) -> StoreResult<Documents<Candidates>> {
        let Prepared { selection, collection, plan } = prepared;
        let collection = collection.ok_or_else(|| crate::Error::Engine("there is no such collection".to_owned()))?;
        let expected = snapshot.catalog().counts(collection.id).documents;
        let shown = Shown::of(&plan, request);
        let source = Source::Snapshot(snapshot);
        let candidates = Candidates::new(source, self.shared().verify, collection, plan.access, Some(expected))
            .showing(shown)
            .counting(looked)
            .stopped_by(selection.context().interrupt.clone());
        Ok(selection.documents(candidates, BackendGuarantees { sorted: plan.sorted, filtered: false }))
    }

    pub(crate) async fn count_at(&self, snapshot: Snapshot, request: Count) -> StoreResult<u64> {
        let Count { namespace, filter, skip, limit, hint } = request;
        let bounded = |count: u64| count.saturating_sub(skip).min(limit.unwrap_or(u64::MAX));
        if filter.is_empty() && hint.is_none() {
            let collection = self.collection(&snapshot, &namespace);
            let counts = collection.map(|collection| snapshot.catalog().counts(collection.id));
            return Ok(bounded(counts.unwrap_or_default().documents));
        }
        let mut find = Find::new(namespace, filter);
        (find.skip, find.limit, find.hint) = (skip, limit, hint);
        self.fold(snapshot, find, 0, |count, _| {
            *count += 1;
            Ok(())
        })
        .await
    }

    pub(crate) async fn distinct_at(&self, snapshot: Snapshot, request: Distinct) -> StoreResult<Vec<RawBson>> {
        let Distinct { namespace, key, filter, hint } = request;
        let mut find = Find::new(namespace, filter);
        find.hint = hint;
        let values = DistinctValues::new(&key);
        let values = self.fold(snapshot, find, values, |values, document| values.add(&document)).await?;
        Ok(values.finish())
    }

    /// Runs through all documents of a find on another thread.
    async fn fold<T, F>(&self, snapshot: Snapshot, find: Find, start: T, mut step: F) -> StoreResult<T>
    where
        T: Send + 'static,
        F: FnMut(&mut T, RawDocumentBuf) -> StoreResult<()> + Send + 'static,
    {
        let prepared = self.prepare(&snapshot, &find)?;
        let mut folded = start;
        if prepared.collection.is_none() {
            return Ok(folded);
        }
        let _stop = prepared.stop_on_drop();
        let documents = self.documents(snapshot, &find, prepared, Arc::default())?;
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
    /// A page is being read. If it is still so when the next one is asked for, whoever asked had gone away, and what
    /// was read went with it.
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
