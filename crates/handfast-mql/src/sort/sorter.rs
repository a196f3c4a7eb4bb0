//! Sorts values, and keeps all of them or the first few. What exceeds a bound on memory goes to a file, if there is a place for one.

use std::collections::BinaryHeap;
use std::sync::Arc;

use super::runs::{Codec, MergedRows, Runs};
use crate::context::{Context, Interrupt, MemoryReservation};
use crate::spill::{SpillSpace, Spilled};
use crate::{Code, Error, Result};

/// The bytes of a row besides its key and its value: the row itself, and the overhead of two allocations.
const ROW_BYTES: usize = 96;
/// The fewest bytes that a sort writes because all queries together have no more memory: many small runs would take long to merge.
const RUN_BYTES_MIN: usize = 64 * 1024;

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
    spilling: Option<Spilling<T>>,
    /// A value with this key or a greater one is not among the first ones: a run has as many before it.
    cutoff: Option<Vec<u8>>,
}

/// The file of a sort.
#[derive(Debug)]
struct Spilling<T> {
    space: Arc<dyn SpillSpace>,
    interrupt: Interrupt,
    codec: Codec<T>,
    runs: Option<Runs>,
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
    /// [`QueryMemory::stage_bytes_max`](crate::context::QueryMemory::stage_bytes_max), in memory alone.
    pub fn new(limit: Option<usize>, context: &Context) -> Self {
        let (held, bytes_max) = (MemoryReservation::new(context), context.memory.stage_bytes_max);
        Sorter { rows: BinaryHeap::new(), limit, held, bytes_max, arrived: 0, spilling: None, cutoff: None }
    }

    /// Creates a sorter that writes values that do not fit into memory to a file, if the context has a place for one.
    pub fn spilling(limit: Option<usize>, context: &Context) -> Self
    where
        T: Spilled,
    {
        let spilling = |space: &Arc<dyn SpillSpace>| Spilling {
            space: Arc::clone(space),
            interrupt: context.interrupt.clone(),
            codec: Codec::new(),
            runs: None,
        };
        Sorter { spilling: context.memory.spill.as_ref().map(spilling), ..Sorter::new(limit, context) }
    }

    /// Tells whether a value with this key would be kept, so that the caller need not copy one that would not.
    pub fn wants(&self, key: &[u8]) -> bool {
        if self.cutoff.as_ref().is_some_and(|cutoff| key >= cutoff.as_slice()) {
            return false;
        }
        match self.limit {
            // A later value does not replace one with the same key.
            Some(limit) if self.rows.len() >= limit => self.rows.peek().is_some_and(|last| key < last.key.as_slice()),
            _ => true,
        }
    }

    /// Adds a value of `bytes` bytes.
    ///
    /// # Errors
    /// `QueryExceededMemoryLimitNoDiskUseAllowed` (292) without a file, also if the stages of all queries hold too much together; the
    /// errors of the file.
    pub fn push(&mut self, key: Vec<u8>, value: T, bytes: usize) -> Result<()> {
        let arrival = self.arrived;
        self.arrived += 1;
        if !self.wants(&key) {
            return Ok(());
        }
        let bytes = bytes.saturating_add(key.len()).saturating_add(ROW_BYTES);
        if let Err(error) = self.held.grow(bytes) {
            if self.held.bytes() < RUN_BYTES_MIN.min(self.bytes_max / 4) || !self.spill()? {
                return Err(error);
            }
            self.held.grow(bytes)?;
        }
        self.rows.push(Row { key, arrival, bytes, value });
        if self.limit.is_some_and(|limit| self.rows.len() > limit)
            && let Some(last) = self.rows.pop()
        {
            self.held.shrink(last.bytes);
        }
        if self.held.bytes() > self.bytes_max && !self.spill()? {
            let message = format!(
                "Sort exceeded memory limit of {} bytes, but did not opt in to external sorting: allow it with allowDiskUse and the \
                 setting spill-bytes, add a limit or an index in this order, or raise the setting sort-bytes",
                self.bytes_max
            );
            return Err(Error::new(Code::QueryExceededMemoryLimitNoDiskUseAllowed, message));
        }
        Ok(())
    }

    /// Writes all rows that it holds to the file, in order; returns `false` if there is no place for one, or no row.
    fn spill(&mut self) -> Result<bool> {
        let Some(Spilling { space, interrupt, codec, runs }) = &mut self.spilling else { return Ok(false) };
        if self.rows.is_empty() {
            return Ok(false);
        }
        let rows = std::mem::take(&mut self.rows).into_sorted_vec();
        let runs = match runs {
            Some(runs) => runs,
            None => runs.insert(Runs::new(Arc::clone(space), interrupt.clone())?),
        };
        runs.append(rows.iter().map(|row| (&row.key, &row.value)), codec)?;
        if self.limit == Some(rows.len())
            && let Some(last) = rows.into_iter().next_back()
        {
            self.cutoff = Some(last.key);
        }
        self.held.shrink(self.held.bytes());
        Ok(true)
    }

    /// Returns how many values it holds in memory.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Tells whether the sorter holds no value in memory.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the values in order. A value counts as held until the iterator returns it.
    ///
    /// # Errors
    /// The errors of the file.
    pub fn into_sorted(mut self) -> Result<Sorted<T>> {
        if self.spilling.as_ref().is_some_and(|spilling| spilling.runs.is_some()) {
            self.spill()?;
        }
        let Sorter { rows, limit, mut held, bytes_max, spilling, .. } = self;
        let mut file = None;
        if let Some(Spilling { codec, runs: Some(runs), .. }) = spilling {
            let rows = runs.merge(limit.unwrap_or(usize::MAX), &mut held, bytes_max)?;
            file = Some(FileRows { rows, codec });
        }
        Ok(Sorted { rows: rows.into_sorted_vec().into_iter(), held, file })
    }
}

/// The sorted values of a [`Sorter`].
#[derive(Debug)]
pub struct Sorted<T> {
    rows: std::vec::IntoIter<Row<T>>,
    held: MemoryReservation,
    file: Option<FileRows<T>>,
}

/// The sorted values of a file. They are all of them: nothing is left in memory.
#[derive(Debug)]
struct FileRows<T> {
    rows: MergedRows,
    codec: Codec<T>,
}

impl<T> FileRows<T> {
    fn next(&mut self) -> Result<Option<T>> {
        let Some(value) = self.rows.next()? else { return Ok(None) };
        (self.codec.read)(&mut &*value).map(Some)
    }
}

impl<T> Iterator for Sorted<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        if let Some(file) = &mut self.file {
            return file.next().transpose();
        }
        let row = self.rows.next()?;
        self.held.shrink(row.bytes);
        Some(Ok(row.value))
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
