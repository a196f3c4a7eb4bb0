//! Keeps history for the open snapshots of all processes.
//!
//! A collector must not remove versions that a snapshot of another process still reads, and it does not know the snapshots of others.
//! So history is kept for the retention, and a process with an older snapshot says so by a lease:
//!
//! ```text
//! age of a snapshot     0 ............ retention/2 .................. retention ......................
//! its history           is kept for all                                                                is kept by the lease
//!                                      a lease is taken: by the oracle still before this ^
//! its reads             by the monotonic clock           and a look at the lease after each
//! ```
//!
//! A short transaction sends no request for this. A process with a snapshot older than half of the retention takes a lease
//! ([`super::leases`]), sends heartbeats, and releases it when the snapshot is closed.
//!
//! # Why no reader misses a version
//!
//! A collector fetches a timestamp, then reads the leases, removes the expired ones, and removes history below the lowest of
//! three timestamps: one that was given out at least one retention ago ([`super::ages`]), the fetched one minus the retention, and the
//! oldest lease that is left.
//!
//! - *A young snapshot needs no lease.* A snapshot is given out before each timestamp above it. When its versions may be removed, a whole
//!   retention has passed since then by monotonic clocks. Its own process then sees an age of more than half the retention on one of its clocks
//!   (the greater age counts), and so has taken a lease.
//! - *The lease was taken in time.* After a lease is there, its process fetches a timestamp. If that is no more than the retention above the
//!   snapshot, then so was that of every collector that read the leases before, and it has left the snapshot alone;
//!   a collector that reads them later finds the lease. If it is more, the snapshot is given up.
//! - *The lease is checked afterwards.* A reader in an old snapshot checks, after it has the rows, whether the lease is still there. If
//!   it is, nothing that it needed had been removed when it read: a collector removes the lease first.
//! - *The lease was lost.* A process that was slow finds its lease gone and takes a new one, in time or not, as above.
//!
//! No step compares two clocks. The reader's clocks decide when it takes a lease, and the collectors' clocks decide for how long a dead
//! process holds others up. If a machine is stopped within a snapshot for longer than half of the retention, and its time of day does not
//! show it afterwards, a reader may miss versions there. A transaction with such reads cannot commit ([`super::committer`] compares
//! oracle times).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use handfast_store::Result as StoreResult;
use tokio::sync::Notify;

use super::ages::Ages;
use super::core::{Core, LocalTime, conflict, lock};
use super::leases::{LeaseId, LeaseWatch, Leases};
use super::row::{SafePoint, Timestamp};
use super::snapshot::{PercolatorSnapshot, too_old};

/// The most attempts at a lease. An attempt fails if others removed the lease, or it was too late for the oldest snapshot.
const ATTEMPTS_MAX: usize = 8;
/// The shortest interval between two checks whether a lease is needed.
const INTERVAL_MIN: Duration = Duration::from_millis(10);

/// The lease of this process for its old snapshots, and its watch on the leases of others.
#[derive(Default)]
pub(super) struct HistoryLease {
    /// A lease that may be in the store. Held by the task that changes it.
    stored: tokio::sync::Mutex<Option<LeaseId>>,
    held: Mutex<Option<HeldLease>>,
    /// The history of snapshots below this may have been removed.
    floor: AtomicU64,
    watched: Mutex<LeaseWatch>,
    /// Notified when a snapshot is closed while there is a lease.
    changed: Arc<Notify>,
    is_started: AtomicBool,
}

/// A lease that was taken in time.
#[derive(Clone, Copy)]
struct HeldLease {
    id: LeaseId,
    /// The oldest snapshot that it keeps. The stored lease reaches at least as far back.
    at: Timestamp,
}

impl HistoryLease {
    fn held(&self) -> Option<HeldLease> {
        *lock(&self.held)
    }

    fn hold(&self, held: Option<HeldLease>) {
        *lock(&self.held) = held;
    }

    fn floor(&self) -> Timestamp {
        Timestamp(self.floor.load(Ordering::SeqCst))
    }

    /// Notes that a snapshot was closed.
    pub(super) fn snapshot_closed(&self) {
        if self.held().is_some() {
            self.changed.notify_one();
        }
    }
}

impl Core {
    /// Checks that the history of a snapshot was complete until now. To be called after each read from the store.
    ///
    /// # Errors
    /// `SnapshotTooOld` (239) if some of it may have been removed.
    pub(super) async fn check_history_kept(&self, snapshot: &PercolatorSnapshot) -> StoreResult<()> {
        if !self.is_old(snapshot.begun) {
            return Ok(());
        }
        for _ in 0..ATTEMPTS_MAX {
            if snapshot.at < self.history_lease.floor() {
                break;
            }
            // A lease that does not reach that far back would be refused after a read of the store, too: this saves the read.
            let held = self.history_lease.held().filter(|held| held.at <= snapshot.at);
            if let Some(held) = held
                && self.rows.read_versioned::<Leases>().await?.keeps(held.id, snapshot.at)
            {
                return Ok(());
            }
            self.maintain_lease().await?;
        }
        Err(too_old(&"the snapshot"))
    }

    /// Returns whether a snapshot that began then needs a lease.
    fn is_old(&self, begun: LocalTime) -> bool {
        self.age(begun) > self.options.retention / 2
    }

    /// Returns the oldest snapshot to keep, if one needs a lease.
    fn oldest_to_keep(&self) -> Option<Timestamp> {
        let open = lock(&self.open);
        let mut kept = open.range(self.history_lease.floor()..);
        let oldest = *kept.clone().next()?.0;
        kept.any(|(_, open)| self.is_old(open.begun)).then_some(oldest)
    }

    /// Takes a lease if a snapshot needs one, renews it, or releases it if none does.
    pub(super) async fn maintain_lease(&self) -> StoreResult<()> {
        let mut stored = self.history_lease.stored.lock().await;
        for _ in 0..ATTEMPTS_MAX {
            let Some(at) = self.oldest_to_keep() else { return self.release_lease(&mut stored).await };
            if let Some(held) = self.history_lease.held().filter(|held| held.at <= at) {
                // Noted before the write, which may be done although its answer gets lost.
                self.history_lease.hold(Some(HeldLease { at, ..held }));
                if self.rows.change_versioned(|leases: &mut Leases| Ok(leases.renew(held.id, at))).await?.0 {
                    return Ok(());
                }
                self.history_lease.hold(None);
                *stored = None;
            }
            let id = *stored.get_or_insert_with(|| self.sources.uuid());
            let ttl = self.options.lease_ttl;
            self.rows.change_versioned(|leases: &mut Leases| leases.take(id, at, ttl)).await?;
            let now = self.oracle.next().await?;
            self.history_lease.floor.fetch_max(now.minus(self.options.retention).0, Ordering::SeqCst);
            if at >= self.history_lease.floor() {
                self.history_lease.hold(Some(HeldLease { id, at }));
                return Ok(());
            }
        }
        Err(conflict("a lease on old snapshots was taken away by others again and again"))
    }

    async fn release_lease(&self, stored: &mut Option<LeaseId>) -> StoreResult<()> {
        let Some(id) = *stored else { return Ok(()) };
        self.history_lease.hold(None);
        let leave = |leases: &mut Leases| {
            leases.leave(id);
            Ok(())
        };
        self.rows.change_versioned(leave).await?;
        *stored = None;
        Ok(())
    }

    /// Returns the safe point for a fetched timestamp and the known ages. Removes dead leases.
    pub(super) async fn safe_point(&self, now: Timestamp, ages: &Ages) -> StoreResult<SafePoint> {
        let asked = self.elapsed();
        let mut leases: Leases = self.rows.read_versioned().await?;
        let dead = lock(&self.history_lease.watched).dead(&leases, asked, self.elapsed());
        if !dead.is_empty() {
            tracing::warn!(
                leases = dead.len(),
                "processes with old snapshots send no heartbeat: their history is no longer kept"
            );
            let remove = |leases: &mut Leases| {
                leases.remove(&dead);
                Ok(())
            };
            leases = self.rows.change_versioned(remove).await?.1;
        }
        Ok(self.safe_point_of(now, ages, &leases))
    }

    /// Returns the safe point for these ages and leases.
    pub(super) fn safe_point_of(&self, now: Timestamp, ages: &Ages, leases: &Leases) -> SafePoint {
        let messages = self.older_than(self.options.retention, now, ages);
        let readers = leases.snapshots().min().map_or(messages, |oldest| oldest.min(messages));
        SafePoint { messages, readers }
    }

    /// Returns a timestamp that was given out `age` ago by monotonic clocks (for readers), and one retention before `now` by the oracle's time
    /// (for commits).
    pub(super) fn older_than(&self, age: Duration, now: Timestamp, ages: &Ages) -> Timestamp {
        ages.older_than(age).min(now.minus(self.options.retention))
    }

    /// Starts a task that maintains the lease until the engine is dropped. It has to be called within a runtime.
    pub(super) fn start_lease_upkeep(self: &Arc<Self>) {
        if self.history_lease.is_started.swap(true, Ordering::SeqCst) {
            return;
        }
        let interval = (self.options.lease_ttl / 3).min(self.options.retention / 8).max(INTERVAL_MIN);
        let (core, changed): (Weak<Core>, _) = (Arc::downgrade(self), Arc::clone(&self.history_lease.changed));
        tokio::spawn(async move {
            loop {
                let _ = tokio::time::timeout(interval, changed.notified()).await;
                let Some(core) = core.upgrade() else { return };
                if let Err(error) = core.maintain_lease().await {
                    tracing::warn!(%error, "the lease on old snapshots was not renewed: it is tried again");
                }
            }
        });
    }
}
