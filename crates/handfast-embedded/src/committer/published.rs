//! The published state, which readers take their snapshots from and the committer replaces as a whole.
//!
//! A snapshot costs memory: the engine keeps its write buffers and all later ones, also those that are on the disk already.
//! So there is a bound on the bytes written after a snapshot; older snapshots are ended, and reading on from one fails with
//! `SnapshotTooOld` (239).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use handfast_mql::Code;
use handfast_store::{CommitTimestamp, Error as StoreError, Result as StoreResult};

use super::Latest;
use crate::catalog::Catalog;
use crate::engine::View;

/// The state of the store after one commit. A clone is cheap; the engine keeps old data on the disk while a clone lives.
#[derive(Clone)]
pub(crate) struct Snapshot(Arc<SnapshotState>);

struct SnapshotState {
    timestamp: CommitTimestamp,
    /// The bytes that the engine had written then.
    written_bytes: u64,
    /// `None` once the snapshot was ended.
    view: Mutex<Option<Arc<dyn View>>>,
    catalog: Arc<Catalog>,
    snapshots: Arc<SnapshotsInUse>,
}

/// The snapshots in use, oldest first. Several can have the same timestamp.
#[derive(Default)]
struct SnapshotsInUse(Mutex<BTreeMap<CommitTimestamp, Vec<Weak<SnapshotState>>>>);

impl SnapshotsInUse {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<CommitTimestamp, Vec<Weak<SnapshotState>>>> {
        // No code that holds the lock can panic half way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Snapshot {
    pub(crate) fn timestamp(&self) -> CommitTimestamp {
        self.0.timestamp
    }

    /// Returns the engine's view, for one page: a view that is held for long keeps memory in use.
    ///
    /// # Errors
    /// `SnapshotTooOld` (239) if the snapshot was ended.
    pub(crate) fn view(&self) -> StoreResult<Arc<dyn View>> {
        let view = self.0.view.lock().unwrap_or_else(PoisonError::into_inner).clone();
        view.ok_or_else(|| {
            let text = "the snapshot was ended because it kept too much memory in use: read again from a new one";
            StoreError::command(Code::SnapshotTooOld, text)
        })
    }

    pub(crate) fn catalog(&self) -> &Arc<Catalog> {
        &self.0.catalog
    }
}

impl Drop for SnapshotState {
    fn drop(&mut self) {
        let mut snapshots = self.snapshots.lock();
        if let Some(held) = snapshots.get_mut(&self.timestamp) {
            // The snapshot that is dropped can no longer be upgraded.
            held.retain(|other| other.strong_count() > 0);
            if held.is_empty() {
                snapshots.remove(&self.timestamp);
            }
        }
    }
}

/// Holds the published snapshot.
pub(crate) struct Publisher {
    current: Mutex<Snapshot>,
    snapshots: Arc<SnapshotsInUse>,
}

impl Publisher {
    pub(crate) fn new(state: Latest, written_bytes: u64) -> Self {
        let snapshots = Arc::new(SnapshotsInUse::default());
        let first = snapshot_of(&snapshots, state, written_bytes);
        Publisher { current: Mutex::new(first), snapshots }
    }

    /// Returns the published snapshot.
    pub(crate) fn current(&self) -> Snapshot {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the published snapshot.
    pub(super) fn publish(&self, state: Latest, written_bytes: u64) {
        let next = snapshot_of(&self.snapshots, state, written_bytes);
        let before = std::mem::replace(&mut *self.current.lock().unwrap_or_else(PoisonError::into_inner), next);
        // Freed outside of the lock, so that readers do not wait.
        drop(before);
    }

    /// Makes a snapshot of a state that is not published, to search in. It is ended like any other.
    pub(crate) fn snapshot_of(&self, state: Latest, written_bytes: u64) -> Snapshot {
        snapshot_of(&self.snapshots, state, written_bytes)
    }

    /// Returns the timestamp of the oldest snapshot in use.
    pub(crate) fn oldest(&self) -> CommitTimestamp {
        self.snapshots.lock().keys().next().copied().unwrap_or_default()
    }

    /// Returns the number of snapshots that readers hold.
    pub(crate) fn in_use(&self) -> usize {
        let held: usize = self.snapshots.lock().values().flatten().map(Weak::strong_count).sum();
        // The publisher holds the current one.
        held.saturating_sub(1)
    }

    /// Ends the snapshots, except the current one, that were taken before `written_bytes` bytes had been written. Returns their number.
    pub(super) fn end_before(&self, written_bytes: u64) -> usize {
        let current = self.current().timestamp();
        // Upgraded outside of the lock: this may become the last owner of a snapshot, whose drop takes the lock.
        let old: Vec<Weak<SnapshotState>> =
            self.snapshots.lock().range(..current).flat_map(|(_, held)| held.clone()).collect();
        let old = old.iter().filter_map(Weak::upgrade);
        old.filter(|held| held.written_bytes < written_bytes && held.is_open()).inspect(|held| held.end()).count()
    }
}

impl SnapshotState {
    fn is_open(&self) -> bool {
        self.view.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn end(&self) {
        let view = self.view.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(view);
    }
}

fn snapshot_of(snapshots: &Arc<SnapshotsInUse>, state: Latest, written_bytes: u64) -> Snapshot {
    let Latest { timestamp, view, catalog } = state;
    let held = Arc::new(SnapshotState {
        timestamp,
        written_bytes,
        view: Mutex::new(Some(view)),
        catalog,
        snapshots: snapshots.clone(),
    });
    snapshots.lock().entry(timestamp).or_default().push(Arc::downgrade(&held));
    Snapshot(held)
}
