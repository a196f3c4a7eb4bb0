//! What the journal still holds of keys whose data file is damaged.
//!
//! What is in a data file was in the journal first, and stays there for a while. Up to the last batch its batches have no gap,
//! so the last write of a key among them is its state:
//!
//! ```text
//! data file               a=1 b=1 c=1                the block is damaged
//! journal     (gone: a=1)     b=1 c=1  b=2  c gone   b is 2, c is not there, of a nothing is known
//! ```

use std::collections::BTreeMap;
use std::path::Path;

use super::list;
use super::reader::{Reader, written};

#[cfg(test)]
mod tests;

/// Bytes of keys and values that are gathered. Beyond it nothing is said of any key: the last write of one could be among
/// the others.
const BYTES_MAX: usize = 256 * 1024 * 1024;

/// The last writes to those keys of a map that are wanted, up to the end of a batch: the value, or none where the key was
/// removed. `map` is the engine's number. Empty if the journal cannot be read up to there.
pub(crate) fn last_writes(
    engine: &Path,
    map: u64,
    last_batch: u64,
    is_wanted: impl Fn(&[u8]) -> bool,
) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
    let mut writes = BTreeMap::new();
    let (mut before, mut bytes_left) = (None, BYTES_MAX);
    for file in list(engine).unwrap_or_default() {
        // The engine may have removed it just now. What is behind it does not follow then, and begins anew.
        let bytes = written(&file.path).unwrap_or_default();
        let mut reader = Reader { bytes: &bytes, at: 0 };
        while !reader.at_end() {
            let mut of_batch = Vec::new();
            let batch = reader.batch_telling(|item| {
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
