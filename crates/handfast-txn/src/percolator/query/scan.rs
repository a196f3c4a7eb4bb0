//! The three phases of a query, each of which may find the same rows.
//!
//! The `_id`s that were found are remembered up to a bound. Beyond, the query goes on by ranges ([`RangeScan`]).

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

/// The approximate memory of a remembered `_id` besides its bytes.
const SEEN_OVERHEAD_BYTES: usize = 64;

/// The phases of a query in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScanPhase {
    Locked,
    Matching,
    Newer,
}

/// A source of the documents that the store finds in all phases.
pub(super) struct Scan {
    snapshot: Arc<PercolatorSnapshot>,
    /// The find for the store, without sort, projection and limit.
    find: Find,
    phase: ScanPhase,
    pages: Pages,
    /// The rows that were found.
    seen: SeenIds,
    /// The rest of the query by ranges, if too many rows were found.
    rest: Option<RangeScan>,
}

/// The keys of `_id`s that were found.
#[derive(Default)]
pub(super) struct SeenIds {
    keys: HashSet<Vec<u8>>,
    bytes: usize,
}

impl SeenIds {
    /// Adds a key, and returns whether it is new.
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

/// The results of a find on the store, in pages.
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

    /// Returns the next page, or `None` at the end. The history was complete when it was read.
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

    /// Returns whether there is no further page.
    pub(super) fn is_exhausted(&self) -> bool {
        self.is_exhausted
    }

    /// Returns the next locked document, after the locks of its page were resolved where possible.
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
    /// Begins a scan with a filter that is weaker than the request's.
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

    /// Returns the next document of any phase.
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
            // Locked rows may have a version that the store does not show yet: all of them come first.
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

/// Returns the candidate for a row in the snapshot.
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

fn phase_find(phase: ScanPhase, find: &Find, at: Timestamp) -> Find {
    match phase {
        ScanPhase::Matching => find.clone(),
        ScanPhase::Locked => {
            Find { show_record_id: find.show_record_id, ..Find::new(find.namespace.clone(), locked_up_to(at)) }
        }
        ScanPhase::Newer => newer(find, at),
    }
}

/// Returns a find of the rows with a newer commit.
pub(super) fn newer(find: &Find, than: Timestamp) -> Find {
    Find { show_record_id: find.show_record_id, ..Find::new(find.namespace.clone(), newer_than(than)) }
}
