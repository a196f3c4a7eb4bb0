//! The options of a store: the bounds of its buffers, queues and pauses, with units.

use std::time::Duration;

const MIB: u64 = 1024 * 1024;

/// Settings of an embedded store. [`Options::default`] suits a machine with a gigabyte to spare.
#[derive(Clone, Debug)]
pub struct Options {
    /// Blocks of data files kept in memory, in bytes.
    pub cache_bytes: u64,
    /// The size at which a write buffer is full and is written to a data file, in bytes. There are two large buffers (documents,
    /// indexes) and a small one (metadata), each with at most [`SEALED_BUFFERS_MAX`] full ones that wait to be written.
    pub write_buffer_bytes: u64,
    /// All journal files together, in bytes; at least [`JOURNAL_BYTES_MIN`]. A store that was killed reads as much at the next
    /// opening.
    pub journal_bytes_max: u64,
    /// Write buffers that snapshots in use (cursors, transactions) may keep in memory, in bytes. A snapshot keeps the writes after
    /// it in memory; beyond this bound the snapshot is ended, and reading on from it fails with `SnapshotTooOld`.
    pub snapshot_bytes_max: u64,
    /// Threads that write data files and merge them.
    pub background_threads: usize,
    /// Data files kept open.
    pub open_files_max: usize,
    /// Deletions younger than the oldest snapshot in use that are kept for the detection of conflicts; a million take some 100 MB
    /// with keys of a usual length. Beyond this bound the oldest are forgotten, and a transaction from an older snapshot conflicts
    /// when it writes a document that does not exist.
    pub deletions_max: usize,
    /// Operations in the committer's queue, in bytes of their documents. Further operations wait for space in it.
    pub queue_bytes_max: usize,
    /// Operations that share one sync.
    pub group_operations_max: usize,
    /// Bytes in one atomic batch of the journal, unless a single operation has more.
    pub group_bytes_max: usize,
    /// The longest time until a write with `Memory` durability is synced.
    pub memory_sync_interval: Duration,
    /// Whether the store logs its changes, for change streams.
    pub change_log: ChangeLog,
    /// Changes that are older are removed from the log.
    pub change_log_age_max: Duration,
    /// The records of the log of changes, in bytes. Beyond this bound the oldest are removed.
    pub change_log_bytes_max: u64,
    /// The pause between two removals of documents that have expired under a TTL index; `None` for no removal in the background.
    pub expiry_interval: Option<Duration>,
    /// States of documents before and after each change that are kept while older snapshots are in use, in bytes. They are kept
    /// from the first commit of a serializable transaction on. Beyond this bound, such a transaction with an older snapshot
    /// conflicts with any change of the collection that it searched.
    pub read_log_bytes_max: usize,
    /// Documents in one step of a large change (`multi` update or delete, expiry, index build, drop). Other writes run between
    /// two steps.
    pub step_documents_max: usize,
    /// The `_id` keys that a `multi` update or delete gathers by an index before it changes the first document, in bytes. If more
    /// documents match, it scans the collection by `_id` instead.
    pub gathered_bytes_max: usize,
    /// Steps (`Context::bound_steps` of handfast-mql) that a write's filter and change may take for one document while other
    /// writes wait: some milliseconds at most. A more expensive evaluation runs on another thread.
    pub turn_steps_max: u64,
    /// Whether every read verifies the checksums of records. Only a test that shows that other tests can fail disables it.
    #[doc(hidden)]
    pub verify_checksums: bool,
    /// Whether rows of a damaged block are read from the journal. Only tests disable it, as the journal of a small store has
    /// everything.
    #[doc(hidden)]
    pub salvage_from_journal: bool,
    /// Whether an acknowledgement waits for the sync. Only a test that shows that other tests can fail disables it.
    #[doc(hidden)]
    pub acknowledge_after_sync: bool,
}

/// Whether a store logs its changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChangeLog {
    /// It does not, and a log that it has is removed. Change streams are refused.
    Off,
    /// It does from the first change stream on, until none was read for the age that the log has.
    #[default]
    OnDemand,
    /// It does from its opening on.
    On,
    /// As [`ChangeLog::OnDemand`], but a log that is there goes on and keeps all its records: for a program that works on the directory of a
    /// server that is stopped, whose settings it does not know.
    AsItIs,
}

/// The smallest bound of the journal: two files of 64 MiB, one that is written, one that waits for its data to be flushed.
pub const JOURNAL_BYTES_MIN: u64 = 128 * MIB;

/// Full write buffers of one kind that may wait to be written; with more, writers wait.
pub const SEALED_BUFFERS_MAX: usize = 2;

impl Default for Options {
    fn default() -> Self {
        Options {
            cache_bytes: 256 * MIB,
            write_buffer_bytes: 32 * MIB,
            journal_bytes_max: 512 * MIB,
            snapshot_bytes_max: 512 * MIB,
            background_threads: 2,
            open_files_max: 512,
            deletions_max: 1_000_000,
            queue_bytes_max: (64 * MIB) as usize,
            group_operations_max: 4096,
            group_bytes_max: (16 * MIB) as usize,
            memory_sync_interval: Duration::from_millis(100),
            change_log: ChangeLog::default(),
            change_log_age_max: Duration::from_secs(24 * 60 * 60),
            change_log_bytes_max: 1024 * MIB,
            expiry_interval: Some(Duration::from_secs(60)),
            read_log_bytes_max: (64 * MIB) as usize,
            step_documents_max: 1000,
            gathered_bytes_max: (64 * MIB) as usize,
            turn_steps_max: 20_000,
            verify_checksums: true,
            salvage_from_journal: true,
            acknowledge_after_sync: true,
        }
    }
}

impl Options {
    /// Returns options for tests and for many stores in one process.
    pub fn small() -> Self {
        Options {
            cache_bytes: 8 * MIB,
            write_buffer_bytes: MIB,
            journal_bytes_max: JOURNAL_BYTES_MIN,
            background_threads: 1,
            open_files_max: 64,
            expiry_interval: None,
            ..Options::default()
        }
    }
}
