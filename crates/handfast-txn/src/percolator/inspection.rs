//! Inspection for operators: transactions that hold locks, their age, and the safe point.
//!
//! The engine does not need it: readers and the cleaner resolve abandoned locks. Inspection writes nothing and takes no timestamp: ages are by
//! this machine's clock, or by the oracle's time if that is ahead. Only [`Percolator::resolve`], which removes locks, goes by the oracle's
//! time alone.

use std::collections::BTreeMap;
use std::time::Duration;

use bson::{RawDocumentBuf, rawdoc};
use handfast_store::{Count, DocumentStore, Find, Namespace, Result as StoreResult};

use super::Percolator;
use super::ages::Ages;
use super::cleaner::{Cleaned, CleaningPass};
use super::leases::Leases;
use super::row::{Key, LockHeading, PrimaryStatus, SafePoint, Status, Timestamp, is_over};
use super::rows::locked;
use super::scan::PAGE;

/// A lock that is in the store.
#[derive(Clone, Debug, PartialEq)]
pub struct HeldLock {
    /// The document.
    pub key: Key,
    /// The start of its transaction, which identifies it.
    pub start: Timestamp,
    /// The primary row of the transaction.
    pub primary: Key,
    /// Whether the transaction deletes the document.
    pub deletes: bool,
    /// The time since the transaction began, by the oracle.
    pub age: Duration,
    /// Whether it has expired: any reader may roll the transaction back.
    pub is_expired: bool,
}

/// A transaction with locks in the store.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenTransaction {
    /// Its start, which identifies it.
    pub start: Timestamp,
    /// Its primary row.
    pub primary: Key,
    /// The number of its locks among those that were read.
    pub locks: u64,
    /// The time since it began.
    pub age: Duration,
    /// Its status.
    pub decided: Decided,
}

/// The status of a transaction with locks in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decided {
    /// It has committed: its locks are to be rolled forward.
    Committed(Timestamp),
    /// It was rolled back: its locks are to be removed.
    RolledBack,
    /// It may still commit.
    Open,
    /// Its locks have expired without a heartbeat: it may be rolled back.
    Abandoned,
}

/// The safe point, and the leases that hold it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SafePoints {
    /// The oracle's time.
    pub now: Timestamp,
    /// Each transaction that began before this has ended, or will not commit.
    pub messages: Timestamp,
    /// Snapshots before this are not read any more.
    pub readers: Timestamp,
    /// The oldest snapshots of processes that read old ones: they hold `readers` back.
    pub leases: Vec<Timestamp>,
}

/// A stored collection that has another name for users, or none any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCollection {
    /// The users' name; `None` if it was dropped. It is removed when no snapshot can read it any more.
    pub name: Option<Namespace>,
    /// Its name in the store.
    pub stored: Namespace,
}

impl Percolator {
    /// Returns the collections with another name in the store than for users, sorted by the users' names; then the dropped ones.
    pub async fn stored_collections(&self) -> StoreResult<Vec<StoredCollection>> {
        let catalog = self.core.newest_catalog().await?;
        let renamed = catalog.mapping.listed().filter(|(name, stored)| name != stored);
        let renamed =
            renamed.map(|(name, stored)| StoredCollection { name: Some(name.clone()), stored: stored.clone() });
        let retired = catalog.mapping.retired().map(|stored| StoredCollection { name: None, stored: stored.clone() });
        Ok(renamed.chain(retired).collect())
    }

    /// Returns up to `limit` locks of all collections, or of one transaction, oldest first. The locked documents are not read.
    pub async fn locks(&self, of: Option<Timestamp>, limit: u64) -> StoreResult<Vec<HeldLock>> {
        // Without timestamps there are no transactions.
        let Some(now) = self.core.oracle.peek().await? else { return Ok(Vec::new()) };
        let mut held = Vec::new();
        for namespace in self.core.namespaces().await? {
            let sort = rawdoc! { "_hf.lock.s": 1 };
            let projection = LockHeading::projection();
            let find = Find { sort, limit: Some(limit), projection, ..Find::new(namespace.clone(), locked_by(of)) };
            let mut cursor = self.core.rows.store.find(find).await?;
            loop {
                let documents = cursor.next_page(PAGE).await?.documents;
                if documents.is_empty() {
                    break;
                }
                for document in &documents {
                    // The lock may have been removed between the search and the answer.
                    if let (id, Some(heading)) = LockHeading::from_document(document)? {
                        held.push(held_lock(Key { namespace: namespace.clone(), id }, heading, now));
                    }
                }
            }
        }
        held.sort_by_key(|lock| lock.start);
        held.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(held)
    }

    /// Returns the number of locks in all collections.
    pub async fn count_locks(&self) -> StoreResult<u64> {
        let mut count = 0;
        for namespace in self.core.namespaces().await? {
            count += self.core.rows.store.count(Count::new(namespace, locked())).await?;
        }
        Ok(count)
    }

    /// Returns the status of a transaction; `None` if it has no lock.
    pub async fn decided(&self, start: Timestamp) -> StoreResult<Option<Decided>> {
        let Some(lock) = self.locks(Some(start), 1).await?.into_iter().next() else { return Ok(None) };
        let now = self.core.oracle.peek().await?;
        self.decided_at(start, &lock.primary, lock.is_expired, now).await.map(Some)
    }

    /// Returns the status of a transaction by its primary. `is_expired` applies if the primary has no trace of it.
    async fn decided_at(
        &self,
        start: Timestamp,
        primary: &Key,
        is_expired: bool,
        now: Option<Timestamp>,
    ) -> StoreResult<Decided> {
        let PrimaryStatus { status, ttl } = self.core.rows.primary_status(primary, start).await?;
        Ok(match status {
            Status::Committed(at) => Decided::Committed(at),
            Status::RolledBack => Decided::RolledBack,
            Status::Locked | Status::Unknown => {
                let is_expired = ttl.zip(now).map_or(is_expired, |(ttl, now)| is_over(start, ttl, now));
                if is_expired { Decided::Abandoned } else { Decided::Open }
            }
        })
    }

    /// Returns the transactions of the `locks_max` oldest locks, oldest first, each with its status by its primary.
    pub async fn transactions(&self, locks_max: u64) -> StoreResult<Vec<OpenTransaction>> {
        let mut open: BTreeMap<Timestamp, (OpenTransaction, bool)> = BTreeMap::new();
        for HeldLock { start, primary, age, is_expired, .. } in self.locks(None, locks_max).await? {
            let first = || (OpenTransaction { start, primary, locks: 0, age, decided: Decided::Open }, true);
            let (transaction, are_expired) = open.entry(start).or_insert_with(first);
            transaction.locks += 1;
            *are_expired &= is_expired;
        }
        let now = self.core.oracle.peek().await?;
        let mut transactions = Vec::with_capacity(open.len());
        for (mut transaction, are_expired) in open.into_values() {
            let OpenTransaction { start, primary, .. } = &transaction;
            transaction.decided = self.decided_at(*start, primary, are_expired, now).await?;
            transactions.push(transaction);
        }
        Ok(transactions)
    }

    /// Resolves the locks of decided and abandoned transactions, or of one transaction. Failures are counted.
    ///
    /// # Errors
    /// Returns errors of the store that concern more than single rows. Changes that were made before an error remain.
    pub async fn resolve(&self, of: Option<Timestamp>) -> StoreResult<Cleaned> {
        let mut pass = CleaningPass::default();
        self.core.resolve_all(of, &mut pass).await?;
        Ok(pass.end())
    }

    /// Returns the present safe point; `None` if no transaction ever began on this store.
    pub async fn safe_points(&self) -> StoreResult<Option<SafePoints>> {
        let Some(now) = self.core.oracle.peek().await? else { return Ok(None) };
        let leases: Leases = self.core.rows.read_versioned().await?;
        let ages: Ages = self.core.rows.read_versioned().await?;
        let SafePoint { messages, readers } = self.core.safe_point_of(now, &ages, &leases);
        Ok(Some(SafePoints { now, messages, readers, leases: leases.snapshots().collect() }))
    }
}

/// Returns a filter for rows locked by one transaction, or by any.
pub(super) fn locked_by(of: Option<Timestamp>) -> RawDocumentBuf {
    of.map_or_else(locked, |start| rawdoc! { "_hf.lock.s": start.stored() })
}

fn held_lock(key: Key, lock: LockHeading, now: Timestamp) -> HeldLock {
    HeldLock {
        key,
        start: lock.start,
        deletes: lock.deletes,
        age: Duration::from_millis(now.millis().saturating_sub(lock.start.millis())),
        is_expired: lock.is_expired(now),
        primary: lock.primary,
    }
}
