//! The three parts of a query, one after the other, each of which may find the same rows.
//!
//! What was shown is remembered, up to a bound. When there is more, the query goes on in another way ([`RangeScan`]).

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use async_trait::async_trait;
use bson::RawDocumentBuf;
use handfast_mql::key::encoded;
use handfast_store::selection::Candidate;
use handfast_store::{Cursor, Find, Namespace, Result as StoreResult};

use super::ranges::RangeScan;
use super::{CandidateSource, READ_AHEAD};
use crate::percolator::row::{Key, Row, Timestamp};
use crate::percolator::rows::{locked_up_to, newer_than};
use crate::percolator::snapshot::{PercolatorSnapshot, row_with_record_id};

/// What an `_id` that is remembered takes beside its own bytes, about.
const SEEN_OVERHEAD_BYTES: usize = 64;

/// The parts of a query, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScanPhase {
    Locked,
    Matching,
    Newer,
}

/// Documents that the store finds.
pub(super) struct Scan {
    snapshot: Arc<PercolatorSnapshot>,
    /// What the store is asked for, without what is done with its results.
    find: Find,
    phase: ScanPhase,
    pages: Pages,
    /// The rows that it has come to.
    seen: SeenIds,
    /// What goes on where that is too much.
    rest: Option<RangeScan>,
}

/// Keys of `_id`s.
#[derive(Default)]
pub(super) struct SeenIds {
    keys: HashSet<Vec<u8>>,
    bytes: usize,
}

impl SeenIds {
    /// Whether it was not there before.
    fn insert(&mut self, key: Vec<u8>) -> bool {
        let bytes = key.len() + SEEN_OVERHEAD_BYTES;
        let is_new = self.keys.insert(key);
        self.bytes += if is_new { bytes } else { 0 };
        is_new
    }

    pub(super) fn has(&self, key: &[u8]) -> bool {
        self.keys.contains(key)
    }
}

/// Documents of the store, as they come.
pub(super) struct Pages {
    cursor: Box<dyn Cursor>,
    ready: VecDeque<RawDocumentBuf>,
    is_exhausted: bool,
}

impl Pages {
    pub(super) async fn open(snapshot: &PercolatorSnapshot, find: Find) -> StoreResult<Self> {
        let cursor = snapshot.core.rows.store.find(find).await?;
        Ok(Pages { cursor, ready: VecDeque::new(), is_exhausted: false })
    }

    /// The next page, of documents that were still there when they were read; none at the end.
    pub(super) async fn next_page(
        &mut self,
        snapshot: &PercolatorSnapshot,
    ) -> StoreResult<Option<VecDeque<RawDocumentBuf>>> {
        if self.is_exhausted {
            return Ok(None);
        }
        let page = self.cursor.next_page(READ_AHEAD).await?;
        snapshot.core.check_history_kept(snapshot).await?;
        self.is_exhausted = page.exhausted;
        Ok(Some(page.documents.into()))
    }

    /// Whether there is no further page.
    pub(super) fn is_exhausted(&self) -> bool {
        self.is_exhausted
    }

    /// The next document that is locked, after what can be resolved of its page has been.
    async fn next_locked(
        &mut self,
        snapshot: &PercolatorSnapshot,
        namespace: &Namespace,
        keeps_order: bool,
    ) -> StoreResult<Option<RawDocumentBuf>> {
        while self.ready.is_empty() {
            match self.next_page(snapshot).await? {
                Some(page) => self.ready = snapshot.core.resolve_page(namespace, page, keeps_order).await?,
                None => return Ok(None),
            }
        }
        Ok(self.ready.pop_front())
    }

    /// The next document.
    pub(super) async fn next(&mut self, snapshot: &PercolatorSnapshot) -> StoreResult<Option<RawDocumentBuf>> {
        while self.ready.is_empty() {
            match self.next_page(snapshot).await? {
                Some(page) => self.ready = page,
                None => return Ok(None),
            }
        }
        Ok(self.ready.pop_front())
    }
}

impl Scan {
    /// Asks the store for a filter that is weaker than the request's.
    pub(super) async fn open(
        snapshot: Arc<PercolatorSnapshot>,
        request: &Find,
        filter: RawDocumentBuf,
    ) -> StoreResult<Self> {
        let find = Find {
            filter,
            variables: RawDocumentBuf::new(),
            projection: RawDocumentBuf::new(),
            sort: RawDocumentBuf::new(),
            skip: 0,
            limit: None,
            return_key: false,
            ..request.clone()
        };
        let phase = ScanPhase::Locked;
        let pages = Pages::open(&snapshot, phase_find(phase, &find, snapshot.at)).await?;
        Ok(Scan { snapshot, find, phase, pages, seen: SeenIds::default(), rest: None })
    }

    /// The next document of any part.
    async fn next_stored(&mut self) -> StoreResult<Option<RawDocumentBuf>> {
        loop {
            let stored = match self.phase {
                ScanPhase::Locked if !self.find.show_record_id => {
                    self.pages.next_locked(&self.snapshot, &self.find.namespace, self.find.hint.is_some()).await?
                }
                ScanPhase::Locked | ScanPhase::Matching | ScanPhase::Newer => self.pages.next(&self.snapshot).await?,
            };
            if stored.is_some() {
                return Ok(stored);
            }
            let next = match self.phase {
                ScanPhase::Locked => ScanPhase::Matching,
                ScanPhase::Matching => ScanPhase::Newer,
                ScanPhase::Newer => return Ok(None),
            };
            self.pages = Pages::open(&self.snapshot, phase_find(next, &self.find, self.snapshot.at)).await?;
            self.phase = next;
        }
    }
}

#[async_trait]
impl CandidateSource for Scan {
    async fn next(&mut self) -> StoreResult<Option<Candidate>> {
        loop {
            if let Some(rest) = &mut self.rest {
                return rest.next(&self.snapshot).await;
            }
            // What is locked may be shown in a version that the store does not know yet: these rows come first, and all of them.
            if self.phase != ScanPhase::Locked && self.seen.bytes > self.snapshot.core.options.seen_bytes_max {
                self.rest = Some(RangeScan::open(&self.snapshot, &self.find, std::mem::take(&mut self.seen)).await?);
                continue;
            }
            let Some(stored) = self.next_stored().await? else { return Ok(None) };
            let (row, record) = row_with_record_id(stored, self.find.show_record_id)?;
            if !self.seen.insert(encoded(row.id.as_raw_bson_ref())) {
                continue;
            }
            let found = visible_candidate(&self.snapshot, &self.find, row, record).await?;
            if found.is_some() {
                return Ok(found);
            }
        }
    }
}

/// What the snapshot has of a row.
pub(super) async fn visible_candidate(
    snapshot: &PercolatorSnapshot,
    find: &Find,
    row: Row,
    record: Option<i64>,
) -> StoreResult<Option<Candidate>> {
    let key = Key { namespace: find.namespace.clone(), id: row.id.clone() };
    let document = snapshot.visible_document(&key, row).await?;
    Ok(document.map(|document| Candidate { record, ..document.into() }))
}

/// What is asked of the store for a part.
fn phase_find(phase: ScanPhase, find: &Find, at: Timestamp) -> Find {
    match phase {
        ScanPhase::Matching => find.clone(),
        ScanPhase::Locked => {
            Find { show_record_id: find.show_record_id, ..Find::new(find.namespace.clone(), locked_up_to(at)) }
        }
        ScanPhase::Newer => newer(find, at),
    }
}

/// The rows with a commit newer than this.
pub(super) fn newer(find: &Find, than: Timestamp) -> Find {
    Find { show_record_id: find.show_record_id, ..Find::new(find.namespace.clone(), newer_than(than)) }
}
