//! What an operator looks at: which transactions hold locks, for how long, and up to where rows may forget.
//!
//! Nothing here is needed for the engine to work: what is abandoned is resolved by whoever meets it, and by the cleaner. Who
//! looks changes nothing, and takes no timestamp: ages are by this machine's clock, or by the oracle's time if that is ahead.
//! Only [`Percolator::resolve`] goes by the oracle's time alone, as all who take locks away.

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
    /// The start of its transaction, which tells it from all others.
    pub start: Timestamp,
    /// The document where the transaction is decided.
    pub primary: Key,
    /// Whether the transaction deletes the document.
    pub deletes: bool,
    /// How long ago the transaction began, by the oracle's time.
    pub age: Duration,
    /// Whether it counts as abandoned: whoever meets it may roll the transaction back.
    pub is_expired: bool,
}

/// A transaction of which locks are in the store.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenTransaction {
    /// Its start, which tells it from all others.
    pub start: Timestamp,
    /// The document where it is decided.
    pub primary: Key,
    /// Its locks, of those that were looked at.
    pub locks: u64,
    /// How long ago it began.
    pub age: Duration,
    /// What became of it.
    pub decided: Decided,
}

/// What became of a transaction of which a lock was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decided {
    /// It has committed: what is locked is to be rolled forward.
    Committed(Timestamp),
    /// It was rolled back: what is locked is to be released.
    RolledBack,
    /// It may still commit.
    Open,
    /// Nobody has given a sign of life for it in time: it may be rolled back.
    Abandoned,
}

/// Up to where rows may forget, and what holds that up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SafePoints {
    /// The oracle's time.
    pub now: Timestamp,
    /// A transaction that began before this has ended, or ends without a commit.
    pub messages: Timestamp,
    /// Nobody reads before this.
    pub readers: Timestamp,
    /// The oldest snapshots of processes that read old ones: they hold `readers` back.
    pub leases: Vec<Timestamp>,
}

/// A collection of the store that has another name for users, or none any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCollection {
    /// The name that users know it by; none if it was dropped. It is removed when no snapshot can read it any more.
    pub name: Option<Namespace>,
    /// Its name in the store.
    pub stored: Namespace,
}

impl Percolator {
    /// The collections whose names in the store are not those that users know them by, sorted by these names; then those that
    /// were dropped.
    pub async fn stored_collections(&self) -> StoreResult<Vec<StoredCollection>> {
        let catalog = self.core.newest_catalog().await?;
        let renamed = catalog.mapping.listed().filter(|(name, stored)| name != stored);
        let renamed =
            renamed.map(|(name, stored)| StoredCollection { name: Some(name.clone()), stored: stored.clone() });
        let retired = catalog.mapping.retired().map(|stored| StoredCollection { name: None, stored: stored.clone() });
        Ok(renamed.chain(retired).collect())
    }

    /// The locks in all collections, oldest first, as many as this; only those of one transaction, if that is asked for. What is
    /// locked is not read, however large it is.
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
                    // Somebody may have released it between the search and the answer.
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

    /// How many locks there are in all collections.
    pub async fn count_locks(&self) -> StoreResult<u64> {
        let mut count = 0;
        for namespace in self.core.namespaces().await? {
            count += self.core.rows.store.count(Count::new(namespace, locked())).await?;
        }
        Ok(count)
    }

    /// What became of a transaction of which a lock is there; none if there is no lock of it.
    pub async fn decided(&self, start: Timestamp) -> StoreResult<Option<Decided>> {
        let Some(lock) = self.locks(Some(start), 1).await?.into_iter().next() else { return Ok(None) };
        let now = self.core.oracle.peek().await?;
        self.decided_at(start, &lock.primary, lock.is_expired, now).await.map(Some)
    }

    /// What became of a transaction, by its primary; `is_expired` goes for one that the primary does not know.
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

    /// The transactions of the oldest locks, as many as this, oldest first. The primary of each is asked what became of it.
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

    /// Resolves the locks that are decided or abandoned: of one transaction, or of all. Those with which that fails are counted.
    ///
    /// # Errors
    /// Those of the store, if it is not a matter of some rows. What was done stays done.
    pub async fn resolve(&self, of: Option<Timestamp>) -> StoreResult<Cleaned> {
        let mut pass = CleaningPass::default();
        self.core.resolve_all(of, &mut pass).await?;
        Ok(pass.end())
    }

    /// Up to where rows may forget now; none if no transaction ever began here.
    pub async fn safe_points(&self) -> StoreResult<Option<SafePoints>> {
        let Some(now) = self.core.oracle.peek().await? else { return Ok(None) };
        let leases: Leases = self.core.rows.read_versioned().await?;
        let ages: Ages = self.core.rows.read_versioned().await?;
        let SafePoint { messages, readers } = self.core.safe_point_of(now, &ages, &leases);
        Ok(Some(SafePoints { now, messages, readers, leases: leases.snapshots().collect() }))
    }
}

/// Rows that a transaction has locked: this one, or any.
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
