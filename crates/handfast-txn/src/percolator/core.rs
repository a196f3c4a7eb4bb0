//! The state that all transactions of an engine share.

use std::collections::BTreeMap;
use std::future::Future;
use std::hash::Hash;
use std::num::NonZeroUsize;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bson::DateTime;
use handfast_store::{Error as StoreError, Namespace, Result as StoreResult, Sources};
use lru::LruCache;
use tokio::sync::watch;

use super::ages::AgeWatch;
use super::definitions::Definitions;
use super::history_lease::HistoryLease;
use super::options::PercolatorOptions;
use super::oracle::{Moment, Oracle};
use super::resolver::{Decision, RollForwardQueue};
use super::row::{HistoryNeeds, Key, Timestamp};
use super::rows::Rows;
use super::snapshot::PercolatorSnapshot;
use crate::TransactionId;

/// The most transactions that are remembered to have no locks left. A forgotten one costs some bytes in its primary row until that is
/// collected.
const FINISHED_MAX: NonZeroUsize = NonZeroUsize::new(100_000).unwrap();
/// The most transactions whose outcome this process remembers.
const OUTCOMES_MAX: NonZeroUsize = NonZeroUsize::new(100_000).unwrap();
/// The most decisions that this process remembers. A forgotten one is read again from the primary.
const DECISIONS_MAX: NonZeroUsize = NonZeroUsize::new(100_000).unwrap();
/// The most collections whose indexes are remembered as checked. A forgotten one is checked again.
const CHECKED_MAX: NonZeroUsize = NonZeroUsize::new(10_000).unwrap();

/// The state that all transactions of an engine share.
pub(super) struct Core {
    pub(super) rows: Rows,
    pub(super) sources: Sources,
    pub(super) options: PercolatorOptions,
    pub(super) oracle: Oracle,
    pub(super) background: Background,
    /// The open snapshots of this process by timestamp, which is the start of their transaction.
    pub(super) open: Mutex<BTreeMap<Timestamp, OpenSnapshot>>,
    pub(super) history_lease: HistoryLease,
    /// A moment before the last snapshot was requested: the known version of the catalog is no older.
    catalog_as_of: Mutex<Option<LocalTime>>,
    pub(super) age_watch: Mutex<AgeWatch>,
    finished: Mutex<LruCache<Timestamp, ()>>,
    outcomes: Mutex<LruCache<TransactionId, KnownOutcome>>,
    decisions: Mutex<LruCache<Timestamp, Decision>>,
    pub(super) roll_forward_queue: Arc<Mutex<RollForwardQueue>>,
    /// The indexes that the engine keeps itself.
    pub(super) definitions: Definitions,
    /// Collections of the store that were seen to exist, without a unique index.
    checked: Mutex<LruCache<Namespace, ()>>,
    /// Whether it was logged that the store does not make the engine's own indexes.
    pub(super) missing_index_was_logged: Arc<AtomicBool>,
}

/// An open snapshot of this process.
pub(super) struct OpenSnapshot {
    pub(super) begun: LocalTime,
    snapshot: Weak<PercolatorSnapshot>,
}

/// A moment on both clocks of this process.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocalTime {
    elapsed: Duration,
    time_of_day: DateTime,
}

/// The outcome of a transaction's commit, as far as this process knows.
#[derive(Clone, Debug)]
pub(super) enum KnownOutcome {
    Committed(Timestamp),
    RolledBack,
    /// The primary has to be read.
    Unknown {
        start: Timestamp,
        primary: Key,
    },
}

impl Core {
    pub(super) fn new(rows: Rows, sources: Sources, options: PercolatorOptions, oracle: Oracle) -> Self {
        Core {
            rows,
            sources,
            options,
            oracle,
            background: Background::default(),
            open: Mutex::default(),
            history_lease: HistoryLease::default(),
            catalog_as_of: Mutex::default(),
            age_watch: Mutex::default(),
            finished: Mutex::new(empty_cache(FINISHED_MAX)),
            outcomes: Mutex::new(empty_cache(OUTCOMES_MAX)),
            decisions: Mutex::new(empty_cache(DECISIONS_MAX)),
            roll_forward_queue: Arc::default(),
            definitions: Definitions::default(),
            checked: Mutex::new(empty_cache(CHECKED_MAX)),
            missing_index_was_logged: Arc::default(),
        }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.sources.clock.elapsed()
    }

    pub(super) fn local_time(&self) -> LocalTime {
        LocalTime { elapsed: self.elapsed(), time_of_day: self.sources.clock.now() }
    }

    /// Returns the time since then by the monotonic clock: no more than has gone by.
    pub(super) fn counted_since(&self, then: LocalTime) -> Duration {
        self.elapsed().saturating_sub(then.elapsed)
    }

    /// Returns the time since then by the monotonic clock, or by the time of day if that is longer: a monotonic clock may stop while its
    /// machine sleeps.
    pub(super) fn age(&self, then: LocalTime) -> Duration {
        let millis = self.sources.clock.now().timestamp_millis().saturating_sub(then.time_of_day.timestamp_millis());
        self.counted_since(then).max(Duration::from_millis(u64::try_from(millis).unwrap_or(0)))
    }

    /// Takes a new snapshot.
    pub(super) async fn begin(self: &Arc<Self>) -> StoreResult<Arc<PercolatorSnapshot>> {
        self.begin_until(Duration::MAX).await
    }

    /// Takes a new snapshot whose reads wait for other transactions up to a deadline on this process's monotonic clock.
    pub(super) async fn begin_until(self: &Arc<Self>, deadline: Duration) -> StoreResult<Arc<PercolatorSnapshot>> {
        let begun = self.local_time();
        let Moment { at, catalog } = self.oracle.moment().await?;
        *lock(&self.catalog_as_of) = Some(begun);
        let snapshot = Arc::new(PercolatorSnapshot::new(Arc::clone(self), at, begun, deadline, catalog));
        lock(&self.open).insert(at, OpenSnapshot { begun, snapshot: Arc::downgrade(&snapshot) });
        self.start_lease_upkeep();
        Ok(snapshot)
    }

    /// Returns whether this process knows a catalog so new that no collection that has a name in it was removed since.
    pub(super) fn has_recent_catalog(&self) -> bool {
        lock(&self.catalog_as_of).is_some_and(|catalog_as_of| self.age(catalog_as_of) <= self.options.retention / 4)
    }

    /// Notes that a snapshot is closed.
    pub(super) fn close_snapshot(&self, at: Timestamp) {
        lock(&self.open).remove(&at);
        self.history_lease.snapshot_closed();
    }

    pub(super) fn open_snapshot(&self, at: Timestamp) -> Option<Arc<PercolatorSnapshot>> {
        lock(&self.open).get(&at)?.snapshot.upgrade()
    }

    pub(super) fn is_checked(&self, namespace: &Namespace) -> bool {
        lock(&self.checked).get(namespace).is_some()
    }

    pub(super) fn note_checked(&self, namespace: &Namespace) {
        lock(&self.checked).put(namespace.clone(), ());
    }

    /// Forgets all checked collections, as a change of the catalog may have dropped some.
    pub(super) fn forget_checked(&self) {
        *lock(&self.checked) = empty_cache(CHECKED_MAX);
    }

    /// Notes that a transaction has no locks left.
    pub(super) fn finish(&self, start: Timestamp) {
        lock(&self.finished).put(start, ());
    }

    /// Returns the decision of a transaction, if this process knows it.
    pub(super) fn known_decision(&self, start: Timestamp) -> Option<Decision> {
        lock(&self.decisions).get(&start).copied()
    }

    pub(super) fn remember_decision(&self, start: Timestamp, decision: Decision) {
        lock(&self.decisions).put(start, decision);
    }

    pub(super) fn remember_outcome(&self, id: TransactionId, outcome: KnownOutcome) {
        lock(&self.outcomes).put(id, outcome);
    }

    pub(super) fn known_outcome(&self, id: TransactionId) -> Option<KnownOutcome> {
        lock(&self.outcomes).get(&id).cloned()
    }
}

impl HistoryNeeds for Core {
    fn is_finished(&self, start: Timestamp) -> bool {
        lock(&self.finished).get(&start).is_some()
    }

    fn oldest_reader(&self) -> Timestamp {
        lock(&self.open).keys().next().copied().unwrap_or(Timestamp(u64::MAX))
    }
}

/// Returns an empty cache of at most `entries_max` entries. It allocates memory as it fills: [`LruCache::new`] allocates it all at once.
pub(super) fn empty_cache<K: Hash + Eq, V>(entries_max: NonZeroUsize) -> LruCache<K, V> {
    let mut cache = LruCache::unbounded();
    cache.resize(entries_max);
    cache
}

/// Counts the tasks that run in the background.
#[derive(Default)]
pub(super) struct Background {
    running: watch::Sender<usize>,
}

struct Running(watch::Sender<usize>);

impl Background {
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.running.send_modify(|running| *running += 1);
        let running = Running(self.running.clone());
        tokio::spawn(async move {
            work.await;
            drop(running);
        });
    }

    /// Returns once no task is running.
    pub(super) async fn idle(&self) {
        // The sender exists, so waiting cannot fail.
        let _ = self.running.subscribe().wait_for(|running| *running == 0).await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.send_modify(|running| *running = running.saturating_sub(1));
    }
}

/// Locks a mutex, also a poisoned one: no code that holds it can panic in the middle of a change.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the error after which a transaction has to be run again.
pub(super) fn conflict(why: impl std::fmt::Display) -> StoreError {
    StoreError::command(handfast_mql::Code::WriteConflict, format!("write conflict: {why}"))
}
