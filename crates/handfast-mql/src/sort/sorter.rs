//! Sorting what comes in, within a bound on memory: all of it, or the first few.

use std::collections::BinaryHeap;

use crate::{Code, Error, Result};

/// What a row costs besides its key and its value: the row itself, and what an allocation costs twice.
const ROW_BYTES: usize = 96;

/// Sorts values by keys ([`Sort::key`](super::Sort::key)); those with equal keys stay in the order in which they came.
///
/// With a limit it holds no more values than that: a `find` with `sort` and `limit` over a large collection needs
/// little memory.
#[derive(Debug)]
pub struct Sorter<T> {
    /// The greatest row is on top, to be dropped first.
    rows: BinaryHeap<Row<T>>,
    limit: Option<usize>,
    bytes: usize,
    bytes_max: usize,
    arrived: u64,
}

#[derive(Debug)]
struct Row<T> {
    key: Vec<u8>,
    arrival: u64,
    bytes: usize,
    value: T,
}

impl<T> Sorter<T> {
    /// A sorter that keeps the first `limit` values, or all, in at most so many bytes:
    /// [`Context::stage_bytes_max`](crate::Context::stage_bytes_max).
    pub fn new(limit: Option<usize>, bytes_max: usize) -> Self {
        Sorter { rows: BinaryHeap::new(), limit, bytes: 0, bytes_max, arrived: 0 }
    }

    /// Whether a value with this key would be among those kept. Saves the caller from copying one that would not.
    pub fn wants(&self, key: &[u8]) -> bool {
        match self.limit {
            // A later arrival does not push out one with the same key.
            Some(limit) if self.rows.len() >= limit => self.rows.peek().is_some_and(|last| key < last.key.as_slice()),
            _ => true,
        }
    }

    /// Takes a value of `bytes` bytes.
    ///
    /// # Errors
    /// `QueryExceededMemoryLimitNoDiskUseAllowed` (292).
    pub fn push(&mut self, key: Vec<u8>, value: T, bytes: usize) -> Result<()> {
        let arrival = self.arrived;
        self.arrived += 1;
        if !self.wants(&key) {
            return Ok(());
        }
        let bytes = bytes.saturating_add(key.len()).saturating_add(ROW_BYTES);
        self.bytes = self.bytes.saturating_add(bytes);
        self.rows.push(Row { key, arrival, bytes, value });
        if self.limit.is_some_and(|limit| self.rows.len() > limit)
            && let Some(last) = self.rows.pop()
        {
            self.bytes = self.bytes.saturating_sub(last.bytes);
        }
        if self.bytes > self.bytes_max {
            let message = format!(
                "Sort exceeded memory limit of {} bytes, but did not opt in to external sorting.",
                self.bytes_max
            );
            return Err(Error::new(Code::QueryExceededMemoryLimitNoDiskUseAllowed, message));
        }
        Ok(())
    }

    /// How many values it holds.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The values in order.
    pub fn into_sorted(self) -> impl ExactSizeIterator<Item = T> {
        self.rows.into_sorted_vec().into_iter().map(|row| row.value)
    }
}

impl<T> Ord for Row<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key).then(self.arrival.cmp(&other.arrival))
    }
}

impl<T> PartialOrd for Row<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Row<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T> Eq for Row<T> {}
