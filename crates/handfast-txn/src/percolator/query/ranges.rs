//! A query by ranges of `_id`, for results that are too many to remember.
//!
//! ```text
//! the query, sorted by _id       1 2 .. 1000                1001 1002 .. 2000              .. 9999
//! newer ones                     up to 1000                 above 1000, up to 2000         above 2000
//! ```
//!
//! After each page of the query, the rows of its range of `_id`s with a commit newer than the snapshot are read: only this page may have
//! returned them. Results from before the query went on like this are still remembered.
//!
//! A row that becomes newer after its range was in its page. A row that becomes newer before its page was read, and no longer matches, is
//! found after the page.

use std::collections::{HashSet, VecDeque};

use bson::raw::cstr;
use bson::{RawBson, RawDocument, RawDocumentBuf, rawdoc};
use handfast_mql::key::encoded;
use handfast_store::selection::Candidate;
use handfast_store::{Find, Result as StoreResult, insertion};

use super::scan::{Pages, SeenIds, newer, visible_candidate};
use crate::percolator::row::Timestamp;
use crate::percolator::snapshot::{PercolatorSnapshot, row_with_record_id};

/// A query by ranges of `_id`s.
pub(super) struct RangeScan {
    find: Find,
    /// The results from before.
    shown: SeenIds,
    /// The query itself, sorted.
    pages: Pages,
    /// The rest of the present page, and the keys of all its documents.
    page: VecDeque<RawDocumentBuf>,
    of_page: HashSet<Vec<u8>>,
    /// The newer rows of the range, sorted, and the key of the last one.
    newer: Option<Pages>,
    newer_before: Vec<u8>,
    /// The last document of the page before.
    after: Option<Bound>,
    /// The last document of this page; `None` in the last range, which is open.
    last: Option<Bound>,
}

/// The end of a range.
struct Bound {
    id: RawBson,
    key: Vec<u8>,
}

impl Bound {
    fn of(document: &RawDocument) -> StoreResult<Self> {
        let id = RawBson::from(insertion::id(document)?);
        Ok(Bound { key: encoded(id.as_raw_bson_ref()), id })
    }
}

impl RangeScan {
    pub(super) async fn open(snapshot: &PercolatorSnapshot, find: &Find, shown: SeenIds) -> StoreResult<Self> {
        // A hint is applied to the results.
        let find = Find { sort: rawdoc! { "_id": 1 }, hint: None, min: None, max: None, ..find.clone() };
        let mut ranges = RangeScan {
            pages: Pages::open(snapshot, find.clone()).await?,
            find,
            shown,
            page: VecDeque::new(),
            of_page: HashSet::new(),
            newer: None,
            newer_before: Vec::new(),
            after: None,
            last: None,
        };
        ranges.next_range(snapshot).await?;
        Ok(ranges)
    }

    pub(super) async fn next(&mut self, snapshot: &PercolatorSnapshot) -> StoreResult<Option<Candidate>> {
        loop {
            let stored = match self.page.pop_front() {
                Some(stored) => stored,
                None => match self.next_newer(snapshot).await? {
                    Some(stored) => stored,
                    None if self.last.is_none() => return Ok(None),
                    None => {
                        self.next_range(snapshot).await?;
                        continue;
                    }
                },
            };
            let (row, record) = row_with_record_id(stored, self.find.show_record_id)?;
            if self.shown.has(&encoded(row.id.as_raw_bson_ref())) {
                continue;
            }
            if let Some(found) = visible_candidate(snapshot, &self.find, row, record).await? {
                return Ok(Some(found));
            }
        }
    }

    /// Reads the next page, and sets its range.
    async fn next_range(&mut self, snapshot: &PercolatorSnapshot) -> StoreResult<()> {
        self.page = self.pages.next_page(snapshot).await?.unwrap_or_default();
        self.of_page.clear();
        for document in &self.page {
            self.of_page.insert(Bound::of(document)?.key);
        }
        self.after = self.last.take();
        if !self.pages.is_exhausted() {
            self.last = self.page.back().map(|document| Bound::of(document)).transpose()?;
        }
        self.newer = None;
        Ok(())
    }

    /// Returns the next newer row of the range that is not in the page.
    async fn next_newer(&mut self, snapshot: &PercolatorSnapshot) -> StoreResult<Option<RawDocumentBuf>> {
        let newer = match &mut self.newer {
            Some(newer) => newer,
            none => {
                self.newer_before.clear();
                none.insert(
                    Pages::open(snapshot, newer_between(&self.find, snapshot.at, &self.after, &self.last)).await?,
                )
            }
        };
        while let Some(stored) = newer.next(snapshot).await? {
            let key = Bound::of(&stored)?.key;
            if self.last.as_ref().is_some_and(|last| key > last.key) {
                return Ok(None);
            }
            let is_within = self.after.as_ref().is_none_or(|after| key > after.key);
            // A row that was changed during the query may be found twice in sequence.
            if is_within && !self.of_page.contains(&key) && key != self.newer_before {
                self.newer_before = key;
                return Ok(Some(stored));
            }
        }
        Ok(None)
    }
}

/// Returns a find of the newer rows of a range, or of all if the bounds are of different types, which the language does not compare.
fn newer_between(find: &Find, at: Timestamp, after: &Option<Bound>, last: &Option<Bound>) -> Find {
    let mut find = Find { sort: rawdoc! { "_id": 1 }, ..newer(find, at) };
    if let (Some(after), Some(last)) = (after, last)
        && kind(&after.id).is_some_and(|of| kind(&last.id) == Some(of))
    {
        find.filter.append(cstr!("_id"), rawdoc! { "$gt": after.id.clone(), "$lte": last.id.clone() });
    }
    find
}

/// Returns the group of types that the language compares a value with.
fn kind(id: &RawBson) -> Option<u8> {
    match id {
        RawBson::Int32(_) | RawBson::Int64(_) => Some(0),
        RawBson::String(_) => Some(1),
        RawBson::ObjectId(_) => Some(2),
        RawBson::Binary(_) => Some(3),
        RawBson::DateTime(_) => Some(4),
        _ => None,
    }
}
