//! The store: a directory, opened.

mod atomic;
mod background;
mod changes;
mod check;
mod contract;
mod open;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bson::DateTime;
use handfast_store::{CommitTimestamp, Durations, Namespace, Result as StoreResult, blocking};

use crate::backup::{self, Backup, must_be_outside};
use crate::committer::Snapshot;
use crate::read::find::SnapshotReader;
use crate::salvage::Salvage;
use crate::write::context::WriteContext;
use crate::write::{expiry, key_removal};

pub use check::check;
#[cfg(test)]
pub(crate) use open::assemble;

/// The embedded document store. A clone is another handle on the same store; the directory is free again when the last
/// handle, and the last cursor or snapshot of it, are gone.
#[derive(Clone)]
pub struct EmbeddedStore {
    pub(crate) context: Arc<WriteContext>,
    directory: Arc<Path>,
    /// Counts the handles that users have; background tasks hold the context alone.
    handles: Arc<()>,
}

impl std::fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let timestamp = self.context.snapshot().timestamp();
        f.debug_struct("EmbeddedStore").field("timestamp", &timestamp).finish_non_exhaustive()
    }
}

/// Counters of the work that commits caused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// Operations that the committer has answered.
    pub operations: u64,
    /// Syncs of the journal.
    pub syncs: u64,
    /// Documents that batches read again before they wrote them, as the batch did not say what was there, or another operation may
    /// have changed it since ([`BatchWrite::before`](handfast_store::BatchWrite::before)).
    pub reads: u64,
}

impl EmbeddedStore {
    /// Returns the counters since the store was opened.
    pub fn costs(&self) -> Costs {
        let shared = self.context.shared();
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Costs { operations: read(&shared.operations), syncs: read(&shared.syncs), reads: read(&shared.reads) }
    }

    /// Returns the durations of the syncs of the journal since the store was opened.
    pub fn sync_durations(&self) -> &Durations {
        &self.context.shared().sync_durations
    }

    /// Returns the timestamp of the newest commit that readers see.
    pub fn newest_commit(&self) -> CommitTimestamp {
        self.context.snapshot().timestamp()
    }

    /// Returns the timestamp of the oldest snapshot in use; that of the newest commit if nobody reads an older one.
    pub fn oldest_snapshot(&self) -> CommitTimestamp {
        self.context.shared().publisher.oldest()
    }

    /// Returns the number of snapshots in use: of cursors, of transactions, of running requests. Each keeps the later writes in
    /// memory, up to [`Options::snapshot_bytes_max`](crate::Options::snapshot_bytes_max).
    pub fn snapshots_in_use(&self) -> usize {
        self.context.shared().publisher.in_use()
    }

    /// Copies the store, as it is now, into a directory that does not exist or is empty. Writers continue meanwhile.
    ///
    /// # Errors
    /// `IllegalOperation` (20) for a destination within the store's own directory; `DataCorruptionDetected` (354) for a
    /// damaged record; `SnapshotTooOld` (239) if writers fill so much memory meanwhile that the snapshot is ended
    /// ([`Options::snapshot_bytes_max`](crate::Options::snapshot_bytes_max)); errors of the file system.
    pub async fn backup(&self, destination: impl AsRef<Path>) -> StoreResult<Backup> {
        let destination = destination.as_ref().to_owned();
        must_be_outside(&self.directory, &destination)?;
        let (snapshot, options) = (self.context.snapshot(), self.context.options.clone());
        blocking(move || backup::copy(&snapshot, &destination, &options)).await
    }

    /// Reads a collection as it is now, around its damage. Returns no documents if there is no such collection.
    pub fn salvage(&self, namespace: &Namespace) -> Salvage {
        Salvage::new(self.context.snapshot(), namespace)
    }

    /// Removes all documents that have expired at `now`, and returns their number.
    ///
    /// # Errors
    /// Returns the first error of a write. The documents that expired under other indexes are removed all the same.
    pub async fn expire(&self, now: DateTime) -> StoreResult<u64> {
        expiry::expire(&self.context, now).await
    }

    /// Removes all keys of the collections and indexes that were dropped before the call.
    ///
    /// # Errors
    /// Returns the error of a write.
    pub async fn remove_dropped(&self) -> StoreResult<()> {
        key_removal::remove_dropped(&self.context).await
    }

    /// Returns a reader of the published snapshot.
    fn reader(&self) -> SnapshotReader {
        self.reader_of(self.context.snapshot())
    }

    fn reader_of(&self, snapshot: Snapshot) -> SnapshotReader {
        SnapshotReader { snapshot, sources: self.context.sources.clone(), verify: self.context.shared().verify }
    }
}
