//! The interface of the key-value engine, as little of it as this crate needs: four ordered maps, changed by atomic
//! batches, and read through immutable views. [`crate::fjall_engine`] implements it.
//!
//! ```text
//! documents   collection id, `_id` key                      -> header, document
//! indexes     collection id, index id, key, `_id` key       -> header
//! metadata    catalog, counters, the last batch's number    -> header, value
//! changes     commit, index of the change in it             -> header, record; created with the first record
//! ```
//!
//! An engine promises that a batch is atomic, now and after a crash; that a batch that survives a crash has all earlier ones
//! before it; and that after [`Engine::sync`] everything applied before is on the disk. It does *not* promise that bytes
//! come back as they were written: each value carries a checksum of the store ([`crate::format`]).

pub(crate) mod damaged_ranges;
mod salvage_scan;

use std::ops::Bound;
use std::sync::Arc;

use crate::error::Result;

pub(crate) use self::damaged_ranges::DamagedRange;
pub(crate) use self::salvage_scan::{Remaining, SalvageItem, SalvageScan, UnreadableKeys};

/// A key or a value of the engine: shared, not copied.
pub(crate) type Bytes = fjall::Slice;

/// The length of the longest key, in bytes: the engine stores the length in 16 bits.
pub(crate) const KEY_BYTES_MAX: usize = u16::MAX as usize;

/// A map of the engine from keys to values; there are four.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Keyspace {
    Documents,
    Indexes,
    Metadata,
    /// The log of changes. The map exists once the log was begun.
    Changes,
}

impl Keyspace {
    pub(crate) const ALL: [Keyspace; 4] =
        [Keyspace::Documents, Keyspace::Indexes, Keyspace::Metadata, Keyspace::Changes];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Keyspace::Documents => "documents",
            Keyspace::Indexes => "indexes",
            Keyspace::Metadata => "metadata",
            Keyspace::Changes => "changes",
        }
    }
}

/// The new value of a key; `None` removes it.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) keyspace: Keyspace,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Option<Vec<u8>>,
}

/// A range of keys, in the order of their bytes.
pub(crate) type Range = (Bound<Vec<u8>>, Bound<Vec<u8>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    Backward,
}

/// An iterator over the keys and values of a range. It ends after an error.
pub(crate) type Rows = Box<dyn Iterator<Item = Result<(Bytes, Bytes)>> + Send>;

/// The state of all maps at one moment.
pub(crate) trait View: Send + Sync {
    fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>>;

    fn range(&self, keyspace: Keyspace, range: Range, direction: Direction) -> Rows;

    /// Returns the ranges that damaged blocks of data files cover, sorted and without overlap. Reads the whole range in
    /// every data file.
    fn damaged_ranges(&self, keyspace: Keyspace, range: Range) -> Vec<DamagedRange>;
}

/// Whether [`Engine::apply`] would return without waiting for space in buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    Ready,
    /// Full buffers wait to be written to data files.
    Busy,
}

/// A key-value engine.
pub(crate) trait Engine: Send + Sync {
    /// Applies all writes or none. They are visible at once, and durable after the next [`Engine::sync`]. Returns the
    /// sequence number under which the engine applied them. The last write must not remove its key.
    fn apply(&self, writes: Vec<Write>) -> Result<u64>;

    /// Writes what was applied to the operating system: it survives a kill of the process, but not a crash of the machine.
    fn write_journal(&self) -> Result<()>;

    /// Makes everything applied before durable.
    fn sync(&self) -> Result<()>;

    /// Returns a view of everything applied so far.
    fn view(&self) -> Arc<dyn View>;

    fn readiness(&self) -> Result<Readiness>;

    /// Returns a lower bound of the sequence number of the next batch, which is usually the exact number.
    fn next_sequence(&self) -> u64;

    /// Returns the bytes written to buffers since the engine was opened. A view keeps in memory what was written after it.
    fn written_bytes(&self) -> u64;

    /// Returns the bytes of the data files of a map.
    fn disk_bytes(&self, keyspace: Keyspace) -> u64;
}

/// Returns a range of the same keys whose bounds are no longer than a key, as the engine takes no longer ones. No key equals a
/// bound that is longer than every key, so its first bytes are the exact bound:
///
/// ```text
/// key >= long bound, key > long bound    key > its first 65,535 bytes
/// key <= long bound, key < long bound    key <= its first 65,535 bytes
/// ```
pub(crate) fn between_keys((start, end): Range) -> Range {
    (cut(start, Bound::Excluded), cut(end, Bound::Included))
}

fn cut(bound: Bound<Vec<u8>>, shortened: fn(Vec<u8>) -> Bound<Vec<u8>>) -> Bound<Vec<u8>> {
    match bound {
        Bound::Included(mut bytes) | Bound::Excluded(mut bytes) if bytes.len() > KEY_BYTES_MAX => {
            bytes.truncate(KEY_BYTES_MAX);
            shortened(bytes)
        }
        bound => bound,
    }
}

/// Returns the range of all keys with a prefix.
pub(crate) fn prefix_range(prefix: &[u8]) -> Range {
    (Bound::Included(prefix.to_vec()), after_prefix(prefix))
}

/// Returns the end of the range of all keys with a prefix.
pub(crate) fn after_prefix(prefix: &[u8]) -> Bound<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if let Some(next) = last.checked_add(1) {
            end.push(next);
            return Bound::Excluded(end);
        }
    }
    Bound::Unbounded
}

#[cfg(test)]
mod tests;
