//! Queries at a snapshot.
//!
//! The store matches visible versions only, so a query reads documents in three phases:
//!
//! ```text
//! 1  those with the lock of a transaction from before the snapshot: it is waited for, or resolved, or known to have committed
//! 2  the store's answer to a weaker query, without tombstones
//! 3  those with a commit newer than the snapshot
//! ```
//!
//! Each document is evaluated by handfast-mql at its version in the snapshot, and returned once. After the first phase no document gets a
//! version from before the snapshot any more, so a document that the second phase does not find did not match, or is found as newer by the
//! third. A query that names its documents by `_id` needs no phases.
//!
//! An expression may fail on a document. So that the result does not depend on the phase, the weaker filter is evaluated first, here as in
//! the store: documents that it excludes are not evaluated further.
//!
//! | for | read |
//! | --- | --- |
//! | the three phases | `scan` |
//! | the filter for the store | [`push_down`](super::push_down) |
//! | results that are too many to remember | `ranges` |

mod ranges;
mod scan;

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use bson::{RawBson, RawBsonRef, RawDocumentBuf};
use handfast_mql::context::StopOnDrop;
use handfast_mql::expression::may_take_long;
use handfast_mql::sort::Sorter;
use handfast_mql::{Code, CompileOptions, Filter};
use handfast_store::page::IteratorCursor;
use handfast_store::selection::{Candidate, Selection, check_bounds, named_ids};
use handfast_store::{
    BatchLimit, CommitTimestamp, Cursor, Error as StoreError, Find, Namespace, Result as StoreResult, Snapshot,
    blocking_if,
};

use self::scan::Scan;
use super::own_indexes::is_own;
use super::push_down::pushed_down;
use super::snapshot::PercolatorSnapshot;
use crate::hinted_index::HintedIndex;
use crate::limit_cursor::{LimitCursor, MatchSource};

/// The number of results of the store that are read ahead.
const READ_AHEAD: BatchLimit = BatchLimit { documents: 1000, bytes: 4 * 1024 * 1024 };
/// The most documents that one request reads by their `_id`s.
const IDS_AT_ONCE: usize = 1000;

/// A shared snapshot.
pub(super) struct Reader(pub(super) Arc<PercolatorSnapshot>);

#[async_trait]
impl Snapshot for Reader {
    fn timestamp(&self) -> CommitTimestamp {
        self.0.at.into()
    }

    async fn get(&self, namespace: &Namespace, id: RawBsonRef<'_>) -> StoreResult<Option<RawDocumentBuf>> {
        let Some(collection) = self.0.collection(namespace).await? else { return Ok(None) };
        Ok(self.0.by_ids(&collection, vec![id.into()]).await?.pop())
    }

    async fn find(&self, mut request: Find) -> StoreResult<Box<dyn Cursor>> {
        match self.0.collection(&request.namespace).await? {
            Some(collection) => request.namespace = collection,
            None => {
                check_bounds(&request)?;
                Selection::compile(&request, &self.0.core.sources)?;
                return Ok(Box::new(IteratorCursor::new(std::iter::empty())));
            }
        }
        let hinted = self.hinted(&request).await?;
        let selection = Arc::new(Selection::compile(&request, &self.0.core.sources)?);
        let stop = selection.context().interrupt.stop_on_drop();
        let mut weaker = None;
        let candidates: Box<dyn CandidateSource> =
            match named_ids(&selection.necessary_conditions()).filter(|_| request.hint.is_none()) {
                Some(ids) => {
                    let ids = ids.into_iter().map(RawBson::from).collect();
                    let (snapshot, namespace) = (Arc::clone(&self.0), request.namespace.clone());
                    let shows_record = request.show_record_id;
                    Box::new(ByIds { snapshot, namespace, ids, shows_record, ready: VecDeque::new() })
                }
                None => {
                    let asked = pushed_down(selection.filter(), selection.context());
                    if !asked.is_exact {
                        weaker = Some(Arc::new(Filter::compile(&asked.filter, &CompileOptions::default())?));
                    }
                    Box::new(Scan::open(Arc::clone(&self.0), &request, asked.filter).await?)
                }
            };
        let (loops, shows_key) = (may_take_long(&request.filter), request.return_key);
        let matching = MatchingCandidates { candidates, hinted, shows_key, weaker, selection, loops };
        matching.into_cursor(&request, stop).await
    }
}

impl Reader {
    /// Returns the index that the find names. The store applies it to visible versions; this process applies it to those of the snapshot.
    async fn hinted(&self, request: &Find) -> StoreResult<Option<HintedIndex>> {
        check_bounds(request)?;
        if request.hint.is_none() {
            if request.return_key {
                let text = "returnKey needs a hint on a store whose documents have versions: name the index";
                return Err(StoreError::command(Code::CommandNotSupported, text));
            }
            return Ok(None);
        }
        match self.0.core.rows.store.list_indexes(&request.namespace).await {
            // The store answers a hint on a missing collection.
            Err(error) if error.code() == Code::NamespaceNotFound => Ok(None),
            listed => {
                let specs = listed?.into_iter().map(|index| index.spec).filter(|spec| !is_own(spec));
                HintedIndex::of(request, &specs.collect::<Vec<_>>())
            }
        }
    }
}

/// A source of documents that may match, each once, as of the snapshot.
#[async_trait]
trait CandidateSource: Send {
    async fn next(&mut self) -> StoreResult<Option<Candidate>>;
}

/// The documents of a source that match.
struct MatchingCandidates {
    candidates: Box<dyn CandidateSource>,
    /// The hinted index, which has to hold each document.
    hinted: Option<HintedIndex>,
    /// Whether the result is the key in that index.
    shows_key: bool,
    /// The filter that the store evaluated, if that was not the whole filter.
    weaker: Option<Arc<Filter>>,
    selection: Arc<Selection>,
    /// Whether matching may take long.
    loops: bool,
}

#[async_trait]
impl MatchSource for MatchingCandidates {
    async fn next_match(&mut self) -> StoreResult<Option<Candidate>> {
        while let Some(mut candidate) = self.candidates.next().await? {
            if let Some(hinted) = &self.hinted {
                let Some(key) = hinted.key(&candidate.document)? else { continue };
                candidate.key = if self.shows_key { hinted.shown(&candidate.document, &key)? } else { None };
            }
            let (weaker, selection) = (self.weaker.clone(), Arc::clone(&self.selection));
            let matching = move || {
                for filter in weaker.as_deref().into_iter().chain([selection.filter()]) {
                    if !filter.matches(&candidate.document, selection.context())? {
                        return Ok(None);
                    }
                }
                Ok(Some(candidate))
            };
            if let Some(found) = blocking_if(self.loops, matching).await? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

impl MatchingCandidates {
    /// Returns a cursor over the matching documents in the order of the request.
    async fn into_cursor(mut self, request: &Find, stop: StopOnDrop) -> StoreResult<Box<dyn Cursor>> {
        let selection = Arc::clone(&self.selection);
        if !selection.sort().is_empty() {
            let sorted = SortedCandidates::of(&mut self, request).await?;
            return Ok(Box::new(LimitCursor::new(sorted, selection, request, stop)));
        }
        let mut cursor = LimitCursor::new(self, selection, request, stop);
        // Errors of the snapshot are returned by the find, and not after the first page.
        cursor.peek().await?;
        Ok(Box::new(cursor))
    }
}

/// Returns a cursor over at most one document, if it matches.
pub(super) async fn one(
    document: Option<RawDocumentBuf>,
    selection: Arc<Selection>,
    request: &Find,
) -> StoreResult<Box<dyn Cursor>> {
    let stop = selection.context().interrupt.stop_on_drop();
    let (candidates, loops) = (Box::new(SingleDocument(document)), may_take_long(&request.filter));
    let matching = MatchingCandidates { candidates, hinted: None, shows_key: false, weaker: None, selection, loops };
    matching.into_cursor(request, stop).await
}

/// A source of one document that was read before.
struct SingleDocument(Option<RawDocumentBuf>);

#[async_trait]
impl CandidateSource for SingleDocument {
    async fn next(&mut self) -> StoreResult<Option<Candidate>> {
        Ok(self.0.take().map(Candidate::from))
    }
}

/// The matching documents in order, within the memory bound of a sort.
struct SortedCandidates(Box<dyn Iterator<Item = handfast_mql::Result<Candidate>> + Send>);

impl SortedCandidates {
    async fn of(matching: &mut MatchingCandidates, request: &Find) -> StoreResult<Self> {
        let selection = Arc::clone(&matching.selection);
        let kept = request.limit.map(|limit| limit.saturating_add(request.skip));
        let kept = kept.and_then(|kept| usize::try_from(kept).ok());
        let mut sorter = Sorter::spilling(kept, selection.context());
        while let Some(found) = matching.next_match().await? {
            let (key, bytes) = (selection.sort().key(&found.document)?, found.document.as_bytes().len());
            sorter.push(key, found, bytes)?;
        }
        Ok(SortedCandidates(Box::new(sorter.into_sorted()?)))
    }
}

#[async_trait]
impl MatchSource for SortedCandidates {
    async fn next_match(&mut self) -> StoreResult<Option<Candidate>> {
        Ok(self.0.next().transpose()?)
    }
}

/// A source of documents that are named by their `_id`s.
struct ByIds {
    snapshot: Arc<PercolatorSnapshot>,
    namespace: Namespace,
    ids: VecDeque<RawBson>,
    shows_record: bool,
    ready: VecDeque<Candidate>,
}

#[async_trait]
impl CandidateSource for ByIds {
    async fn next(&mut self) -> StoreResult<Option<Candidate>> {
        while self.ready.is_empty() && !self.ids.is_empty() {
            let some = self.ids.drain(..self.ids.len().min(IDS_AT_ONCE)).collect();
            self.ready = self.snapshot.found_by_ids(&self.namespace, some, self.shows_record).await?.into();
        }
        Ok(self.ready.pop_front())
    }
}
