//! What a transaction sees: every document as it was when the transaction began.
//!
//! A row shows its version at a time by itself ([`read_at`]), unless it has the lock of a transaction that began before:
//! that one may have fetched its commit timestamp before ours and not have moved its version in yet. Then its primary is
//! asked, and if it is still open, we wait.
//!
//! A query cannot leave the choice to the store alone, which knows the visible versions only:
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
//!
//! The rows that were read are kept: a write begins with the row that was seen, without reading it again.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bson::{RawArrayBuf, RawBson, RawBsonRef, RawDocumentBuf, rawdoc};
use handfast_mql::{Code, key};
use handfast_store::selection::{Candidate, Given, Selection, check_bounds, named_ids};
use handfast_store::{
    BatchLimit, CommitTimestamp, Cursor, Error as StoreError, Find, Namespace, Page, Result as StoreResult, Snapshot,
    StoreExt,
};

use super::core::{Core, conflict, lock};
use super::resolver::Resolved;
use super::row::{Body, Key, Row, Seen, Timestamp, read_at};

/// Bytes of rows that are kept for the writes of a transaction.
const KNOWN_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The first pause before a lock is looked at again; each further one is twice as long..
const PAUSE_FIRST: Duration = Duration::from_millis(1);
/// ..up to this.
const PAUSE_MAX: Duration = Duration::from_millis(50);
/// Looks at a lock before a reader gives up: more than a lock lives without a sign of life.
const LOOKS_MAX: u32 = 200;
/// How much of the store's results is read ahead.
const READ_AHEAD: BatchLimit = BatchLimit { documents: 1000, bytes: 4 * 1024 * 1024 };

/// A transaction's snapshot, and the rows that it has read.
pub(super) struct PercolatorSnapshot {
    pub(super) core: Arc<Core>,
    /// The start of the transaction.
    pub(super) at: Timestamp,
    /// When that was, on this process's stopwatch.
    pub(super) begun: Duration,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    rows: HashMap<(Namespace, Vec<u8>), Row>,
    bytes: usize,
}

impl PercolatorSnapshot {
    pub(super) fn new(core: Arc<Core>, at: Timestamp, begun: Duration) -> Self {
        PercolatorSnapshot { core, at, begun, known: Mutex::default() }
    }

    /// Time since the transaction began.
    pub(super) fn age(&self) -> Duration {
        self.core.elapsed().saturating_sub(self.begun)
    }

    /// The row as it was read last, if it is known.
    pub(super) fn known(&self, key: &Key) -> Option<Row> {
        lock(&self.known).rows.get(&place(key)).cloned()
    }

    fn learn(&self, key: &Key, row: &Row) {
        let mut known = lock(&self.known);
        let bytes = row.to_document().as_bytes().len();
        if known.bytes.saturating_add(bytes) <= KNOWN_BYTES_MAX {
            known.bytes += bytes;
            known.rows.insert(place(key), row.clone());
        }
    }

    /// The row as the store has it.
    async fn read(&self, key: &Key) -> StoreResult<Row> {
        let row = self.core.rows.read(key).await?;
        self.core.check_kept(self).await?;
        Ok(row)
    }

    /// What the snapshot has of a row.
    async fn judged(&self, key: &Key, row: Row) -> StoreResult<Option<RawDocumentBuf>> {
        let row = self.settled(key, row).await?;
        match read_at(&row, self.at) {
            Seen::Document(document) => Ok(Some(document.clone())),
            Seen::Nothing => Ok(None),
            Seen::TooOld | Seen::Locked(_) => Err(too_old(&key)),
        }
    }

    /// The row, which was still there when it was read, once it can be read in the snapshot: waits for transactions that may
    /// commit before that.
    ///
    /// # Errors
    /// `SnapshotTooOld` (239), `WriteConflict` (112) for a transaction that does not end.
    async fn settled(&self, key: &Key, mut row: Row) -> StoreResult<Row> {
        let (mut pause, mut is_as_given) = (PAUSE_FIRST, true);
        for _ in 0..LOOKS_MAX {
            match read_at(&row, self.at) {
                Seen::Document(_) | Seen::Nothing if is_as_given => {}
                Seen::Document(_) | Seen::Nothing => self.core.check_kept(self).await?,
                Seen::TooOld => return Err(too_old(&key)),
                Seen::Locked(_) => {
                    row = match self.core.resolve(key, row).await? {
                        Resolved::Free(row) => row,
                        Resolved::Alive => {
                            tokio::time::sleep(pause).await;
                            pause = (pause * 2).min(PAUSE_MAX);
                            self.core.rows.read(key).await?
                        }
                    };
                    is_as_given = false;
                    continue;
                }
            }
            self.learn(key, &row);
            return Ok(row);
        }
        Err(conflict(format_args!("{key} is locked by a transaction that does not end")))
    }

    /// The document with its commit timestamp.
    pub(super) async fn version(&self, key: &Key) -> StoreResult<Option<(Timestamp, RawDocumentBuf)>> {
        let row = match self.known(key) {
            Some(row) => row,
            None => self.read(key).await?,
        };
        let row = self.settled(key, row).await?;
        let version = row.versions().find(|version| version.commit <= self.at);
        Ok(version.and_then(|version| match &version.body {
            Body::Document(document) => Some((version.commit, document.clone())),
            Body::Deleted | Body::Cut => None,
        }))
    }

    /// The documents with these `_id`s.
    pub(super) async fn by_ids(&self, namespace: &Namespace, ids: Vec<RawBson>) -> StoreResult<Vec<RawDocumentBuf>> {
        let keys: Vec<_> = ids.into_iter().map(|id| Key { namespace: namespace.clone(), id }).collect();
        let unknown: RawArrayBuf =
            keys.iter().filter(|key| self.known(key).is_none()).map(|key| key.id.clone()).collect();
        let mut read = HashMap::new();
        if !unknown.is_empty() {
            let find = Find::new(namespace.clone(), rawdoc! { "_id": { "$in": unknown } });
            for document in self.core.rows.store.find_all(find).await? {
                let row = Row::from_document(&document)?;
                read.insert(encoded(row.id.as_raw_bson_ref()), row);
            }
            self.core.check_kept(self).await?;
        }
        let mut documents = Vec::new();
        for key in keys {
            let row = self.known(&key).or_else(|| read.remove(&encoded(key.id.as_raw_bson_ref())));
            documents.extend(self.judged(&key, row.unwrap_or_else(|| Row::missing(key.id.clone()))).await?);
        }
        Ok(documents)
    }
}

impl Drop for PercolatorSnapshot {
    fn drop(&mut self) {
        self.core.leave(self.at);
    }
}

fn place(key: &Key) -> (Namespace, Vec<u8>) {
    (key.namespace.clone(), encoded(key.id.as_raw_bson_ref()))
}

/// The key of an `_id`: equal for equal values.
pub(super) fn encoded(id: RawBsonRef<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    key::encode(id, &mut bytes);
    bytes
}

pub(super) fn too_old(what: &dyn std::fmt::Display) -> StoreError {
    let text =
        format!("the version of {what} that the transaction needs is not kept any more: run the transaction again");
    StoreError::command(Code::SnapshotTooOld, text)
}

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
        let has_bounds = request.min.is_some() || request.max.is_some();
        if request.return_key || request.show_record_id || has_bounds {
            let text = "returnKey, showRecordId, min and max are not possible on a store whose documents have versions";
            return Err(StoreError::command(Code::OperationNotSupportedInTransaction, text));
        }
        check_bounds(&request)?;
        let selection = Selection::compile(&request, &self.0.core.sources)?;
        if let (Some(ids), None) = (named_ids(selection.filter()), &request.hint) {
            let ids = ids.into_iter().map(RawBson::from).collect();
            let documents = self.0.by_ids(&request.namespace, ids).await?;
            let candidates = documents.into_iter().map(|document| Ok(Candidate::from(document)));
            return Ok(selection.cursor(candidates, Given::default()));
        }
        let is_sorted = !selection.sort().is_empty();
        let mut scan = Scan::open(Arc::clone(&self.0), &request, selection).await?;
        if !is_sorted {
            // What cannot be read at this snapshot is better known now than after the first page.
            scan.peek().await?;
            return Ok(Box::new(scan));
        }
        let mut candidates = Vec::new();
        while let Some(document) = scan.next_match().await? {
            candidates.push(Ok(Candidate::from(document)));
        }
        Ok(scan.selection.cursor(candidates.into_iter(), Given { filtered: true, sorted: false }))
    }
}

/// The parts of a query, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Locked,
    Matching,
    Newer,
}

/// A query without an order.
struct Scan {
    snapshot: Arc<PercolatorSnapshot>,
    namespace: Namespace,
    selection: Selection,
    /// The query itself, without what is done with its results.
    find: Find,
    part: Part,
    cursor: Box<dyn Cursor>,
    ready: VecDeque<RawDocumentBuf>,
    is_exhausted: bool,
    seen: HashSet<Vec<u8>>,
    to_skip: u64,
    left: u64,
    /// Ready, but too large for the page before.
    next: Option<RawDocumentBuf>,
}

impl Scan {
    async fn open(snapshot: Arc<PercolatorSnapshot>, request: &Find, selection: Selection) -> StoreResult<Self> {
        let find = Find {
            projection: RawDocumentBuf::new(),
            sort: RawDocumentBuf::new(),
            skip: 0,
            limit: None,
            ..request.clone()
        };
        if find.hint.is_some() {
            // Refused before anything is read, if there is no such index.
            snapshot.core.rows.store.find(find.clone()).await?;
        }
        let part = Part::Locked;
        let cursor = snapshot.core.rows.store.find(of_part(part, &find, snapshot.at)).await?;
        Ok(Scan {
            snapshot,
            namespace: request.namespace.clone(),
            selection,
            find,
            part,
            cursor,
            ready: VecDeque::new(),
            is_exhausted: false,
            seen: HashSet::new(),
            to_skip: request.skip,
            left: request.limit.unwrap_or(u64::MAX),
            next: None,
        })
    }

    /// The next row of any part.
    async fn next_row(&mut self) -> StoreResult<Option<Row>> {
        loop {
            if let Some(document) = self.ready.pop_front() {
                return Row::from_document(&document).map(Some);
            }
            if !self.is_exhausted {
                let page = self.cursor.next_page(READ_AHEAD).await?;
                self.snapshot.core.check_kept(&self.snapshot).await?;
                self.is_exhausted = page.exhausted;
                self.ready = page.documents.into();
                continue;
            }
            self.part = match self.part {
                Part::Locked => Part::Matching,
                Part::Matching => Part::Newer,
                Part::Newer => return Ok(None),
            };
            let find = of_part(self.part, &self.find, self.snapshot.at);
            self.cursor = self.snapshot.core.rows.store.find(find).await?;
            self.is_exhausted = false;
        }
    }

    /// The next document that matches in the snapshot.
    async fn next_match(&mut self) -> StoreResult<Option<RawDocumentBuf>> {
        while let Some(row) = self.next_row().await? {
            if self.part == Part::Locked {
                let key = Key { namespace: self.namespace.clone(), id: row.id.clone() };
                self.snapshot.judged(&key, row).await?;
                continue;
            }
            if !self.seen.insert(encoded(row.id.as_raw_bson_ref())) {
                continue;
            }
            let key = Key { namespace: self.namespace.clone(), id: row.id.clone() };
            let Some(document) = self.snapshot.judged(&key, row).await? else { continue };
            if self.selection.filter().matches(&document, self.selection.context())? {
                return Ok(Some(document));
            }
        }
        Ok(None)
    }

    async fn peek(&mut self) -> StoreResult<Option<&RawDocumentBuf>> {
        while self.next.is_none() && self.left > 0 {
            let Some(document) = self.next_match().await? else {
                self.left = 0;
                break;
            };
            if self.to_skip > 0 {
                self.to_skip -= 1;
                continue;
            }
            self.left -= 1;
            self.next = Some(self.selection.shown(document)?);
        }
        Ok(self.next.as_ref())
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
    Find::new(find.namespace.clone(), filter)
}

#[async_trait]
impl Cursor for Scan {
    async fn next_page(&mut self, limit: BatchLimit) -> StoreResult<Page> {
        let mut page = Page::default();
        let mut bytes = 0_usize;
        loop {
            let Some(document) = self.peek().await? else {
                page.exhausted = true;
                return Ok(page);
            };
            bytes = bytes.saturating_add(document.as_bytes().len());
            let full = page.documents.len() >= limit.documents || bytes > limit.bytes;
            if full && !page.documents.is_empty() {
                return Ok(page);
            }
            page.documents.extend(self.next.take());
        }
    }
}
