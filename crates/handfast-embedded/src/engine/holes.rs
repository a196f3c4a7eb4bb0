//! Parts of a map that cannot be read.
//!
//! A data file is blocks of rows, in the order of their keys. The rows of a damaged block lie behind the last row of the
//! block before it and before the first row of the block behind it; at the ends of the file, within the keys that the
//! file has. Several files may cover the same keys, so holes of different files are put together where they overlap.

use std::ops::Bound;

use super::{Bytes, Range};

#[cfg(test)]
mod tests;

/// More bytes of 0xff in a row than any key of ours has behind a byte that is one less than another key's last.
const NEAR_BYTES: usize = 64;

/// Keys of which some cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hole {
    pub(crate) range: Range,
    /// Why not, and in which file, for people.
    pub(crate) cause: String,
    /// Of those, what is known for certain from elsewhere, in its order.
    pub(crate) rows: Vec<(Bytes, Bytes)>,
}

impl Hole {
    pub(crate) fn new(range: Range, cause: String) -> Self {
        Hole { range, cause, rows: Vec::new() }
    }
}

/// Whether a key is in one of these holes, which are in their order and apart from each other.
pub(super) fn has(holes: &[Hole], key: &[u8]) -> bool {
    let ends_before = |hole: &Hole| match &hole.range.1 {
        Bound::Included(end) => &end[..] < key,
        Bound::Excluded(end) => &end[..] <= key,
        Bound::Unbounded => false,
    };
    holes.get(holes.partition_point(ends_before)).is_some_and(|hole| match &hole.range.0 {
        Bound::Included(start) => &start[..] <= key,
        Bound::Excluded(start) => &start[..] < key,
        Bound::Unbounded => true,
    })
}

/// A place between keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    BeforeAll,
    /// Before a key, or behind it.
    At(Vec<u8>, Side),
    BehindAll,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    Before,
    Behind,
}

fn start_of((start, _): &Range) -> Place {
    match start {
        Bound::Included(key) => Place::At(key.clone(), Side::Before),
        Bound::Excluded(key) => Place::At(key.clone(), Side::Behind),
        Bound::Unbounded => Place::BeforeAll,
    }
}

fn end_of((_, end): &Range) -> Place {
    match end {
        Bound::Included(key) => Place::At(key.clone(), Side::Behind),
        Bound::Excluded(key) => Place::At(key.clone(), Side::Before),
        Bound::Unbounded => Place::BehindAll,
    }
}

/// The last key before a key, or one so near that no key of ours is between them. A range that ends with it stays out of
/// the block behind the key's own; the engine looks there for older states of the last key of a block.
pub(super) fn last_before(key: &[u8]) -> Vec<u8> {
    let mut before = key.to_vec();
    // Without its last byte, if that is 0, nothing is between them.
    if let Some(last) = before.pop().filter(|&last| last > 0) {
        before.push(last - 1);
        before.extend([0xff; NEAR_BYTES]);
    }
    before
}

/// What two ranges have in common.
pub(super) fn intersection(one: &Range, other: &Range) -> Option<Range> {
    let start = if start_of(one) < start_of(other) { &other.0 } else { &one.0 };
    let end = if end_of(one) < end_of(other) { &one.1 } else { &other.1 };
    let common = (start.clone(), end.clone());
    (start_of(&common) < end_of(&common)).then_some(common)
}

/// Gathers the holes of one data file while its rows are read one after the other.
pub(super) struct Gathering {
    /// The part of the file that is read; its start moves along.
    rest: Range,
    cause: Option<String>,
}

impl Gathering {
    pub(super) fn new(range: Range) -> Self {
        Gathering { rest: range, cause: None }
    }

    /// A row was read.
    pub(super) fn row(&mut self, key: &[u8]) -> Option<Hole> {
        let start = std::mem::replace(&mut self.rest.0, Bound::Excluded(key.to_vec()));
        let cause = self.cause.take()?;
        Some(Hole::new((start, Bound::Excluded(key.to_vec())), cause))
    }

    /// Rows could not be read.
    pub(super) fn failure(&mut self, cause: String) {
        self.cause.get_or_insert(cause);
    }

    /// There are no more rows.
    pub(super) fn end(self) -> Option<Hole> {
        Some(Hole::new(self.rest, self.cause?))
    }
}

/// Puts holes into their order, and those together that overlap.
pub(super) fn merged(mut holes: Vec<Hole>) -> Vec<Hole> {
    holes.sort_by_key(|hole| start_of(&hole.range));
    let mut merged: Vec<Hole> = Vec::new();
    for hole in holes {
        match merged.last_mut() {
            Some(last) if start_of(&hole.range) < end_of(&last.range) => {
                if end_of(&last.range) < end_of(&hole.range) {
                    last.range.1 = hole.range.1;
                }
                if !last.cause.contains(&hole.cause) {
                    last.cause = format!("{}, {}", last.cause, hole.cause);
                }
            }
            _ => merged.push(hole),
        }
    }
    merged
}
