//! The ranges of keys that damaged blocks of data files cover, and the rows of them that other places have.
//!
//! A read of a key goes from the newest place that may have it to the oldest, and ends at the first that has it; it fails at
//! a damaged block only if nothing newer has the key. So the result of a read is right within a damaged range too; only the
//! keys to read are unknown. They are gathered from the other data files and the write buffer. Where a read fails, the
//! journal may still hold the last write ([`last_writes`]).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use fjall::{AbstractTree as _, Slice};

use super::{FjallView, guarded};
use crate::engine::damaged_ranges::{self, FileScan};
use crate::engine::{Bytes, DamagedRange, Keyspace, Range, View as _};
use crate::format::{LastBatch, MetadataKey};
use crate::journal::last_writes;

/// The number of keys that are gathered within damaged ranges; further keys count as unreadable.
const KEYS_MAX: usize = 1_000_000;
/// The bytes of recovered rows; further rows count as unreadable.
const ROWS_BYTES_MAX: usize = 256 * 1024 * 1024;
/// The number of polls, and the pause between them, until full buffers have been written to data files.
const BUFFER_LOOKS_MAX: u32 = 100;
const BUFFER_PAUSE: Duration = Duration::from_millis(100);

impl FjallView {
    /// Returns the damaged ranges within a range, with their recovered rows.
    pub(super) fn find_damaged_ranges(&self, keyspace: Keyspace, range: &Range) -> Vec<DamagedRange> {
        let mut found = Vec::new();
        self.each_file(keyspace, range, |range, rows| {
            let mut scan = FileScan::new(range);
            for row in rows {
                match row {
                    Ok(key) => found.extend(scan.row(&key)),
                    Err(words) => scan.failure(words),
                }
            }
            found.extend(scan.end());
        });
        let mut found = damaged_ranges::merged(found);
        if !found.is_empty() {
            self.add_recovered_rows(keyspace, &mut found);
        }
        found
    }

    /// Adds the rows that other places have.
    fn add_recovered_rows(&self, keyspace: Keyspace, found: &mut [DamagedRange]) {
        let written = self.last_writes_in_journal(keyspace, found);
        let mut keys = self.keys(keyspace, found);
        keys.extend(written.keys().map(|key| Slice::from(key.as_slice())));
        let mut bytes_left = ROWS_BYTES_MAX;
        for damaged in found {
            let bounds = (damaged.range.0.clone().map(Slice::from), damaged.range.1.clone().map(Slice::from));
            for key in keys.range(bounds) {
                let value = match self.get(keyspace, key) {
                    Ok(value) => value,
                    Err(_) => written.get(&key[..]).cloned().flatten().map(Slice::from),
                };
                let Some(value) = value else { continue };
                let Some(left) = bytes_left.checked_sub(key.len() + value.len()) else { return };
                bytes_left = left;
                damaged.rows.push((key.clone(), value));
            }
        }
    }

    /// Returns the last writes of their keys in the journal.
    fn last_writes_in_journal(&self, keyspace: Keyspace, found: &[DamagedRange]) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
        let last_batch = self.get(Keyspace::Metadata, &MetadataKey::LastBatch.encode());
        let last_batch = last_batch.ok().flatten().and_then(|value| LastBatch::decode(&value).ok());
        match last_batch.filter(|_| self.salvages_from_journal) {
            Some(last) => {
                let Some(map) = self.map(keyspace).map(fjall::Keyspace::id) else { return BTreeMap::new() };
                last_writes(&self.path, map, last.number, |key| damaged_ranges::contains(found, key))
            }
            None => BTreeMap::new(),
        }
    }

    /// Returns the keys within damaged ranges that the write buffer or a data file has.
    fn keys(&self, keyspace: Keyspace, found: &[DamagedRange]) -> BTreeSet<Bytes> {
        let mut keys = BTreeSet::new();
        let Some(tree) = self.map(keyspace).map(|map| &map.tree) else { return keys };
        for entry in tree.active_memtable().items.iter() {
            let key = &entry.key().user_key;
            if keys.len() < KEYS_MAX && damaged_ranges::contains(found, key) {
                keys.insert(key.clone());
            }
        }
        // The engine does not show what is in full buffers, until they are data files.
        for _ in 0..BUFFER_LOOKS_MAX {
            if tree.sealed_memtable_count() == 0 {
                break;
            }
            std::thread::park_timeout(BUFFER_PAUSE);
        }
        for damaged in found {
            self.each_file(keyspace, &damaged.range, |_, rows| {
                let left = KEYS_MAX.saturating_sub(keys.len());
                keys.extend(rows.flatten().take(left));
            });
        }
        keys
    }

    /// Calls `visit` for each data file with the part of the range that it covers and an iterator over its keys there, which
    /// yields the reason where keys cannot be read.
    fn each_file(
        &self,
        keyspace: Keyspace,
        range: &Range,
        mut visit: impl FnMut(Range, &mut dyn Iterator<Item = Result<Bytes, String>>),
    ) {
        let Some(map) = self.map(keyspace) else { return };
        for file in map.tree.current_version().iter_tables() {
            let keys = &file.metadata.key_range;
            let own = (Bound::Included(keys.min().to_vec()), Bound::Included(keys.max().to_vec()));
            let Some(range) = damaged_ranges::intersection(range, &own) else { continue };
            let name = file.path.display().to_string();
            let mut rows = file.range((range.0.clone().map(Slice::from), range.1.clone().map(Slice::from)));
            // The iterator of a file continues after a block that it cannot read.
            let mut failures_left = 1 + file.metadata.data_block_count + file.metadata.index_block_count;
            let mut keys = std::iter::from_fn(|| {
                if failures_left == 0 {
                    return None;
                }
                match guarded(&name, || Ok(rows.next().transpose()?)) {
                    Ok(row) => Some(Ok(row?.key.user_key)),
                    Err(error) => {
                        failures_left -= 1;
                        Some(Err(error.description()))
                    }
                }
            });
            visit(range, &mut keys);
        }
    }
}
