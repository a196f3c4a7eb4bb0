//! The stored format, byte for byte. Integers are big-endian in keys (so that bytes sort as the numbers do), little-endian in
//! values.
//!
//! ```text
//! documents   key    collection u32 | `_id` key
//!             value  1 | crc32 u32 | commit timestamp u64 | BSON
//! indexes     key    collection u32 | index u32 | key of the index | `_id` key
//!             value  1 | crc32 u32 | length of the key of the index u16
//! metadata    key    a letter and an id, see `MetadataKey`
//!             value  1 | crc32 u32 | content
//! changes     key    commit timestamp u64 | index of the change in the commit u32
//!             value  1 | crc32 u32 | bytes of the log u64 | cluster time u64 | time of day i64 | UUID | BSON
//! ```
//!
//! The checksum covers the map's number, the key, and the bytes after the checksum, so a value under another key than its own
//! fails it. CRC-32 finds every single flipped bit and every burst of up to 32 bits; it misses one in four billion of other
//! damages that also pass the engine's checksums of blocks.

use handfast_store::CommitTimestamp;
use handfast_store::change_stream::ChangePosition;

use crate::engine::{Bytes, KEY_BYTES_MAX, Keyspace, View};
use crate::error::{Error, Result};

#[cfg(test)]
mod tests;

/// The version of this format, which the file `FORMAT` has.
pub(crate) const FORMAT_VERSION: u32 = 1;

const RECORD_VERSION: u8 = 1;
const HEADER_BYTES: usize = 5;
const DOCUMENT_HEADER_BYTES: usize = HEADER_BYTES + 8;

/// The id of a collection. It is not used again after the collection is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct CollectionId(pub(crate) u32);

/// The id of an index in its collection, which is not used again either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct IndexId(pub(crate) u32);

/// Whether reads verify checksums. Only a test that shows that other tests can fail disables it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verify {
    Checksums,
    Nothing,
}

fn checksum(keyspace: Keyspace, key: &[u8], rest: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&[keyspace as u8]);
    hasher.update(&(key.len() as u64).to_le_bytes());
    hasher.update(key);
    hasher.update(rest);
    hasher.finalize()
}

fn seal(keyspace: Keyspace, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut value = Vec::with_capacity(HEADER_BYTES + parts.iter().map(|part| part.len()).sum::<usize>());
    value.push(RECORD_VERSION);
    value.extend_from_slice(&[0; 4]);
    for part in parts {
        value.extend_from_slice(part);
    }
    let sum = checksum(keyspace, key, &value[HEADER_BYTES..]);
    value[1..HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
    value
}

/// Returns the bytes after the header, if the checksum is right.
fn open<'v>(keyspace: Keyspace, key: &[u8], value: &'v [u8], verify: Verify) -> Option<&'v [u8]> {
    let header = value.first_chunk::<HEADER_BYTES>()?;
    let rest = &value[HEADER_BYTES..];
    let [version, sum @ ..] = *header;
    let right = version == RECORD_VERSION && u32::from_le_bytes(sum) == checksum(keyspace, key, rest);
    (right || verify == Verify::Nothing).then_some(rest)
}

/// Returns the key prefix of all documents of a collection.
pub(crate) fn collection_prefix(collection: CollectionId) -> [u8; 4] {
    collection.0.to_be_bytes()
}

/// Returns the key of a document; `None` if it is too long for the engine.
pub(crate) fn document_key(collection: CollectionId, id_key: &[u8]) -> Option<Vec<u8>> {
    let mut key = Vec::with_capacity(4 + id_key.len());
    key.extend_from_slice(&collection_prefix(collection));
    key.extend_from_slice(id_key);
    (key.len() <= KEY_BYTES_MAX).then_some(key)
}

pub(crate) fn document_value(key: &[u8], timestamp: CommitTimestamp, bson: &[u8]) -> Vec<u8> {
    seal(Keyspace::Documents, key, &[&timestamp.0.to_le_bytes(), bson])
}

/// A stored document with a verified checksum.
#[derive(Clone)]
pub(crate) struct StoredDocument {
    value: Bytes,
    pub(crate) timestamp: CommitTimestamp,
}

impl StoredDocument {
    /// Decodes a value and verifies its checksum.
    ///
    /// # Errors
    /// `Corrupt`, with the collection and the key.
    pub(crate) fn open(key: &[u8], value: Bytes, verify: Verify) -> Result<Self> {
        let damaged = || Error::Corrupt(describe(Keyspace::Documents, key));
        let rest = open(Keyspace::Documents, key, &value, verify).ok_or_else(damaged)?;
        let timestamp = rest.first_chunk::<8>().ok_or_else(damaged)?;
        let timestamp = CommitTimestamp(u64::from_le_bytes(*timestamp));
        let stored = StoredDocument { value, timestamp };
        bson::RawDocument::from_bytes(stored.bytes()).map_err(|_| damaged())?;
        Ok(stored)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.value[DOCUMENT_HEADER_BYTES..]
    }

    pub(crate) fn document(&self) -> Result<&bson::RawDocument> {
        bson::RawDocument::from_bytes(self.bytes()).map_err(|error| Error::Corrupt(format!("a document: {error}")))
    }
}

pub(crate) const INDEX_PREFIX_BYTES: usize = 8;

/// Returns the key prefix of all entries of an index.
pub(crate) fn index_prefix(collection: CollectionId, index: IndexId) -> [u8; INDEX_PREFIX_BYTES] {
    let mut prefix = [0; INDEX_PREFIX_BYTES];
    prefix[..4].copy_from_slice(&collection.0.to_be_bytes());
    prefix[4..].copy_from_slice(&index.0.to_be_bytes());
    prefix
}

/// Returns the key of an index entry; `None` if it is too long for the engine.
pub(crate) fn index_key(collection: CollectionId, index: IndexId, encoded: &[u8], id_key: &[u8]) -> Option<Vec<u8>> {
    let mut key = Vec::with_capacity(8 + encoded.len() + id_key.len());
    key.extend_from_slice(&index_prefix(collection, index));
    key.extend_from_slice(encoded);
    key.extend_from_slice(id_key);
    (key.len() <= KEY_BYTES_MAX).then_some(key)
}

pub(crate) fn index_value(key: &[u8], encoded: &[u8]) -> Vec<u8> {
    // A key fits into 16 bits (`index_key`), so a part of it does.
    let length = u16::try_from(encoded.len()).unwrap_or(u16::MAX);
    seal(Keyspace::Indexes, key, &[&length.to_le_bytes()])
}

/// Returns the parts of an index entry: the key of the index, the `_id` key.
///
/// # Errors
/// `Corrupt`, with the index and the key.
pub(crate) fn open_index_entry<'k>(key: &'k [u8], value: &[u8], verify: Verify) -> Result<(&'k [u8], &'k [u8])> {
    let damaged = || Error::Corrupt(describe(Keyspace::Indexes, key));
    let rest = open(Keyspace::Indexes, key, value, verify).ok_or_else(damaged)?;
    let length = u16::from_le_bytes(*rest.first_chunk::<2>().ok_or_else(damaged)?);
    let both = key.get(8..).ok_or_else(damaged)?;
    both.split_at_checked(usize::from(length)).ok_or_else(damaged)
}

/// A key of the metadata map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetadataKey {
    /// The last batch, see [`LastBatch`]. Every batch writes it.
    LastBatch,
    /// The id of the next collection.
    NextCollection,
    /// The names, options and indexes of a collection.
    Collection(CollectionId),
    /// The log of changes, while there is one.
    ChangeLog,
    /// The counts of a collection.
    Counts(CollectionId),
    /// A dropped collection whose keys are being removed.
    Dropped(CollectionId),
    /// A dropped index whose keys are being removed.
    DroppedIndex(CollectionId, IndexId),
}

impl MetadataKey {
    pub(crate) const COLLECTIONS: &'static [u8] = b"c";
    pub(crate) const DROPPED: &'static [u8] = b"d";

    pub(crate) fn encode(self) -> Vec<u8> {
        match self {
            MetadataKey::LastBatch => b"b".to_vec(),
            MetadataKey::NextCollection => b"n".to_vec(),
            MetadataKey::ChangeLog => b"l".to_vec(),
            MetadataKey::Collection(id) => [b"c", &id.0.to_be_bytes()[..]].concat(),
            MetadataKey::Counts(id) => [b"s", &id.0.to_be_bytes()[..]].concat(),
            MetadataKey::Dropped(id) => [b"d", &id.0.to_be_bytes()[..]].concat(),
            MetadataKey::DroppedIndex(id, index) => {
                [b"d", &id.0.to_be_bytes()[..], &index.0.to_be_bytes()[..]].concat()
            }
        }
    }

    /// Decodes the key of a dropped collection or index.
    pub(crate) fn decode_dropped(key: &[u8]) -> Option<Self> {
        match key {
            [b'd', rest @ ..] if rest.len() == 4 => {
                Some(MetadataKey::Dropped(CollectionId(u32::from_be_bytes(rest.try_into().ok()?))))
            }
            [b'd', rest @ ..] if rest.len() == 8 => {
                let (collection, index) = rest.split_at(4);
                let collection = CollectionId(u32::from_be_bytes(collection.try_into().ok()?));
                Some(MetadataKey::DroppedIndex(collection, IndexId(u32::from_be_bytes(index.try_into().ok()?))))
            }
            _ => None,
        }
    }
}

/// The state of the log of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChangeLogState {
    /// A random id, which resume tokens have.
    pub(crate) id: u64,
    /// The log has the changes of all later commits.
    pub(crate) since: CommitTimestamp,
    /// The bits of the cluster time: the log has all changes from this moment on.
    pub(crate) since_time: u64,
    /// The bytes of the records that were trimmed.
    pub(crate) trimmed_bytes: u64,
}

impl ChangeLogState {
    pub(crate) fn encode(self) -> Vec<u8> {
        let numbers = [self.id, self.since.0, self.since_time, self.trimmed_bytes];
        metadata_value(&MetadataKey::ChangeLog.encode(), &numbers.map(u64::to_le_bytes).concat())
    }

    /// Reads the state; `None` if there is no log.
    pub(crate) fn read(view: &dyn View) -> Result<Option<Self>> {
        let key = MetadataKey::ChangeLog.encode();
        let Some(value) = view.get(Keyspace::Metadata, &key)? else { return Ok(None) };
        let content = open_metadata(&key, &value)?;
        let [id, since, since_time, trimmed_bytes] =
            content.as_chunks::<8>().0.try_into().map_err(|_| Error::Corrupt(describe(Keyspace::Metadata, &key)))?;
        Ok(Some(ChangeLogState {
            id: u64::from_le_bytes(id),
            since: CommitTimestamp(u64::from_le_bytes(since)),
            since_time: u64::from_le_bytes(since_time),
            trimmed_bytes: u64::from_le_bytes(trimmed_bytes),
        }))
    }
}

/// Returns the key of a record of the log of changes.
pub(crate) fn change_key(position: ChangePosition) -> Vec<u8> {
    [&position.commit.0.to_be_bytes()[..], &position.index.to_be_bytes()].concat()
}

/// Returns the position of a record of the log of changes from its key.
///
/// # Errors
/// `Corrupt`, with the key.
pub(crate) fn change_position(key: &[u8]) -> Result<ChangePosition> {
    let damaged = || Error::Corrupt(describe(Keyspace::Changes, key));
    let (commit, index) = key.split_first_chunk::<8>().ok_or_else(damaged)?;
    let index = u32::from_be_bytes(index.try_into().map_err(|_| damaged())?);
    Ok(ChangePosition { commit: CommitTimestamp(u64::from_be_bytes(*commit)), index })
}

/// A record of the log of changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChangeRecord<'r> {
    /// The bytes of all records up to this one since the log began.
    pub(crate) total_bytes: u64,
    /// The bits of the cluster time.
    pub(crate) time: u64,
    pub(crate) wall_millis: i64,
    pub(crate) collection: [u8; 16],
    pub(crate) content: &'r [u8],
}

impl<'r> ChangeRecord<'r> {
    pub(crate) fn encode(self, key: &[u8]) -> Vec<u8> {
        let (total_bytes, time) = (self.total_bytes.to_le_bytes(), self.time.to_le_bytes());
        seal(
            Keyspace::Changes,
            key,
            &[&total_bytes, &time, &self.wall_millis.to_le_bytes(), &self.collection, self.content],
        )
    }

    /// Returns the position and the record of a key and its value.
    ///
    /// # Errors
    /// `Corrupt`, with the key.
    pub(crate) fn open(key: &[u8], value: &'r [u8], verify: Verify) -> Result<(ChangePosition, Self)> {
        let damaged = || Error::Corrupt(describe(Keyspace::Changes, key));
        let position = change_position(key)?;
        let rest = open(Keyspace::Changes, key, value, verify).ok_or_else(damaged)?;
        let (total_bytes, rest) = rest.split_first_chunk::<8>().ok_or_else(damaged)?;
        let (time, rest) = rest.split_first_chunk::<8>().ok_or_else(damaged)?;
        let (wall_millis, rest) = rest.split_first_chunk::<8>().ok_or_else(damaged)?;
        let (collection, content) = rest.split_first_chunk::<16>().ok_or_else(damaged)?;
        let record = ChangeRecord {
            total_bytes: u64::from_le_bytes(*total_bytes),
            time: u64::from_le_bytes(*time),
            wall_millis: i64::from_le_bytes(*wall_millis),
            collection: *collection,
            content,
        };
        Ok((position, record))
    }
}

pub(crate) fn metadata_value(key: &[u8], content: &[u8]) -> Vec<u8> {
    seal(Keyspace::Metadata, key, &[content])
}

/// Returns the content of a metadata value.
///
/// # Errors
/// `Corrupt`, with the key.
pub(crate) fn open_metadata<'v>(key: &[u8], value: &'v [u8]) -> Result<&'v [u8]> {
    open(Keyspace::Metadata, key, value, Verify::Checksums)
        .ok_or_else(|| Error::Corrupt(describe(Keyspace::Metadata, key)))
}

/// The record of the last applied batch, which is a part of that batch: it shows whether a batch, or the end, of a journal is
/// missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LastBatch {
    /// Batches are numbered 1, 2, 3, without a gap.
    pub(crate) number: u64,
    /// The timestamp of the last commit in it.
    pub(crate) timestamp: CommitTimestamp,
    /// A lower bound, and almost the exact value, of the engine's sequence number of this batch, which no checksum covers.
    pub(crate) sequence: u64,
    /// The engine's sequence number of the previous batch; 0 if the journal does not have that one.
    pub(crate) before: u64,
}

impl LastBatch {
    pub(crate) fn encode(self) -> Vec<u8> {
        let content = [self.number, self.timestamp.0, self.sequence, self.before].map(u64::to_le_bytes).concat();
        metadata_value(&MetadataKey::LastBatch.encode(), &content)
    }

    pub(crate) fn decode(value: &[u8]) -> Result<Self> {
        let key = MetadataKey::LastBatch.encode();
        let content = open_metadata(&key, value)?;
        let [number, timestamp, sequence, before] =
            content.as_chunks::<8>().0.try_into().map_err(|_| Error::Corrupt(describe(Keyspace::Metadata, &key)))?;
        Ok(LastBatch {
            number: u64::from_le_bytes(number),
            timestamp: CommitTimestamp(u64::from_le_bytes(timestamp)),
            sequence: u64::from_le_bytes(sequence),
            before: u64::from_le_bytes(before),
        })
    }
}

/// Describes a record for people: the map, the collection's id, the key in hexadecimal.
pub(crate) fn describe(keyspace: Keyspace, key: &[u8]) -> String {
    /// Enough to find the record, few enough to read.
    const SHOWN_BYTES_MAX: usize = 64;
    let hex = |bytes: &[u8]| {
        let mut text: String = bytes.iter().take(SHOWN_BYTES_MAX).map(|byte| format!("{byte:02x}")).collect();
        if bytes.len() > SHOWN_BYTES_MAX {
            text.push_str("..");
        }
        text
    };
    match (keyspace, key.split_first_chunk::<4>()) {
        (Keyspace::Metadata | Keyspace::Changes, _) | (_, None) => format!("{} key {}", keyspace.name(), hex(key)),
        (_, Some((collection, rest))) => {
            format!("{} of collection {}, key {}", keyspace.name(), u32::from_be_bytes(*collection), hex(rest))
        }
    }
}
