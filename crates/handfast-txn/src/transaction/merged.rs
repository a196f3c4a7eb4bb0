//! A find in a transaction that has written to the collection: the results of the snapshot, merged with the written documents.
//!
//! ```text
//! snapshot, sorted      1  2  3  4  5        2 was changed, 4 deleted, 9 is new: hidden in the snapshot's results,
//! own, sorted              2'          9     and those that match come from the own ones
//! merged                1  2' 3     5  9     then skip, limit and projection
//! ```

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use bson::{RawBsonRef, RawDocumentBuf};
use handfast_mql::Code;
use handfast_mql::expression::may_take_long;
use handfast_store::page::IteratorCursor;
use handfast_store::selection::{Candidate, Selection, named_keys};
use handfast_store::{
    BatchLimit, Cursor, Error as StoreError, Find, Hint, IndexSpec, Page, Result as StoreResult, Snapshot, Sources,
    blocking_if, insertion,
};

use super::write_buffer::{CollectionWrites, id_key};
use crate::hinted_index::HintedIndex;
use crate::limit_cursor::{LimitCursor, MatchSource};

/// The number of results of the snapshot that are read ahead.
const READ_AHEAD: BatchLimit = BatchLimit { documents: 1000, bytes: 1024 * 1024 };

/// The most written documents that are matched on the caller's thread. More are matched on a blocking thread.
const INLINE_DOCUMENTS_MAX: usize = 100;

/// Opens a cursor over the results of both; `snapshot` is `None` for a collection that the transaction creates.
pub(super) async fn open(
    snapshot: Option<&dyn Snapshot>,
    writes: CollectionWrites,
    indexes: &[IndexSpec],
    request: Find,
    sources: &Sources,
) -> StoreResult<Box<dyn Cursor>> {
    if request.return_key || request.show_record_id {
        let text = "returnKey and showRecordId are not possible on a collection that the transaction has written to";
        return Err(StoreError::command(Code::OperationNotSupportedInTransaction, text));
    }
    let selection = Arc::new(Selection::compile(&request, sources)?);
    let stop = selection.context().interrupt.stop_on_drop();
    let loops = may_take_long(&request.filter) || may_take_long(&request.projection);
    let candidates = candidates(&selection, &writes);
    let hinted = HintedIndex::of(&request, indexes)?;
    let own = blocking_if(loops || candidates.len() > INLINE_DOCUMENTS_MAX, {
        let (selection, request) = (Arc::clone(&selection), request.clone());
        move || own_matches(&selection, &candidates, hinted.as_ref(), &request)
    });
    let own = own.await?;
    let hidden = writes.len() as u64;
    let base = Find {
        projection: RawDocumentBuf::new(),
        skip: 0,
        // Each written document hides at most one of the snapshot.
        limit: request.limit.map(|limit| limit.saturating_add(request.skip).saturating_add(hidden)),
        ..request.clone()
    };
    let cursor: Box<dyn Cursor> = match snapshot {
        Some(snapshot) => snapshot.find(base).await?,
        None => Box::new(IteratorCursor::new(std::iter::empty())),
    };
    let base = SnapshotMatches { cursor, ready: VecDeque::new(), exhausted: false };
    let own_first = is_backwards(&request);
    let merged = MergedMatches { base, writes, own, own_first, selection: Arc::clone(&selection) };
    Ok(Box::new(LimitCursor::new(merged, selection, &request, stop)))
}

/// Returns the written documents that can match: those that the filter names by `_id`, or all.
fn candidates(selection: &Selection, writes: &CollectionWrites) -> Vec<Arc<RawDocumentBuf>> {
    match named_keys(&selection.necessary_conditions()) {
        Some(ids) => ids.iter().filter_map(|id| writes.get(&id[..])?.document.clone()).collect(),
        None => writes.values().filter_map(|written| written.document.clone()).collect(),
    }
}

/// Returns the written documents that match, in order, each with its sort key.
fn own_matches(
    selection: &Selection,
    candidates: &[Arc<RawDocumentBuf>],
    hinted: Option<&HintedIndex>,
    request: &Find,
) -> StoreResult<VecDeque<(Vec<u8>, RawDocumentBuf)>> {
    let mut matches = Vec::new();
    for document in candidates {
        selection.context().interrupt.check()?;
        let found = match hinted {
            Some(hinted) => hinted.key(document)?.is_some(),
            None => true,
        };
        if found && selection.filter().matches(document, selection.context())? {
            matches.push((selection.sort().key(document)?, RawDocumentBuf::clone(document)));
        }
    }
    if !selection.sort().is_empty() {
        matches.sort_by(|a, b| a.0.cmp(&b.0));
    } else if is_backwards(request) {
        matches.reverse();
    }
    Ok(matches.into())
}

/// Returns whether the newest documents come first: `{$natural: -1}`.
fn is_backwards(request: &Find) -> bool {
    let Some(Hint::Key(key)) = &request.hint else { return false };
    match key.get("$natural").ok().flatten() {
        Some(RawBsonRef::Int32(direction)) => direction < 0,
        Some(RawBsonRef::Int64(direction)) => direction < 0,
        Some(RawBsonRef::Double(direction)) => direction < 0.0,
        _ => false,
    }
}

struct MergedMatches {
    base: SnapshotMatches,
    writes: CollectionWrites,
    own: VecDeque<(Vec<u8>, RawDocumentBuf)>,
    /// Without a sort, the written documents come first.
    own_first: bool,
    selection: Arc<Selection>,
}

/// The results of the snapshot, without the documents that the transaction has written.
struct SnapshotMatches {
    cursor: Box<dyn Cursor>,
    ready: VecDeque<RawDocumentBuf>,
    exhausted: bool,
}

impl SnapshotMatches {
    async fn peek(&mut self, hidden: &CollectionWrites) -> StoreResult<Option<&RawDocumentBuf>> {
        loop {
            while let Some(document) = self.ready.front() {
                if !hidden.contains_key(&id_key(insertion::id(document)?)) {
                    break;
                }
                self.ready.pop_front();
            }
            if !self.ready.is_empty() || self.exhausted {
                return Ok(self.ready.front());
            }
            let page = self.cursor.next_page(READ_AHEAD).await?;
            self.exhausted = page.exhausted;
            self.ready = page.documents.into();
        }
    }
}

#[async_trait]
impl MatchSource for MergedMatches {
    async fn next_match(&mut self) -> StoreResult<Option<Candidate>> {
        let sort = self.selection.sort();
        let first = self.base.peek(&self.writes).await?;
        let own_first = match (first, self.own.front()) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(_), Some(_)) if sort.is_empty() => self.own_first,
            (Some(first), Some((key, _))) => *key < sort.key(first)?,
        };
        if own_first {
            return Ok(self.own.pop_front().map(|(_, document)| document.into()));
        }
        Ok(self.base.ready.pop_front().map(Candidate::from))
    }
}

/// A cursor of a transaction. A conflict that it meets rolls the transaction back.
pub(super) struct TransactionCursor {
    pub(super) cursor: Box<dyn Cursor>,
    pub(super) transaction: Arc<super::Inner>,
}

#[async_trait]
impl Cursor for TransactionCursor {
    async fn next_page(&mut self, limit: BatchLimit) -> StoreResult<Page> {
        self.transaction.open(|_| Ok(()))?;
        let page = self.cursor.next_page(limit).await;
        self.transaction.end_on_conflict(page)
    }
}
