//! Keeps the first n of many values: by arrival, by value, or by a sort key.

use std::collections::{BinaryHeap, VecDeque};

use bson::RawBson;

use super::compile::Selection;
use crate::collation::Collation;
use crate::key::{self, Direction};

/// The n values that `$firstN`, `$lastN`, `$minN` or `$maxN` keeps.
#[derive(Debug)]
pub(crate) enum SelectedN {
    Arrived { n: usize, last: bool, kept: VecDeque<RawBson> },
    Ranked { largest: bool, top: TopN },
}

impl SelectedN {
    pub(crate) fn new(n: usize, selection: Selection) -> Self {
        match selection {
            Selection::First | Selection::Last => {
                SelectedN::Arrived { n, last: selection == Selection::Last, kept: VecDeque::new() }
            }
            Selection::Smallest | Selection::Largest => {
                SelectedN::Ranked { largest: selection == Selection::Largest, top: TopN::new(n, false) }
            }
        }
    }

    /// Tells whether a further value could still change the result.
    pub(crate) fn wants_more(&self) -> bool {
        !matches!(self, SelectedN::Arrived { n, last: false, kept } if kept.len() >= *n)
    }

    /// Adds a value; returns the one that was dropped.
    pub(crate) fn add(&mut self, value: RawBson, collation: Option<&Collation>) -> Option<RawBson> {
        match self {
            SelectedN::Arrived { n, kept, .. } => {
                kept.push_back(value);
                if kept.len() > *n { kept.pop_front() } else { None }
            }
            SelectedN::Ranked { largest, top } => {
                let direction = if *largest { Direction::Descending } else { Direction::Ascending };
                let mut key = Vec::new();
                key::encode_directed_under(value.as_raw_bson_ref(), direction, collation, &mut key);
                top.add(key, value).map(|(_, value)| value)
            }
        }
    }

    pub(crate) fn into_values(self) -> Vec<RawBson> {
        match self {
            SelectedN::Arrived { kept, .. } => kept.into(),
            SelectedN::Ranked { top, .. } => top.into_outputs(),
        }
    }
}

/// The n outputs that come first (or last) in a sort.
#[derive(Debug)]
pub(crate) struct TopN {
    n: usize,
    bottom: bool,
    arrivals: u64,
    kept: BinaryHeap<Entry>,
}

/// An entry of the heap. The greatest entry is dropped first.
#[derive(Debug)]
struct Entry {
    key: Vec<u8>,
    arrival: u64,
    bottom: bool,
    output: RawBson,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        // Among equals the earlier comes first.
        let order = self.key.cmp(&other.key).then(self.arrival.cmp(&other.arrival));
        if self.bottom { order.reverse() } else { order }
    }
}

impl TopN {
    pub(crate) fn new(n: usize, bottom: bool) -> Self {
        TopN { n, bottom, arrivals: 0, kept: BinaryHeap::new() }
    }

    /// Tells whether an output with this key would be kept.
    pub(crate) fn wants(&self, key: &[u8]) -> bool {
        match self.kept.peek() {
            Some(worst) if self.kept.len() >= self.n => {
                if self.bottom {
                    key >= worst.key.as_slice()
                } else {
                    key < worst.key.as_slice()
                }
            }
            _ => true,
        }
    }

    /// Adds an output; returns the key and output of the one that was dropped.
    pub(crate) fn add(&mut self, key: Vec<u8>, output: RawBson) -> Option<(Vec<u8>, RawBson)> {
        self.arrivals += 1;
        self.kept.push(Entry { key, arrival: self.arrivals, bottom: self.bottom, output });
        if self.kept.len() <= self.n {
            return None;
        }
        self.kept.pop().map(|entry| (entry.key, entry.output))
    }

    /// Returns the outputs in the order of the sort.
    pub(crate) fn into_outputs(self) -> Vec<RawBson> {
        let bottom = self.bottom;
        let mut entries = self.kept.into_sorted_vec();
        if bottom {
            entries.reverse();
        }
        entries.into_iter().map(|entry| entry.output).collect()
    }
}
