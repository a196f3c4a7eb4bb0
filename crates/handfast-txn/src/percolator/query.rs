//! Queries at a snapshot.
//!
//! A query cannot leave the choice of documents to the store alone, which knows the visible versions only:
//!
//! ```text
//! 1  those with the lock of a transaction from before the snapshot: it is waited for, or resolved, or known to have committed
//! 2  the store's answer to a weaker query, without tombstones
//! 3  those with a commit newer than the snapshot
//! ```
//!
//! Each document is judged at its right version, by handfast-mql, and shown once. After
//! the first part no version from before the snapshot comes to any document any more, so what the second one does not find
//! either did not match or is newer when the third one looks. A query that names its documents by `_id` needs none of this.
//!
//! An expression may fail on a document. So that it does not matter whether the second or the third part has found it, the
//! weaker filter is asked first, here as in the store: what it excludes is not evaluated.
//!
//! | for | look at |
//! | --- | --- |
//! | the three parts | `scan` |
//! | what the store is asked for | [`push_down`](super::push_down) |
//! | what is shown once although too much is shown to remember it | `ranges` |

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
use handfast_store::page::Paged;
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

/// How much of the store's results is read ahead.
const READ_AHEAD: BatchLimit = BatchLimit { documents: 1000, bytes: 4 * 1024 * 1024 };
/// Documents that are asked for by their `_id`s at a time.
const IDS_AT_ONCE: usize = 1000;

/// A snapshot that is read by several at once.
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
                return Ok(Box::new(Paged::new(std::iter::empty())));
            }
        }
        let hinted = self.hinted(&request).await?;
        let selection = Arc::new(Selection::compile(&request, &self.0.core.sources)?);
        let stop = selection.context().interrupt.stop_on_drop();
        let mut weaker = None;
        let candidates: Box<dyn CandidateSource> =
            match named_ids(selection.filter()).filter(|_| request.hint.is_none()) {
                Some(ids) => {
                    let ids = ids.into_iter().map(RawBson::from).collect();
                    let (snapshot, namespace) = (Arc::clone(&self.0), request.namespace.clone());
                    let shows_record = request.show_record_id;
                    Box::new(ByIds { snapshot, namespace, ids, shows_record, ready: VecDeque::new() })
                }
                None => {
                    let asked = pushed_down(selection.filter());
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
    /// The index that the find names. The store asks it for the visible versions; whether it would hold those that are shown is
    /// for us to see.
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
            // The store says what it thinks of a hint to nothing.
            Err(error) if error.code() == Code::NamespaceNotFound => Ok(None),
            listed => {
                let specs = listed?.into_iter().map(|index| index.spec).filter(|spec| !is_own(spec));
                HintedIndex::of(request, &specs.collect::<Vec<_>>())
            }
        }
    }
}

/// Where the documents come from that may match, each as the snapshot has it, and once.
#[async_trait]
trait CandidateSource: Send {
    async fn next(&mut self) -> StoreResult<Option<Candidate>>;
}

/// Those that match.
struct MatchingCandidates {
    candidates: Box<dyn CandidateSource>,
    /// The index that holds them all.
    hinted: Option<HintedIndex>,
    /// What is shown of them is the key in that index.
    shows_key: bool,
    /// What the store was asked for, if that was less than the whole filter.
    weaker: Option<Arc<Filter>>,
    selection: Arc<Selection>,
    /// To match may take any time.
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
    /// A cursor over them, in the order that is asked for.
    async fn into_cursor(mut self, request: &Find, stop: StopOnDrop) -> StoreResult<Box<dyn Cursor>> {
        let selection = Arc::clone(&self.selection);
        if !selection.sort().is_empty() {
            let sorted = SortedCandidates::of(&mut self, request).await?;
            return Ok(Box::new(LimitCursor::new(sorted, selection, request, stop)));
        }
        let mut cursor = LimitCursor::new(self, selection, request, stop);
        // What cannot be read at this snapshot is better known now than after the first page.
        cursor.peek().await?;
        Ok(Box::new(cursor))
    }
}

/// A cursor over one document, or none, if it matches.
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

/// A document that was read before.
struct SingleDocument(Option<RawDocumentBuf>);

#[async_trait]
impl CandidateSource for SingleDocument {
    async fn next(&mut self) -> StoreResult<Option<Candidate>> {
        Ok(self.0.take().map(Candidate::from))
    }
}

/// Those that match, in order: as many as are wanted, in as much memory as a sort may take.
struct SortedCandidates(Box<dyn Iterator<Item = Candidate> + Send>);

impl SortedCandidates {
    async fn of(matching: &mut MatchingCandidates, request: &Find) -> StoreResult<Self> {
        let selection = Arc::clone(&matching.selection);
        let kept = request.limit.map(|limit| limit.saturating_add(request.skip));
        let kept = kept.and_then(|kept| usize::try_from(kept).ok());
        let mut sorter = Sorter::new(kept, selection.context());
        while let Some(found) = matching.next_match().await? {
            let (key, bytes) = (selection.sort().key(&found.document)?, found.document.as_bytes().len());
            sorter.push(key, found, bytes)?;
        }
        Ok(SortedCandidates(Box::new(sorter.into_sorted())))
    }
}

#[async_trait]
impl MatchSource for SortedCandidates {
    async fn next_match(&mut self) -> StoreResult<Option<Candidate>> {
        Ok(self.0.next())
    }
}

/// Documents that are named by their `_id`s.
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
