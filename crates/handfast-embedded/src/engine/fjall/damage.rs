//! Damaged blocks of data files, and what is known all the same of the keys in them.
//!
//! A read of a key goes from the newest place that may have it to the oldest, and ends at the first that has it; it fails at
//! a damaged block only where nothing newer has the key. So what a read gives is right, also within a hole: what is missing
//! are the keys to ask for. They are gathered from the other data files and the write buffer. Where a read fails, the
//! journal may still hold the last write ([`last_writes`]).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use fjall::{AbstractTree as _, Slice};

use super::{FjallView, guarded};
use crate::directory::journal::last_writes;
use crate::engine::holes::{self, Gathering};
use crate::engine::{Bytes, Hole, Keyspace, Range, View as _};
use crate::format::{LastBatch, MetadataKey};

/// Keys that are gathered within holes; what is beyond them counts as unreadable.
const KEYS_MAX: usize = 1_000_000;
/// Bytes of what is kept of it, in all; the same.
const ROWS_BYTES_MAX: usize = 256 * 1024 * 1024;
/// How often, and after which time, it is looked again whether full buffers have been written to data files.
const BUFFER_LOOKS_MAX: u32 = 100;
const BUFFER_PAUSE: Duration = Duration::from_millis(100);

impl FjallView {
    /// The holes of a range, with what is known of them.
    pub(super) fn damage(&self, keyspace: Keyspace, range: &Range) -> Vec<Hole> {
        let mut found = Vec::new();
        self.each_file(keyspace, range, |range, rows| {
            let mut gathering = Gathering::new(range);
            for row in rows {
                match row {
                    Ok(key) => found.extend(gathering.row(&key)),
                    Err(words) => gathering.failure(words),
                }
            }
            found.extend(gathering.end());
        });
        let mut found = holes::merged(found);
        if !found.is_empty() {
            self.fill(keyspace, &mut found);
        }
        found
    }

    /// Adds what is known.
    fn fill(&self, keyspace: Keyspace, found: &mut [Hole]) {
        let written = self.written(keyspace, found);
        let mut keys = self.keys(keyspace, found);
        keys.extend(written.keys().map(|key| Slice::from(key.as_slice())));
        let mut bytes_left = ROWS_BYTES_MAX;
        for hole in found {
            let bounds = (hole.range.0.clone().map(Slice::from), hole.range.1.clone().map(Slice::from));
            for key in keys.range(bounds) {
                let value = match self.get(keyspace, key) {
                    Ok(value) => value,
                    Err(_) => written.get(&key[..]).cloned().flatten().map(Slice::from),
                };
                let Some(value) = value else { continue };
                let Some(left) = bytes_left.checked_sub(key.len() + value.len()) else { return };
                bytes_left = left;
                hole.rows.push((key.clone(), value));
            }
        }
    }

    /// What the journal says of them.
    fn written(&self, keyspace: Keyspace, found: &[Hole]) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
        let last_batch = self.get(Keyspace::Metadata, &MetadataKey::LastBatch.encode());
        let last_batch = last_batch.ok().flatten().and_then(|value| LastBatch::decode(&value).ok());
        match last_batch.filter(|_| self.asks_journal) {
            Some(last) => {
                let map = self.keyspaces[keyspace as usize].id();
                last_writes(&self.path, map, last.number, |key| holes::has(found, key))
            }
            None => BTreeMap::new(),
        }
    }

    /// The keys within holes that the write buffer or a data file has.
    fn keys(&self, keyspace: Keyspace, found: &[Hole]) -> BTreeSet<Bytes> {
        let tree = &self.keyspaces[keyspace as usize].tree;
        let mut keys = BTreeSet::new();
        for entry in tree.active_memtable().items.iter() {
            let key = &entry.key().user_key;
            if keys.len() < KEYS_MAX && holes::has(found, key) {
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
        for hole in found {
            self.each_file(keyspace, &hole.range, |_, rows| {
                let room = KEYS_MAX.saturating_sub(keys.len());
                keys.extend(rows.flatten().take(room));
            });
        }
        keys
    }

    /// Reads each data file: the part of the range that is in it, and its keys there, with why some cannot be read between
    /// them.
    fn each_file(
        &self,
        keyspace: Keyspace,
        range: &Range,
        mut tell: impl FnMut(Range, &mut dyn Iterator<Item = Result<Bytes, String>>),
    ) {
        for file in self.keyspaces[keyspace as usize].tree.current_version().iter_tables() {
            let keys = &file.metadata.key_range;
            let own = (Bound::Included(keys.min().to_vec()), Bound::Included(keys.max().to_vec()));
            let Some(range) = holes::intersection(range, &own) else { continue };
            let name = file.path.display().to_string();
            let mut rows = file.range((range.0.clone().map(Slice::from), range.1.clone().map(Slice::from)));
            // The iterator of a file goes on behind a block that it cannot read.
            let mut failures_left = 1 + file.metadata.data_block_count + file.metadata.index_block_count;
            let mut keys = std::iter::from_fn(|| {
                if failures_left == 0 {
                    return None;
                }
                match guarded(&name, || Ok(rows.next().transpose()?)) {
                    Ok(row) => Some(Ok(row?.key.user_key)),
                    Err(error) => {
                        failures_left -= 1;
                        Some(Err(error.words()))
                    }
                }
            });
            tell(range, &mut keys);
        }
    }
}
