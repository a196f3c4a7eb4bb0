//! The key-value engine, as little of it as this crate needs: three ordered maps, changed by atomic batches, read
//! through views that stand still.
//!
//! ```text
//! documents   collection id, `_id` key                      -> header, document
//! indexes     collection id, index id, key, `_id` key       -> header
//! metadata    catalog, counters, the last batch's number    -> header, value
//! ```
//!
//! Nothing above this module knows which engine it is. What it must promise: a batch is there wholly or not at all, now
//! and after a crash; a batch that is there after a crash has all earlier ones before it; after [`Engine::sync`]
//! everything applied before is on the disk. That bytes come back as they were written is *not* assumed: each value
//! carries a checksum of ours ([`crate::format`]).

#[cfg(test)]
pub(crate) mod faulty;
mod fjall;
mod holes;
mod walk;

use std::ops::Bound;
use std::sync::Arc;

use crate::error::Result;

pub(crate) use self::fjall::FjallEngine;
pub(crate) use self::holes::Hole;
pub(crate) use self::walk::{Met, Rest, Unreadable, Walk};

/// A key or a value as the engine gives it: shared, not copied.
pub(crate) type Bytes = ::fjall::Slice;

/// The engine's bound on a key, in bytes: it stores the length in 16 bits.
pub(crate) const KEY_BYTES_MAX: usize = u16::MAX as usize;

/// One of the three maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Keyspace {
    Documents,
    Indexes,
    Metadata,
}

impl Keyspace {
    pub(crate) const ALL: [Keyspace; 3] = [Keyspace::Documents, Keyspace::Indexes, Keyspace::Metadata];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Keyspace::Documents => "documents",
            Keyspace::Indexes => "indexes",
            Keyspace::Metadata => "metadata",
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

/// From where to where, in the order of bytes.
pub(crate) type Range = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    Backward,
}

/// Keys and values of a range. After an error there is nothing more.
pub(crate) type Rows = Box<dyn Iterator<Item = Result<(Bytes, Bytes)>> + Send>;

/// Everything that had been applied at one moment.
pub(crate) trait View: Send + Sync {
    fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>>;

    fn range(&self, keyspace: Keyspace, range: Range, direction: Direction) -> Rows;

    /// Which parts of a range damaged blocks of data files lie in; in their order, and apart from each other. Reads all
    /// of the range in every data file.
    fn holes(&self, keyspace: Keyspace, range: Range) -> Vec<Hole>;
}

/// Whether a batch can be applied now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    Ready,
    /// Full buffers wait to be written to data files.
    Busy,
}

/// The three maps.
pub(crate) trait Engine: Send + Sync {
    /// Applies all writes or none. They are seen at once, and durable after the next [`Engine::sync`]. Returns the
    /// sequence number under which the engine applied them; the last write must not remove its key.
    fn apply(&self, writes: Vec<Write>) -> Result<u64>;

    /// Hands what was applied to the operating system: a kill of the process cannot take it back, a crash of the
    /// machine can.
    fn hand_over(&self) -> Result<()>;

    /// Makes everything applied before durable.
    fn sync(&self) -> Result<()>;

    /// Everything applied so far.
    fn view(&self) -> Arc<dyn View>;

    /// Whether [`Engine::apply`] would go through without waiting for space in buffers.
    fn readiness(&self) -> Result<Readiness>;

    /// A lower bound, and usually the exact number, of the sequence number that the engine gives the next batch.
    fn next_sequence(&self) -> u64;

    /// Bytes that went into write buffers since this was opened. A view keeps in memory what went in after it was made.
    fn written_bytes(&self) -> u64;

    /// Bytes of the data files of a map.
    fn disk_bytes(&self, keyspace: Keyspace) -> u64;
}

/// The same keys between bounds that are keys themselves: the engine takes no bound that is longer than any key. A key cannot
/// be equal to what is longer than all of them, so it is compared with the part that a key could have, exactly:
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

/// All keys with this prefix.
pub(crate) fn prefix_range(prefix: &[u8]) -> Range {
    (Bound::Included(prefix.to_vec()), after_prefix(prefix))
}

/// The end of all keys with this prefix.
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
