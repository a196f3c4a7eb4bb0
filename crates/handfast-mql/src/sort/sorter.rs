//! Sorts values within a bound on memory, and keeps all of them or the first few.

use std::collections::BinaryHeap;

use crate::context::{Context, MemoryReservation};
use crate::{Code, Error, Result};

/// The bytes of a row besides its key and its value: the row itself, and the overhead of two allocations.
const ROW_BYTES: usize = 96;

/// A stable sort of values by keys ([`Sort::key`](super::Sort::key)).
///
/// With a limit it holds at most `limit` values, so a `find` with `sort` and `limit` over a large collection needs little memory.
#[derive(Debug)]
pub struct Sorter<T> {
    /// The greatest row is on top, to be dropped first.
    rows: BinaryHeap<Row<T>>,
    limit: Option<usize>,
    held: MemoryReservation,
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
    /// Creates a sorter that keeps the first `limit` values, or all, in at most
    /// [`QueryMemory::stage_bytes_max`](crate::context::QueryMemory::stage_bytes_max).
    pub fn new(limit: Option<usize>, context: &Context) -> Self {
        let (held, bytes_max) = (MemoryReservation::new(context), context.memory.stage_bytes_max);
        Sorter { rows: BinaryHeap::new(), limit, held, bytes_max, arrived: 0 }
    }

    /// Tells whether a value with this key would be kept, so that the caller need not copy one that would not.
    pub fn wants(&self, key: &[u8]) -> bool {
        match self.limit {
            // A later value does not replace one with the same key.
            Some(limit) if self.rows.len() >= limit => self.rows.peek().is_some_and(|last| key < last.key.as_slice()),
            _ => true,
        }
    }

    /// Adds a value of `bytes` bytes.
    ///
    /// # Errors
    /// `QueryExceededMemoryLimitNoDiskUseAllowed` (292), also if the stages of all queries hold too much together.
    pub fn push(&mut self, key: Vec<u8>, value: T, bytes: usize) -> Result<()> {
        let arrival = self.arrived;
        self.arrived += 1;
        if !self.wants(&key) {
            return Ok(());
        }
        let bytes = bytes.saturating_add(key.len()).saturating_add(ROW_BYTES);
        self.held.grow(bytes)?;
        self.rows.push(Row { key, arrival, bytes, value });
        if self.limit.is_some_and(|limit| self.rows.len() > limit)
            && let Some(last) = self.rows.pop()
        {
            self.held.shrink(last.bytes);
        }
        if self.held.bytes() > self.bytes_max {
            let message = format!(
                "Sort exceeded memory limit of {} bytes: sorts are done in memory alone, also with allowDiskUse; add a \
                 limit or an index in this order, or raise the setting sort-bytes",
                self.bytes_max
            );
            return Err(Error::new(Code::QueryExceededMemoryLimitNoDiskUseAllowed, message));
        }
        Ok(())
    }

    /// Returns how many values it holds.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Tells whether the sorter holds no value.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the values in order. A value counts as held until the iterator returns it.
    pub fn into_sorted(self) -> Sorted<T> {
        Sorted { rows: self.rows.into_sorted_vec().into_iter(), held: self.held }
    }
}

/// The sorted values of a [`Sorter`].
#[derive(Debug)]
pub struct Sorted<T> {
    rows: std::vec::IntoIter<Row<T>>,
    held: MemoryReservation,
}

impl<T> Iterator for Sorted<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        let row = self.rows.next()?;
        self.held.shrink(row.bytes);
        Some(row.value)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.rows.size_hint()
    }
}

impl<T> ExactSizeIterator for Sorted<T> {}

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
