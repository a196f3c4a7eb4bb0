//! Decodes the batches of a journal file.

use std::fs;
use std::io::{self, Read as _, Seek as _};
use std::path::Path;

use rustix::fs::{SeekFrom, seek};

use crate::chain::Chain;
use crate::format::{LastBatch, MetadataKey};

const TAG_START: u8 = 1;
const TAG_ITEM: u8 = 2;
const TAG_END: u8 = 3;
/// The other kinds are removals.
const KIND_VALUE: u8 = 0;
const TRAILER: &[u8] = &[b'F', b'J', b'L', 3];

/// The offset of the sequence number in a batch: after the tag and the number of items.
pub(super) const SEQUENCE_OFFSET: u64 = 5;

/// Returns the bytes of a file without the hole at its end. A journal file is allocated before it is written: reading all of it
/// would cost memory and time, and give zeros.
pub(super) fn written(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = fs::File::open(path)?;
    let mut bytes = Vec::new();
    let mut end = 0;
    loop {
        let start = match seek(&file, SeekFrom::Data(end)) {
            Ok(start) => start,
            // The rest of the file is a hole.
            Err(rustix::io::Errno::NXIO) => return Ok(bytes),
            Err(error) => return Err(error.into()),
        };
        end = seek(&file, SeekFrom::Hole(start))?;
        bytes.resize(usize::try_from(start).map_err(io::Error::other)?, 0);
        file.seek(io::SeekFrom::Start(start))?;
        io::Read::by_ref(&mut file).take(end - start).read_to_end(&mut bytes)?;
    }
}

/// Counts the valid batches anywhere in these bytes.
pub(super) fn count_batches(bytes: &[u8]) -> u64 {
    let mut count = 0;
    let mut at = 0;
    while let Some(start) = bytes[at..].iter().position(|&byte| byte == TAG_START) {
        let mut reader = Reader { bytes, at: at + start };
        match reader.batch() {
            Ok(_) => {
                count += 1;
                at = reader.at;
            }
            Err(_) => at += start + 1,
        }
    }
    count
}

/// A write of a batch.
pub(super) struct Item<'b> {
    kind: u8,
    /// The engine's number of the map.
    pub(super) map: u64,
    pub(super) key: &'b [u8],
    value: &'b [u8],
}

impl<'b> Item<'b> {
    /// Returns the value; `None` if the key was removed.
    pub(super) fn value(&self) -> Option<&'b [u8]> {
        (self.kind == KIND_VALUE).then_some(self.value)
    }
}

/// Reads batches from the bytes of a file.
pub(super) struct Reader<'b> {
    pub(super) bytes: &'b [u8],
    pub(super) at: usize,
}

impl<'b> Reader<'b> {
    /// Returns whether only zeros follow, with which a journal file is allocated.
    pub(super) fn at_end(&self) -> bool {
        // The first byte decides in all cases but the last, so this is not quadratic.
        self.bytes.get(self.at).is_none_or(|&byte| byte == 0) && self.bytes[self.at..].iter().all(|&byte| byte == 0)
    }

    /// Reads the next batch. No checksum covers its sequence number.
    pub(super) fn batch(&mut self) -> Result<Chain, String> {
        self.batch_with_items(|_| ())
    }

    /// Reads the next batch, and calls `visit` for each of its writes before the batch is known to be valid.
    pub(super) fn batch_with_items(&mut self, mut visit: impl FnMut(Item<'b>)) -> Result<Chain, String> {
        self.expect(TAG_START, "the start of a batch")?;
        let items = u32::from_le_bytes(self.array()?);
        let sequence = u64::from_le_bytes(self.array()?);
        let start = self.at;
        let mut last = None;
        for _ in 0..items {
            let item = self.item()?;
            if item.key == MetadataKey::LastBatch.encode() {
                last = LastBatch::decode(item.value).ok().or(last);
            }
            visit(item);
        }
        let sum = xxhash_rust::xxh3::xxh3_64(&self.bytes[start..self.at]);
        self.expect(TAG_END, "the end of a batch")?;
        if u64::from_le_bytes(self.array()?) != sum {
            return Err("the checksum of a batch is wrong".to_owned());
        }
        if self.take(TRAILER.len())? != TRAILER {
            return Err("a batch does not end as it should".to_owned());
        }
        last.map(|last| Chain { last, sequence }).ok_or_else(|| "a batch has no number".to_owned())
    }

    fn item(&mut self) -> Result<Item<'b>, String> {
        self.expect(TAG_ITEM, "an item of a batch")?;
        let [kind, compression] = self.array()?;
        if compression != 0 {
            return Err("an item is compressed, which this store never does".to_owned());
        }
        let map = u64::from_le_bytes(self.array()?);
        let key_length = u16::from_le_bytes(self.array()?);
        let length = u32::from_le_bytes(self.array()?);
        let stored_length = u32::from_le_bytes(self.array()?);
        if length != stored_length {
            return Err("an item has two lengths".to_owned());
        }
        let key = self.take(usize::from(key_length))?;
        let value = self.take(usize::try_from(length).unwrap_or(usize::MAX))?;
        Ok(Item { kind, map, key, value })
    }

    fn expect(&mut self, tag: u8, what: &str) -> Result<(), String> {
        match self.take(1)? {
            [found] if *found == tag => Ok(()),
            _ => Err(format!("{what} is not where it should be")),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let taken = self.take(N)?;
        taken.try_into().map_err(|_| "the journal ends within a batch".to_owned())
    }

    fn take(&mut self, count: usize) -> Result<&'b [u8], String> {
        let taken = self.at.checked_add(count).and_then(|end| self.bytes.get(self.at..end));
        let taken = taken.ok_or_else(|| "the journal ends within a batch".to_owned())?;
        self.at += count;
        Ok(taken)
    }
}
