//! Recovers keys of a damaged data file from the journal.
//!
//! The content of a data file was in the journal first, and stays there for a while. The batches up to the last one have no gap,
//! so the last write of a key among them is its state:
//!
//! ```text
//! data file               a=1 b=1 c=1                the block is damaged
//! journal     (lost: a=1)     b=1 c=1  b=2  -c       b is 2, c was removed, a is unknown
//! ```

use std::collections::BTreeMap;
use std::path::Path;

use super::list;
use super::reader::{Reader, written};

#[cfg(test)]
mod tests;

/// Bytes of keys and values that are gathered. Beyond this bound no key is returned, as its last write could be among the others.
const BYTES_MAX: usize = 256 * 1024 * 1024;

/// Returns the last writes of the wanted keys of a map, up to and including a batch: the value, or `None` if the key was removed.
/// `map` is the engine's number. The result is empty if the journal cannot be read up to there.
pub(crate) fn last_writes(
    engine: &Path,
    map: u64,
    last_batch: u64,
    is_wanted: impl Fn(&[u8]) -> bool,
) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
    let mut writes = BTreeMap::new();
    let (mut before, mut bytes_left) = (None, BYTES_MAX);
    for file in list(engine).unwrap_or_default() {
        // The engine may just have removed the file. Then the next batch does not follow, and the result is restarted.
        let bytes = written(&file.path).unwrap_or_default();
        let mut reader = Reader { bytes: &bytes, at: 0 };
        while !reader.at_end() {
            let mut of_batch = Vec::new();
            let batch = reader.batch_with_items(|item| {
                if item.map == map && is_wanted(item.key) {
                    of_batch.push((item.key, item.value()));
                }
            });
            let Ok(batch) = batch else { break };
            let number = batch.last.number;
            if before.is_some_and(|before: u64| number != before + 1) {
                writes.clear();
            }
            before = Some(number);
            for (key, value) in of_batch {
                let Some(left) = bytes_left.checked_sub(key.len() + value.map_or(0, <[u8]>::len)) else {
                    return BTreeMap::new();
                };
                bytes_left = left;
                writes.insert(key.to_vec(), value.map(<[u8]>::to_vec));
            }
            if number == last_batch {
                return writes;
            }
        }
    }
    BTreeMap::new()
}
