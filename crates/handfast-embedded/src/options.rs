//! What a store may use, in named numbers with units; every buffer, queue and pause of this crate has its bound here.

use std::time::Duration;

const MIB: u64 = 1024 * 1024;

/// Settings of an embedded store. [`Options::default`] suits a machine with a gigabyte to spare.
#[derive(Clone, Debug)]
pub struct Options {
    /// Blocks of data files kept in memory, in bytes.
    pub cache_bytes: u64,
    /// When a write buffer is full and goes to a data file, in bytes. There are two large buffers (documents, indexes)
    /// and a small one (metadata), each with at most [`SEALED_BUFFERS_MAX`] full ones waiting to be written.
    pub write_buffer_bytes: u64,
    /// All journal files together, in bytes; at least [`JOURNAL_BYTES_MIN`]. A store that was killed reads as much
    /// when it is opened.
    pub journal_bytes_max: u64,
    /// Write buffers that snapshots in use (cursors, transactions) may keep in memory, in bytes. A snapshot keeps what is
    /// written after it; when that is more, the snapshot is ended, and reading on from it fails with `SnapshotTooOld`.
    pub snapshot_bytes_max: u64,
    /// Threads that write data files and merge them.
    pub background_threads: usize,
    /// Data files kept open.
    pub open_files_max: usize,
    /// Deletions younger than the oldest snapshot in use that are remembered for the detection of conflicts; a million
    /// take some 100 MB with keys of a usual length. Beyond it the oldest are forgotten, and a transaction from a snapshot
    /// older than that conflicts when it touches a document that is not there.
    pub deletions_max: usize,
    /// Operations that wait for the committer, in bytes of their documents. Who comes later waits before the queue.
    pub queue_bytes_max: usize,
    /// Operations that share one sync.
    pub group_operations_max: usize,
    /// Bytes written to the journal in one atomic batch, unless a single operation has more.
    pub group_bytes_max: usize,
    /// How long a write with `Memory` durability may go without a sync.
    pub memory_sync_interval: Duration,
    /// How often documents are looked for that have expired under a TTL index; `None` for only when told to.
    pub expiry_interval: Option<Duration>,
    /// States of documents, before and after each change, that are kept while snapshots are in use which are older, in
    /// bytes: from the first batch on that says what it has searched for (a serializable transaction). Beyond it such a
    /// batch whose snapshot is too old conflicts with any change of the collection.
    pub read_log_bytes_max: usize,
    /// Documents of one step of a large change (`multi` update or delete, expiry, index build, drop), between which
    /// other writers have their turn.
    pub step_documents_max: usize,
    /// What a `multi` update or delete may gather of `_id` keys by an index before it changes the first document, in
    /// bytes. If more documents match, it walks the collection by `_id` instead.
    pub gathered_bytes_max: usize,
    /// Steps (`Context::bound_steps` of handfast-mql) that a write's filter and change take for one document while other
    /// writers wait: some milliseconds at most. What takes more is computed beside them.
    pub turn_steps_max: u64,
    /// Whether checksums of records are verified on every read. Only a test of the tests switches it off.
    #[doc(hidden)]
    pub verify_checksums: bool,
    /// Whether what lies in a damaged block is looked for in the journal. Only tests switch it off: of a small store the
    /// journal has everything.
    #[doc(hidden)]
    pub salvage_from_journal: bool,
    /// Whether an acknowledgement waits for the sync. Only a test of the tests switches it off.
    #[doc(hidden)]
    pub acknowledge_after_sync: bool,
}

/// The journal cannot be kept smaller: two files of 64 MiB, one being written, one waiting for its data to be flushed.
pub const JOURNAL_BYTES_MIN: u64 = 128 * MIB;

/// Write buffers of one kind that may be full and wait to be written; then writers wait.
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
    /// Small enough for tests and for many stores in one process.
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
