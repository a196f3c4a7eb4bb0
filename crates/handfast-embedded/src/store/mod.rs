//! The store: a directory, opened.

mod background;
mod contract;
#[cfg(test)]
pub(crate) mod crash_points;
mod open;
#[cfg(test)]
mod power_loss;
#[cfg(test)]
pub(crate) mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use handfast_store::{Namespace, Sources};

use crate::Options;
use crate::catalog::Collection;
use crate::committer::{Committer, Shared, Snapshot};
use crate::write::build::Builds;

/// The embedded document store. A clone is another handle on the same store; the directory is free again when the last
/// handle, and the last cursor or snapshot of it, are gone.
#[derive(Clone)]
pub struct EmbeddedStore {
    pub(crate) inner: Arc<Inner>,
    /// Counts the handles that users have; the background task has another one.
    handles: Arc<()>,
}

pub(crate) struct Inner {
    pub(crate) committer: Committer,
    pub(crate) directory: PathBuf,
    pub(crate) sources: Sources,
    pub(crate) options: Options,
    /// Told when something was dropped whose keys are to be removed.
    pub(crate) removal: Arc<tokio::sync::Notify>,
    /// The indexes that are being built.
    pub(crate) builds: Arc<Builds>,
    /// The last handle is being closed: the background task begins nothing new.
    pub(crate) closing: std::sync::atomic::AtomicBool,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The background task sees that the store is gone.
        self.removal.notify_one();
    }
}

impl std::fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddedStore").field("timestamp", &self.snapshot_now().timestamp()).finish_non_exhaustive()
    }
}

/// What commits cost so far, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// Operations that the committer has answered.
    pub operations: u64,
    /// Syncs of the journal.
    pub syncs: u64,
    /// Documents that batches were about to write and had to read again, as nobody had said what was there, or somebody may have
    /// changed it since ([`BatchWrite::before`](handfast_store::BatchWrite::before)).
    pub reads: u64,
}

impl EmbeddedStore {
    /// What commits cost since the store was opened.
    pub fn costs(&self) -> Costs {
        let shared = self.shared();
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Costs { operations: read(&shared.operations), syncs: read(&shared.syncs), reads: read(&shared.reads) }
    }

    /// Snapshots that are in use: of cursors, of transactions, of requests that are being carried out. Each keeps in
    /// memory what is written after it, up to [`Options::snapshot_bytes_max`].
    pub fn snapshots_in_use(&self) -> usize {
        self.shared().publisher.in_use()
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        self.inner.committer.shared()
    }

    /// A handle for what goes on beside requests: the store can be closed while there is one.
    pub(crate) fn for_a_task(&self) -> Self {
        EmbeddedStore { inner: self.inner.clone(), handles: Arc::default() }
    }

    /// The snapshot for a reader that begins now.
    pub(crate) fn snapshot_now(&self) -> Snapshot {
        self.shared().publisher.current()
    }

    /// A collection at a snapshot.
    pub(crate) fn collection(&self, snapshot: &Snapshot, namespace: &Namespace) -> Option<Arc<Collection>> {
        snapshot.catalog().get(namespace).cloned()
    }

    /// A random id for a new collection (a UUID of version 4).
    pub(crate) fn uuid(&self) -> [u8; 16] {
        self.inner.sources.uuid()
    }
}
