//! The ranges of keys that damaged blocks of data files cover.
//!
//! A data file is blocks of rows, in the order of their keys. The rows of a damaged block lie between the last row of the
//! block before it and the first row of the block after it; at the ends of the file, within the keys that the file has.
//! Several files may cover the same keys, so overlapping ranges of different files are merged.

use std::ops::Bound;

use super::{Bytes, Range};

#[cfg(test)]
mod tests;

/// The bytes of 0xff that [`last_before`] appends: no stored key has as many after such a prefix.
const NEAR_BYTES: usize = 64;

/// A range of keys of which some cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DamagedRange {
    pub(crate) range: Range,
    /// The reason, with the file, as text for people.
    pub(crate) cause: String,
    /// Rows of the range that other places have (a newer file, a write buffer, the journal), in order.
    pub(crate) rows: Vec<(Bytes, Bytes)>,
}

impl DamagedRange {
    pub(crate) fn new(range: Range, cause: String) -> Self {
        DamagedRange { range, cause, rows: Vec::new() }
    }
}

/// Returns whether a key is in one of these ranges, which are sorted and do not overlap.
pub(crate) fn contains(ranges: &[DamagedRange], key: &[u8]) -> bool {
    let ends_before = |damaged: &DamagedRange| match &damaged.range.1 {
        Bound::Included(end) => &end[..] < key,
        Bound::Excluded(end) => &end[..] <= key,
        Bound::Unbounded => false,
    };
    ranges.get(ranges.partition_point(ends_before)).is_some_and(|damaged| match &damaged.range.0 {
        Bound::Included(start) => &start[..] <= key,
        Bound::Excluded(start) => &start[..] < key,
        Bound::Unbounded => true,
    })
}

/// A position between keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum KeyPosition {
    BeforeAll,
    At(Vec<u8>, Side),
    AfterAll,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    Before,
    After,
}

fn start_of((start, _): &Range) -> KeyPosition {
    match start {
        Bound::Included(key) => KeyPosition::At(key.clone(), Side::Before),
        Bound::Excluded(key) => KeyPosition::At(key.clone(), Side::After),
        Bound::Unbounded => KeyPosition::BeforeAll,
    }
}

fn end_of((_, end): &Range) -> KeyPosition {
    match end {
        Bound::Included(key) => KeyPosition::At(key.clone(), Side::After),
        Bound::Excluded(key) => KeyPosition::At(key.clone(), Side::Before),
        Bound::Unbounded => KeyPosition::AfterAll,
    }
}

/// Returns the greatest key before a key, or one so near that no stored key is between them. A range that ends with it keeps
/// the engine out of the next block, where it looks for older states of the last key of a block.
pub(crate) fn last_before(key: &[u8]) -> Vec<u8> {
    let mut before = key.to_vec();
    // Without its last byte, if that is 0, nothing is between them.
    if let Some(last) = before.pop().filter(|&last| last > 0) {
        before.push(last - 1);
        before.extend([0xff; NEAR_BYTES]);
    }
    before
}

/// Returns the intersection of two ranges, if it is not empty.
pub(crate) fn intersection(one: &Range, other: &Range) -> Option<Range> {
    let start = if start_of(one) < start_of(other) { &other.0 } else { &one.0 };
    let end = if end_of(one) < end_of(other) { &one.1 } else { &other.1 };
    let common = (start.clone(), end.clone());
    (start_of(&common) < end_of(&common)).then_some(common)
}

/// Finds the damaged ranges of one data file while its rows are read in order.
pub(crate) struct FileScan {
    /// The range that is still to be read.
    remaining: Range,
    cause: Option<String>,
}

impl FileScan {
    pub(crate) fn new(range: Range) -> Self {
        FileScan { remaining: range, cause: None }
    }

    /// Records that a row was read, and returns the damaged range before it.
    pub(crate) fn row(&mut self, key: &[u8]) -> Option<DamagedRange> {
        let start = std::mem::replace(&mut self.remaining.0, Bound::Excluded(key.to_vec()));
        let cause = self.cause.take()?;
        Some(DamagedRange::new((start, Bound::Excluded(key.to_vec())), cause))
    }

    /// Records that rows could not be read.
    pub(crate) fn failure(&mut self, cause: String) {
        self.cause.get_or_insert(cause);
    }

    /// Ends the scan, and returns the damaged range at the end of the file.
    pub(crate) fn end(self) -> Option<DamagedRange> {
        Some(DamagedRange::new(self.remaining, self.cause?))
    }
}

/// Sorts ranges and merges those that overlap.
pub(crate) fn merged(mut ranges: Vec<DamagedRange>) -> Vec<DamagedRange> {
    ranges.sort_by_key(|damaged| start_of(&damaged.range));
    let mut merged: Vec<DamagedRange> = Vec::new();
    for damaged in ranges {
        match merged.last_mut() {
            Some(last) if start_of(&damaged.range) < end_of(&last.range) => {
                if end_of(&last.range) < end_of(&damaged.range) {
                    last.range.1 = damaged.range.1;
                }
                if !last.cause.contains(&damaged.cause) {
                    last.cause = format!("{}, {}", last.cause, damaged.cause);
                }
            }
            _ => merged.push(damaged),
        }
    }
    merged
}
