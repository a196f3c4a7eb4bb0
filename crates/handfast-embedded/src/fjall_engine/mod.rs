//! The engine on fjall 3, a log-structured merge tree. Its properties that matter here, read from its source:
//!
//! - It does not group syncs; the committer does (one `persist` for all batches of a group).
//! - `commit` waits inside, without end, when four full buffers of a map are unwritten or thirty files lie in the first
//!   level: if the disk is full its worker threads are gone and it would wait forever. [`Engine::readiness`] tells
//!   beforehand, with room to spare, and reports that the workers are gone.
//! - Its decoder of data blocks trusts a block once the checksum is right. Should bytes get past that, it may panic:
//!   every call is guarded, and a panic becomes an error: damage if a read panicked while it decoded, else a bug.
//! - A map whose directory has lost its `current` file is *removed* at open; [`crate::directory`] looks first.
//! - Its own setting for all write buffers together has no effect (3.1.13); the bound is the buffer size of each map
//!   times the number of full ones that [`Engine::readiness`] lets wait.

mod damage;
#[cfg(test)]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use fjall::{AbstractTree, Database, KeyspaceCreateOptions, LsmError, PersistMode, Readable, SeqNo, Snapshot};

use crate::Options;
use crate::engine::{
    Bytes, DamagedRange, Direction, Engine, KEY_BYTES_MAX, Keyspace, Range, Readiness, Rows, View, Write, between_keys,
};
use crate::error::{Error, Result};
use crate::lock::DirectoryLock;
use crate::options::SEALED_BUFFERS_MAX;

/// Files in the first level (each overlaps all others, so a read looks into each) before writers wait; the engine
/// itself would wait without end at 30.
const FIRST_LEVEL_FILES_MAX: usize = 24;

/// The overhead of an item in a write buffer, in bytes.
const ITEM_BYTES: usize = 64;

/// The metadata map holds a few hundred keys, one of which changes with every batch.
const METADATA_BUFFER_BYTES: u64 = 8 * 1024 * 1024;

/// Records of changes are read soon after they were written, and in order: a larger buffer would save nothing.
const CHANGES_BUFFER_BYTES: u64 = 8 * 1024 * 1024;

/// The free space below which a failure to write a data file is reported as a full disk. The files are about this large.
const FREE_BYTES_MIN: u64 = 64 * 1024 * 1024;

pub(crate) struct FjallEngine {
    database: Database,
    keyspaces: [fjall::Keyspace; 3],
    /// The map of the log of changes, once there is one.
    changes: OnceLock<fjall::Keyspace>,
    /// A full write buffer, per map. The engine keeps the size that a map was created with; so that the setting of
    /// *this* opening counts, buffers are rotated from here and the engine's own size is out of reach.
    buffer_bytes_max: [u64; 4],
    /// Counted here: the engine's own sum counts a buffer once for each of its versions that has it.
    written_bytes: AtomicU64,
    path: PathBuf,
    /// See [`Options::salvage_from_journal`].
    salvages_from_journal: bool,
    lock: Option<Arc<DirectoryLock>>,
}

impl FjallEngine {
    /// Opens the engine's files, or creates them. The engine and its views hold `lock` as long as they live.
    pub(crate) fn open(path: &Path, options: &Options, lock: Option<Arc<DirectoryLock>>) -> Result<Self> {
        guarded("opening", || {
            let database = Database::builder(path)
                .cache_size(options.cache_bytes)
                .max_journaling_size(options.journal_bytes_max.max(crate::options::JOURNAL_BYTES_MIN))
                .worker_threads(options.background_threads.max(1))
                .max_cached_files(Some(options.open_files_max.max(16)))
                .manual_journal_persist(true)
                .open()?;
            let open = |keyspace: Keyspace| open_map(&database, keyspace);
            let keyspaces = [open(Keyspace::Documents)?, open(Keyspace::Indexes)?, open(Keyspace::Metadata)?];
            let changes = OnceLock::new();
            if database.keyspace_exists(Keyspace::Changes.name()) {
                changes.get_or_init({
                    let map = open(Keyspace::Changes)?;
                    || map
                });
            }
            let large = options.write_buffer_bytes;
            let buffer_bytes_max = [large, large, METADATA_BUFFER_BYTES.min(large), CHANGES_BUFFER_BYTES.min(large)];
            let (written_bytes, path) = (AtomicU64::new(0), path.to_owned());
            let salvages_from_journal = options.salvage_from_journal;
            Ok(FjallEngine {
                database,
                keyspaces,
                changes,
                buffer_bytes_max,
                written_bytes,
                path,
                salvages_from_journal,
                lock,
            })
        })
    }

    /// Runs a call of the engine that writes. The engine reports only that an earlier write failed on one of its threads;
    /// whether the disk is full is looked up here.
    fn writing<T>(&self, what: &str, call: impl FnOnce() -> fjall::Result<T>) -> Result<T> {
        called(what, call, internal).map_err(|error| match error {
            Error::Stopped(what) if self.is_disk_full() => Error::DiskFull(format!("{} ({what})", self.path.display())),
            error => error,
        })
    }

    /// Returns whether there is a map of the log of changes.
    pub(crate) fn has_changes(&self) -> bool {
        self.changes.get().is_some()
    }

    /// Returns a map. That of the log of changes is created when it is first written to.
    fn map(&self, keyspace: Keyspace) -> fjall::Result<&fjall::Keyspace> {
        if let Some(map) = self.keyspaces.get(keyspace as usize).or_else(|| self.changes.get()) {
            return Ok(map);
        }
        let map = open_map(&self.database, Keyspace::Changes)?;
        Ok(self.changes.get_or_init(|| map))
    }

    fn maps(&self) -> impl Iterator<Item = &fjall::Keyspace> {
        self.keyspaces.iter().chain(self.changes.get())
    }

    fn is_disk_full(&self) -> bool {
        rustix::fs::statvfs(&self.path).is_ok_and(|disk| disk.f_bavail * disk.f_frsize < FREE_BYTES_MIN)
    }

    /// Returns the sequence number of the last write of a key.
    fn sequence_of(&self, keyspace: Keyspace, key: &[u8]) -> Result<u64> {
        let read = || Ok(self.map(keyspace)?.tree.get_internal_entry(key, SeqNo::MAX)?);
        let entry = guarded("reading a batch", read)?;
        let entry = entry.ok_or_else(|| Error::Engine("what was applied is not there".to_owned()))?;
        Ok(entry.key.seqno)
    }
}

/// Opens a map, or creates it.
fn open_map(database: &Database, keyspace: Keyspace) -> fjall::Result<fjall::Keyspace> {
    database.keyspace(keyspace.name(), || {
        KeyspaceCreateOptions::default().max_memtable_size(u64::MAX).manual_journal_persist(true)
    })
}

/// Returns the sequence number of a batch, which the engine does not return, if it was the only number taken between two
/// reads of the next number. If threads of the engine took numbers too, for a flush or a merge, the write buffer has it.
fn only_number_taken(before: u64, after: u64) -> Option<u64> {
    (after == before + 1).then_some(before)
}

impl Engine for FjallEngine {
    fn apply(&self, writes: Vec<Write>) -> Result<u64> {
        // The engine panics on such a key.
        if let Some(write) = writes.iter().find(|write| write.key.len() > KEY_BYTES_MAX) {
            let (bytes, map) = (write.key.len(), write.keyspace.name());
            let what = format!("a key of {bytes} bytes for the {map}, of {KEY_BYTES_MAX} at most, was not written");
            return Err(Error::Engine(what));
        }
        let (mut last, last_place) = (None, writes.len().saturating_sub(1));
        let (before, after) = self.writing("applying a batch", || {
            let mut batch = self.database.batch().durability(None);
            let mut bytes = 0;
            for (place, write) in writes.into_iter().enumerate() {
                bytes += ITEM_BYTES + write.key.len() + write.value.as_ref().map_or(0, Vec::len);
                let keyspace = self.map(write.keyspace)?;
                let key = Bytes::from(write.key);
                if place == last_place {
                    // Another handle on it, not a copy.
                    last = Some((write.keyspace, key.clone()));
                }
                match write.value {
                    Some(value) => batch.insert(keyspace, key, value),
                    None => batch.remove(keyspace, key),
                }
            }
            let before = self.database.seqno();
            batch.commit()?;
            let after = self.database.seqno();
            self.written_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            for (keyspace, &bytes_max) in self.maps().zip(&self.buffer_bytes_max) {
                if keyspace.tree.active_memtable().size() > bytes_max {
                    keyspace.rotate_memtable()?;
                }
            }
            Ok((before, after))
        })?;
        let Some((keyspace, key)) = last else {
            return Err(Error::Engine("an empty batch has no number".to_owned()));
        };
        only_number_taken(before, after).map_or_else(|| self.sequence_of(keyspace, &key), Ok)
    }

    fn write_journal(&self) -> Result<()> {
        self.writing("writing the journal", || self.database.persist(PersistMode::Buffer))
    }

    fn sync(&self) -> Result<()> {
        self.writing("syncing the journal", || self.database.persist(PersistMode::SyncData))
    }

    fn view(&self) -> Arc<dyn View> {
        Arc::new(FjallView {
            snapshot: self.database.snapshot(),
            keyspaces: self.keyspaces.clone(),
            changes: self.changes.get().cloned(),
            path: self.path.clone(),
            salvages_from_journal: self.salvages_from_journal,
            _lock: self.lock.clone(),
        })
    }

    fn readiness(&self) -> Result<Readiness> {
        let busy = self.maps().any(|keyspace| {
            keyspace.tree.sealed_memtable_count() >= SEALED_BUFFERS_MAX
                || keyspace.tree.l0_run_count() >= FIRST_LEVEL_FILES_MAX
        });
        if !busy {
            return Ok(Readiness::Ready);
        }
        // `persist` is what tells whether a worker thread has failed.
        self.writing("writing buffers to data files", || self.database.persist(PersistMode::Buffer))?;
        Ok(Readiness::Busy)
    }

    fn next_sequence(&self) -> u64 {
        self.database.seqno()
    }

    fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Relaxed)
    }

    fn disk_bytes(&self, keyspace: Keyspace) -> u64 {
        let map = self.keyspaces.get(keyspace as usize).or_else(|| self.changes.get());
        map.map_or(0, fjall::Keyspace::disk_space)
    }
}

struct FjallView {
    snapshot: Snapshot,
    keyspaces: [fjall::Keyspace; 3],
    /// The map of the log of changes, if there was one.
    changes: Option<fjall::Keyspace>,
    /// The engine's directory.
    path: PathBuf,
    salvages_from_journal: bool,
    /// Keeps the directory locked while the view lives.
    _lock: Option<Arc<DirectoryLock>>,
}

impl FjallView {
    /// Returns a map; `None` for the log of changes if it did not exist.
    fn map(&self, keyspace: Keyspace) -> Option<&fjall::Keyspace> {
        self.keyspaces.get(keyspace as usize).or(self.changes.as_ref())
    }
}

impl View for FjallView {
    fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>> {
        // The engine panics on a key that it could not hold.
        if key.len() > KEY_BYTES_MAX {
            return Ok(None);
        }
        let Some(map) = self.map(keyspace) else { return Ok(None) };
        guarded("reading", || self.snapshot.get(map, key))
    }

    fn range(&self, keyspace: Keyspace, range: Range, direction: Direction) -> Rows {
        // The engine panics on a bound that is longer than a key, and on a range whose start is behind its end.
        let range = between_keys(range);
        let Some(map) = self.map(keyspace).filter(|_| !is_empty(&range)) else {
            return Box::new(std::iter::empty());
        };
        let rows = guarded("reading", || Ok(self.snapshot.range(map, range)));
        match rows {
            Ok(rows) => Box::new(FjallRows { rows: Some(rows), direction }),
            Err(error) => Box::new(std::iter::once(Err(error))),
        }
    }

    fn damaged_ranges(&self, keyspace: Keyspace, range: Range) -> Vec<DamagedRange> {
        self.find_damaged_ranges(keyspace, &between_keys(range))
    }
}

fn is_empty((start, end): &Range) -> bool {
    use std::ops::Bound::{Excluded, Included};
    match (start, end) {
        (Included(start), Included(end)) => start > end,
        (Included(start) | Excluded(start), Included(end) | Excluded(end)) => start >= end,
        _ => false,
    }
}

struct FjallRows {
    rows: Option<fjall::Iter>,
    direction: Direction,
}

impl Iterator for FjallRows {
    type Item = Result<(Bytes, Bytes)>;

    fn next(&mut self) -> Option<Self::Item> {
        let rows = self.rows.as_mut()?;
        let row = guarded("reading", || {
            let next = match self.direction {
                Direction::Forward => rows.next(),
                Direction::Backward => rows.next_back(),
            };
            next.map(fjall::Guard::into_inner).transpose()
        });
        if row.is_err() {
            self.rows = None;
        }
        row.transpose()
    }
}

/// Runs a call of the engine that reads, and translates its errors and panics.
fn guarded<T>(what: &str, call: impl FnOnce() -> fjall::Result<T>) -> Result<T> {
    called(what, call, |what, text| match is_decoder_panic(text) {
        true => Error::Corrupt(format!("{what}: the storage engine gave up on what is stored")),
        false => internal(what, text),
    })
}

/// Runs a call of the engine; `of_panic` makes the error of a panic's message.
fn called<T>(
    what: &str,
    call: impl FnOnce() -> fjall::Result<T>,
    of_panic: impl FnOnce(&str, &str) -> Error,
) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(translate(what, error)),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            tracing::debug!(what, text, "the storage engine panicked");
            Err(of_panic(what, text))
        }
    }
}

/// The beginnings of panic messages of a decoder that trusts the lengths and offsets in what it reads: those of the standard
/// library, and of the engine's `expect`s on readers. (No flipped bit in `tests/flip.rs` ever passed the checksums.)
const DECODER_PANICS: [&str; 9] = [
    "range end index ",
    "range start index ",
    "slice index starts at ",
    "index out of bounds: ",
    "mid > len",
    "capacity overflow",
    "attempt to ",
    "called `Result::unwrap()` on an `Err` value: Error { kind: UnexpectedEof",
    "failed to fill whole buffer",
];

/// Returns whether a read panicked because of what it decoded, and not because of its arguments.
fn is_decoder_panic(text: &str) -> bool {
    DECODER_PANICS.iter().any(|beginning| text.starts_with(beginning))
}

/// Returns the error of a panic that says nothing about the stored data.
fn internal(what: &str, text: &str) -> Error {
    Error::Engine(format!(
        "{what}: it panicked ({text}), which is a bug, of it or of handfast; nothing says that data is damaged: restart, run \
         `handfast check` if it happens again, and report this line"
    ))
}

fn translate(what: &str, error: fjall::Error) -> Error {
    use fjall::Error as E;
    tracing::debug!(what, ?error, "the storage engine reports an error");
    match error {
        E::Io(error) | E::Storage(LsmError::Io(error)) => match error.kind() {
            // What should be in a file is not: it was cut, or a length or a place in it is wrong.
            std::io::ErrorKind::UnexpectedEof
            | std::io::ErrorKind::InvalidData
            | std::io::ErrorKind::InvalidInput
            | std::io::ErrorKind::NotFound => Error::Corrupt(format!("{what}: {error}")),
            _ => Error::io(what, error),
        },
        E::Poisoned => Error::Stopped(format!("{what}: an earlier write or sync of the storage engine failed")),
        E::Storage(error) => Error::Corrupt(format!("{what}: {}", in_words(&error))),
        E::JournalRecovery(_) | E::InvalidTrailer | E::InvalidTag(_) => {
            Error::Corrupt(format!("{what}: the journal is not laid out as it should be"))
        }
        E::Unrecoverable => Error::Corrupt(format!("{what}: {}", in_words(&LsmError::Unrecoverable))),
        E::Decompress(kind) => Error::Corrupt(format!("{what}: {}", in_words(&LsmError::Decompress(kind)))),
        E::InvalidVersion(_) => Error::Corrupt(format!("{what}: the file of the engine's version is not readable")),
        E::Locked => Error::Engine(format!("{what}: a cursor or snapshot of an earlier opening is still in use")),
        other => Error::Engine(format!("{what}: {other:?}")),
    }
}

fn in_words(error: &LsmError) -> &'static str {
    match error {
        LsmError::ChecksumMismatch { .. } => "a block does not have the checksum that it was written with",
        LsmError::Decompress(_) => "a block cannot be decompressed",
        LsmError::Unrecoverable => "a file that is needed is missing, or is not what was written",
        LsmError::InvalidVersion(_) => "a file is of a version that the engine does not know",
        _ => "a block is not laid out as it should be",
    }
}
