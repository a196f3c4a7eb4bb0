//! The snapshot of a transaction: every document as of the transaction's start.
//!
//! A row has its version at a timestamp ([`read_at`]), unless it has the lock of a transaction that began before: that transaction may have
//! a commit timestamp below the snapshot without having moved its version in. Then its primary is read, and if it is open, the reader waits.
//!
//! The rows that were read are cached: a write of the transaction does not read them again.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bson::{RawArrayBuf, RawBson, RawBsonRef, RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_mql::key::encoded;
use handfast_store::selection::Candidate;
use handfast_store::{Error as StoreError, Find, Namespace, Result as StoreResult, StoreExt, insertion};

use super::core::{Core, LocalTime, conflict, lock};
use super::resolver::Resolved;
use super::row::{Body, Key, ReadResult, Row, Timestamp, read_at};
use crate::DocumentKey;

/// The most bytes of cached rows.
const KNOWN_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The first pause before a locked row is read again. Each further one is twice as long.
const PAUSE_FIRST: Duration = Duration::from_millis(1);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// A transaction's snapshot, with the rows that it has read.
pub(super) struct PercolatorSnapshot {
    pub(super) core: Arc<Core>,
    /// The start of the transaction.
    pub(super) at: Timestamp,
    /// The moment when it was requested.
    pub(super) begun: LocalTime,
    /// The deadline for waits of readers, on this process's monotonic clock.
    deadline: Duration,
    /// The version of the catalog that was in force at the start.
    pub(super) catalog: u64,
    /// Returns the names of the collections that were read.
    names: Mutex<BTreeSet<Namespace>>,
    known: Mutex<ReadRows>,
}

#[derive(Default)]
struct ReadRows {
    rows: HashMap<DocumentKey, Row>,
    bytes: usize,
}

impl PercolatorSnapshot {
    pub(super) fn new(core: Arc<Core>, at: Timestamp, begun: LocalTime, deadline: Duration, catalog: u64) -> Self {
        let (names, known) = (Mutex::default(), Mutex::default());
        PercolatorSnapshot { core, at, begun, deadline, catalog, names, known }
    }

    /// Returns the stored collection that a name stands for in the snapshot.
    pub(super) async fn collection(&self, name: &Namespace) -> StoreResult<Option<Namespace>> {
        lock(&self.names).insert(name.clone());
        let catalog = self.core.catalog_of(self.catalog).await?;
        Ok(catalog.mapping.collection(name, self.catalog))
    }

    /// Returns the names of the collections that were read.
    pub(super) fn names(&self) -> BTreeSet<Namespace> {
        lock(&self.names).clone()
    }

    /// Returns the time since the transaction began, including sleep of the machine.
    pub(super) fn age(&self) -> Duration {
        self.core.age(self.begun)
    }

    /// Returns the lifetime, from the start, of a lock that is written now. It goes by the monotonic clock: a time of day that is set forward
    /// does not prolong locks of a dead process.
    pub(super) fn lock_ttl(&self) -> Duration {
        self.core.counted_since(self.begun).saturating_add(self.core.options.lock_ttl)
    }

    /// Returns a row as it was read last, if it is cached.
    pub(super) fn cached_row(&self, key: &Key) -> Option<Row> {
        lock(&self.known).rows.get(&document_key(key)).cloned()
    }

    fn cache_row(&self, key: &Key, row: &Row) {
        let mut known = lock(&self.known);
        let bytes = row.to_document().as_bytes().len();
        if known.bytes.saturating_add(bytes) <= KNOWN_BYTES_MAX {
            known.bytes += bytes;
            known.rows.insert(document_key(key), row.clone());
        }
    }

    /// Reads a row from the store.
    async fn read(&self, key: &Key) -> StoreResult<Row> {
        let row = self.core.rows.read(key).await?;
        self.core.check_history_kept(self).await?;
        Ok(row)
    }

    /// Returns the document of a row in the snapshot.
    pub(super) async fn visible_document(&self, key: &Key, row: Row) -> StoreResult<Option<RawDocumentBuf>> {
        let row = self.wait_until_readable(key, row).await?;
        match read_at(&self.core.rolled_forward(&row), self.at) {
            ReadResult::Document(document) => Ok(Some(document.clone())),
            ReadResult::Nothing => Ok(None),
            ReadResult::TooOld | ReadResult::Locked(_) => Err(too_old(&key)),
        }
    }

    /// Returns a row once it can be read in the snapshot. Waits for transactions that may commit before the snapshot, while they send heartbeats.
    /// The lock of a committed transaction may still be there ([`Core::rolled_forward`]).
    ///
    /// # Errors
    /// `SnapshotTooOld` (239); `WriteConflict` (112) for a transaction that does not end before the reader's deadline or within the retention.
    async fn wait_until_readable(&self, key: &Key, mut row: Row) -> StoreResult<Row> {
        let (mut pause, mut waited, mut is_as_given) = (PAUSE_FIRST, Duration::ZERO, true);
        loop {
            match read_at(&self.core.rolled_forward(&row), self.at) {
                ReadResult::Document(_) | ReadResult::Nothing => break,
                ReadResult::TooOld => return Err(too_old(&key)),
                ReadResult::Locked(_) => is_as_given = false,
            }
            row = match self.core.learn_decision(key, row).await? {
                Resolved::Free(row) => row,
                Resolved::Alive if waited >= self.core.options.retention || self.core.elapsed() >= self.deadline => {
                    let text = format_args!("{key} was locked for {waited:?} by a transaction that does not end");
                    return Err(conflict(text));
                }
                Resolved::Alive => {
                    tokio::time::sleep(pause).await;
                    waited += pause;
                    pause = (pause * 2).min(PAUSE_MAX);
                    self.core.rows.read(key).await?
                }
            };
        }
        if !is_as_given {
            self.core.check_history_kept(self).await?;
        }
        self.cache_row(key, &row);
        Ok(row)
    }

    /// Returns the document with its commit timestamp.
    pub(super) async fn version(&self, key: &Key) -> StoreResult<Option<(Timestamp, RawDocumentBuf)>> {
        let row = match self.cached_row(key) {
            Some(row) => row,
            None => self.read(key).await?,
        };
        let row = self.wait_until_readable(key, row).await?;
        let row = self.core.rolled_forward(&row);
        let version = row.versions().find(|version| version.commit <= self.at);
        Ok(version.and_then(|version| match &version.body {
            Body::Document(document) => Some((version.commit, document.clone())),
            Body::Deleted | Body::Cut => None,
        }))
    }

    /// Returns the documents with these `_id`s, in their order.
    pub(super) async fn by_ids(&self, namespace: &Namespace, ids: Vec<RawBson>) -> StoreResult<Vec<RawDocumentBuf>> {
        let found = self.found_by_ids(namespace, ids, false).await?;
        Ok(found.into_iter().map(|found| found.document).collect())
    }

    /// Returns the documents with these `_id`s, in their order, optionally with the store's record ids.
    pub(super) async fn found_by_ids(
        &self,
        namespace: &Namespace,
        ids: Vec<RawBson>,
        shows_record: bool,
    ) -> StoreResult<Vec<Candidate>> {
        // The store would take a value that no `_id` can have for an operator or a pattern.
        let ids = ids.into_iter().filter(|id| insertion::check_id(id.as_raw_bson_ref()).is_ok());
        let keys: Vec<_> = ids.map(|id| Key { namespace: namespace.clone(), id }).collect();
        let known = |key: &Key| self.cached_row(key).filter(|_| !shows_record);
        let unknown: RawArrayBuf = keys.iter().filter(|key| known(key).is_none()).map(|key| key.id.clone()).collect();
        let mut read = HashMap::new();
        if !unknown.is_empty() {
            let filter = rawdoc! { "_id": { "$in": unknown } };
            let find = Find { show_record_id: shows_record, ..Find::new(namespace.clone(), filter) };
            for document in self.core.rows.store.find_all(find).await? {
                let (row, record) = row_with_record_id(document, shows_record)?;
                read.insert(encoded(row.id.as_raw_bson_ref()), (row, record));
            }
            self.core.check_history_kept(self).await?;
        }
        let mut found = Vec::new();
        for key in keys {
            let known = known(&key).map(|row| (row, None));
            let row = known.or_else(|| read.remove(&encoded(key.id.as_raw_bson_ref())));
            let (row, record) = row.unwrap_or_else(|| (Row::missing(key.id.clone()), None));
            let document = self.visible_document(&key, row).await?;
            found.extend(document.map(|document| Candidate { record, ..document.into() }));
        }
        Ok(found)
    }
}

impl Drop for PercolatorSnapshot {
    fn drop(&mut self) {
        self.core.close_snapshot(self.at);
    }
}

fn document_key(key: &Key) -> DocumentKey {
    DocumentKey::new(&key.namespace, key.id.as_raw_bson_ref())
}

/// Reads a row from a stored document, optionally with the record id, which the store appends to its fields.
///
/// # Errors
/// `CommandNotSupported` (115) if the store does not append it; `InternalError` (1) for a damaged row.
pub(super) fn row_with_record_id(document: RawDocumentBuf, shows_record: bool) -> StoreResult<(Row, Option<i64>)> {
    if !shows_record {
        return Ok((Row::from_document(&document)?, None));
    }
    let mut own = RawDocumentBuf::new();
    let mut record = None;
    for (name, value) in document.iter().flatten() {
        match (name.as_str(), value) {
            ("$recordId", RawBsonRef::Int64(id)) => record = Some(id),
            _ => own.append(name, value),
        }
    }
    if record.is_none() {
        let text = "the store shows no ids of its records: showRecordId is not possible on it";
        return Err(StoreError::command(Code::CommandNotSupported, text));
    }
    Ok((Row::from_document(&own)?, record))
}

pub(super) fn too_old(what: &dyn std::fmt::Display) -> StoreError {
    let text =
        format!("the version of {what} that the transaction needs is not kept any more: run the transaction again");
    StoreError::command(Code::SnapshotTooOld, text)
}
