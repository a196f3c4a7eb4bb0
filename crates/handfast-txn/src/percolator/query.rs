//! Queries at a snapshot.
//!
//! A query cannot leave the choice of documents to the store alone, which knows the visible versions only:
//!
//! ```text
//! 1  those with the lock of a transaction from before the snapshot: it is waited for, or resolved
//! 2  the store's answer to the query itself
//! 3  those with a commit newer than the snapshot
//! ```
//!
//! Each document of the second and the third part is judged at its right version, by handfast-mql, and shown once. After
//! the first part no version from before the snapshot comes to any document any more, so what the second one does not find
//! either did not match or is newer when the third one looks. A query that names its documents by `_id` needs none of this.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use async_trait::async_trait;
use bson::{RawBson, RawBsonRef, RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_mql::expression::may_loop;
use handfast_mql::sort::Sorter;
use handfast_store::selection::{Candidate, Selection, check_bounds, named_ids};
use handfast_store::{
    BatchLimit, CommitTimestamp, Cursor, Error as StoreError, Find, Namespace, Result as StoreResult, Snapshot,
    blocking_if,
};

use super::row::{Key, Row, Timestamp};
use super::snapshot::{PercolatorSnapshot, encoded, with_record};
use crate::ending::{Ending, Matches};
use crate::hinted::Hinted;

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
        Ok(self.0.by_ids(namespace, vec![id.into()]).await?.pop())
    }

    async fn find(&self, request: Find) -> StoreResult<Box<dyn Cursor>> {
        let hinted = self.hinted(&request).await?;
        let selection = Arc::new(Selection::compile(&request, &self.0.core.sources)?);
        let stop = selection.context().interrupt.stop_on_drop();
        let judged: Box<dyn Judged> = match named_ids(selection.filter()).filter(|_| request.hint.is_none()) {
            Some(ids) => {
                let ids = ids.into_iter().map(RawBson::from).collect();
                let (snapshot, namespace) = (Arc::clone(&self.0), request.namespace.clone());
                let shows_record = request.show_record_id;
                Box::new(ByIds { snapshot, namespace, ids, shows_record, ready: VecDeque::new() })
            }
            None => Box::new(Scan::open(Arc::clone(&self.0), &request).await?),
        };
        let (loops, shows_key) = (may_loop(&request.filter), request.return_key);
        let mut filtered = Filtered { judged, hinted, shows_key, selection: Arc::clone(&selection), loops };
        if !selection.sort().is_empty() {
            let sorted = Sorted::of(&mut filtered, &request).await?;
            return Ok(Box::new(Ending::new(sorted, selection, &request, stop)));
        }
        let mut cursor = Ending::new(filtered, selection, &request, stop);
        // What cannot be read at this snapshot is better known now than after the first page.
        cursor.peek().await?;
        Ok(Box::new(cursor))
    }
}

impl Reader {
    /// The index that the find names. The store asks it for the visible versions; whether it would hold those that are shown is
    /// for us to see.
    async fn hinted(&self, request: &Find) -> StoreResult<Option<Hinted>> {
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
            listed => Hinted::of(request, &listed?.into_iter().map(|index| index.spec).collect::<Vec<_>>()),
        }
    }
}

/// Where the documents come from that may match, each as the snapshot has it, and once.
#[async_trait]
trait Judged: Send {
    async fn next(&mut self) -> StoreResult<Option<Candidate>>;
}

/// Those that match.
struct Filtered {
    judged: Box<dyn Judged>,
    /// The index that holds them all.
    hinted: Option<Hinted>,
    /// What is shown of them is the key in that index.
    shows_key: bool,
    selection: Arc<Selection>,
    /// To match may take any time.
    loops: bool,
}

#[async_trait]
impl Matches for Filtered {
    async fn next_match(&mut self) -> StoreResult<Option<Candidate>> {
        while let Some(mut candidate) = self.judged.next().await? {
            if let Some(hinted) = &self.hinted {
                let Some(key) = hinted.key(&candidate.document)? else { continue };
                candidate.key = if self.shows_key { hinted.shown(&candidate.document, &key)? } else { None };
            }
            let selection = Arc::clone(&self.selection);
            let matching = move || {
                let matches = selection.filter().matches(&candidate.document, selection.context())?;
                Ok(matches.then_some(candidate))
            };
            if let Some(found) = blocking_if(self.loops, matching).await? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

/// Those that match, in order: as many as are wanted, in as much memory as a sort may take.
struct Sorted(Box<dyn Iterator<Item = Candidate> + Send>);

impl Sorted {
    async fn of(filtered: &mut Filtered, request: &Find) -> StoreResult<Self> {
        let selection = Arc::clone(&filtered.selection);
        let kept = request.limit.map(|limit| limit.saturating_add(request.skip));
        let kept = kept.and_then(|kept| usize::try_from(kept).ok());
        let mut sorter = Sorter::new(kept, selection.context().stage_bytes_max);
        while let Some(found) = filtered.next_match().await? {
            let (key, bytes) = (selection.sort().key(&found.document)?, found.document.as_bytes().len());
            sorter.push(key, found, bytes)?;
        }
        Ok(Sorted(Box::new(sorter.into_sorted())))
    }
}

#[async_trait]
impl Matches for Sorted {
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
impl Judged for ByIds {
    async fn next(&mut self) -> StoreResult<Option<Candidate>> {
        while self.ready.is_empty() && !self.ids.is_empty() {
            let some = self.ids.drain(..self.ids.len().min(IDS_AT_ONCE)).collect();
            self.ready = self.snapshot.found_by_ids(&self.namespace, some, self.shows_record).await?.into();
        }
        Ok(self.ready.pop_front())
    }
}

/// The parts of a query, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Locked,
    Matching,
    Newer,
}

/// Documents that the store finds.
struct Scan {
    snapshot: Arc<PercolatorSnapshot>,
    /// The query itself, without what is done with its results.
    find: Find,
    part: Part,
    cursor: Box<dyn Cursor>,
    ready: VecDeque<RawDocumentBuf>,
    is_exhausted: bool,
    seen: HashSet<Vec<u8>>,
}

impl Scan {
    async fn open(snapshot: Arc<PercolatorSnapshot>, request: &Find) -> StoreResult<Self> {
        let find = Find {
            projection: RawDocumentBuf::new(),
            sort: RawDocumentBuf::new(),
            skip: 0,
            limit: None,
            return_key: false,
            ..request.clone()
        };
        let part = Part::Locked;
        let cursor = snapshot.core.rows.store.find(of_part(part, &find, snapshot.at)).await?;
        let (ready, seen) = (VecDeque::new(), HashSet::new());
        Ok(Scan { snapshot, find, part, cursor, ready, is_exhausted: false, seen })
    }

    /// The next row of any part, with the store's id of its record if that is asked for.
    async fn next_row(&mut self) -> StoreResult<Option<(Row, Option<i64>)>> {
        loop {
            if let Some(document) = self.ready.pop_front() {
                return with_record(document, self.find.show_record_id).map(Some);
            }
            if !self.is_exhausted {
                let page = self.cursor.next_page(READ_AHEAD).await?;
                self.snapshot.core.check_kept(&self.snapshot).await?;
                (self.ready, self.is_exhausted) = (page.documents.into(), page.exhausted);
                continue;
            }
            let next = match self.part {
                Part::Locked => Part::Matching,
                Part::Matching => Part::Newer,
                Part::Newer => return Ok(None),
            };
            self.cursor = self.snapshot.core.rows.store.find(of_part(next, &self.find, self.snapshot.at)).await?;
            (self.part, self.is_exhausted) = (next, false);
        }
    }
}

#[async_trait]
impl Judged for Scan {
    async fn next(&mut self) -> StoreResult<Option<Candidate>> {
        while let Some((row, record)) = self.next_row().await? {
            let key = Key { namespace: self.find.namespace.clone(), id: row.id.clone() };
            let is_first = self.part == Part::Locked || self.seen.insert(encoded(key.id.as_raw_bson_ref()));
            let document = if is_first { self.snapshot.judged(&key, row).await? } else { None };
            if let Some(document) = document.filter(|_| self.part != Part::Locked) {
                return Ok(Some(Candidate { record, ..document.into() }));
            }
        }
        Ok(None)
    }
}

/// What is asked of the store for a part.
fn of_part(part: Part, find: &Find, at: Timestamp) -> Find {
    let at = i64::try_from(at.0).unwrap_or(i64::MAX);
    let filter = match part {
        Part::Matching => return find.clone(),
        Part::Locked => rawdoc! { "_hf.lock.s": { "$lte": at } },
        Part::Newer => rawdoc! { "_hf.c": { "$gt": at } },
    };
    Find { show_record_id: find.show_record_id, ..Find::new(find.namespace.clone(), filter) }
}
