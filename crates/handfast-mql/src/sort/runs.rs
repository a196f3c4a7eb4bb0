//! The sorted runs of a sort that does not fit into memory: parts of its rows, each in order, in one file.
//!
//! ```text
//! memory full: sort the rows, append them as a run, go on with an empty memory
//! at the end:  the least first row of all runs is next; of equal ones that of the earliest run, which arrived first
//! ```
//!
//! While runs are merged, the next row of each is in memory. If these would be too many, some runs after the other are merged to longer ones
//! first. A row is its key and its value, each with its length before it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::Arc;

use crate::Result;
use crate::context::{Interrupt, MemoryReservation};
use crate::spill::{SpillFile, SpillSpace, Spilled, damaged};

/// The bytes that are written at once.
const WRITTEN_AT_ONCE: usize = 64 * 1024;
/// Limits on the bytes of a run that are read at once.
const READ_AT_ONCE: Range<usize> = 4 * 1024..64 * 1024;
/// The fewest runs that a merge reads.
const FAN_IN_MIN: usize = 2;

/// The runs of one sort.
#[derive(Debug)]
pub(super) struct Runs {
    space: Arc<dyn SpillSpace>,
    interrupt: Interrupt,
    rows: RowFile,
    runs: Vec<Range<u64>>,
    /// The bytes of the largest row.
    row_bytes_max: usize,
}

/// The functions that write and read the values of a sort.
#[derive(Debug)]
pub(super) struct Codec<T> {
    pub(super) write: fn(&T, &mut Vec<u8>),
    pub(super) read: fn(&mut &[u8]) -> Result<T>,
}

impl<T: Spilled> Codec<T> {
    pub(super) fn new() -> Self {
        Codec { write: T::write, read: T::read }
    }
}

/// A file of rows, with what is not written yet.
#[derive(Debug)]
struct RowFile {
    file: Box<dyn SpillFile>,
    buffer: Vec<u8>,
    end: u64,
}

impl RowFile {
    fn create(space: &Arc<dyn SpillSpace>) -> Result<Self> {
        Ok(RowFile { file: space.create()?, buffer: Vec::new(), end: 0 })
    }

    fn append(&mut self, key: &Vec<u8>, value: &Vec<u8>) -> Result<()> {
        key.write(&mut self.buffer);
        value.write(&mut self.buffer);
        if self.buffer.len() >= WRITTEN_AT_ONCE { self.write_buffer() } else { Ok(()) }
    }

    fn write_buffer(&mut self) -> Result<()> {
        self.file.append(&self.buffer)?;
        self.end += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

impl Runs {
    pub(super) fn new(space: Arc<dyn SpillSpace>, interrupt: Interrupt) -> Result<Self> {
        let rows = RowFile::create(&space)?;
        Ok(Runs { space, interrupt, rows, runs: Vec::new(), row_bytes_max: 0 })
    }

    /// Writes rows, which are in order, as a run.
    pub(super) fn append<'r, T: 'r>(
        &mut self,
        rows: impl Iterator<Item = (&'r Vec<u8>, &'r T)>,
        codec: &Codec<T>,
    ) -> Result<()> {
        let (mut value_bytes, start) = (Vec::new(), self.rows.end);
        for (key, value) in rows {
            self.interrupt.check()?;
            value_bytes.clear();
            (codec.write)(value, &mut value_bytes);
            self.row_bytes_max = self.row_bytes_max.max(key.len() + value_bytes.len());
            self.rows.append(key, &value_bytes)?;
        }
        self.rows.write_buffer()?;
        self.runs.push(start..self.rows.end);
        Ok(())
    }

    /// Begins to read the first `limit` rows of all runs in order, in about `bytes_max` bytes of memory, which are reserved.
    ///
    /// # Errors
    /// 292 if there is no memory for two rows; the errors of the file and of the interrupt.
    pub(super) fn merge(mut self, limit: usize, held: &mut MemoryReservation, bytes_max: usize) -> Result<MergedRows> {
        loop {
            let before = held.bytes();
            let (fan_in, read_at_once) = self.reserve(held, bytes_max)?;
            if self.runs.len() <= fan_in {
                let Runs { rows: RowFile { mut file, .. }, runs, interrupt, .. } = self;
                let merge = Merge::new(&runs, read_at_once, &mut *file)?;
                return Ok(MergedRows { file, merge, interrupt, left: limit });
            }
            self.shorten(fan_in, read_at_once, limit)?;
            held.shrink(held.bytes() - before);
        }
    }

    /// Reserves the memory of a merge. Returns the number of runs that it can read, and the bytes of each that it reads at once.
    fn reserve(&self, held: &mut MemoryReservation, bytes_max: usize) -> Result<(usize, usize)> {
        let runs = self.runs.len().max(1);
        // A row that is next, and the one that is being read.
        let rows = self.row_bytes_max.saturating_mul(2);
        let read_at_once = (bytes_max / runs).saturating_sub(rows).clamp(READ_AT_ONCE.start, READ_AT_ONCE.end);
        let bytes_of_run = rows.saturating_add(read_at_once);
        let least = FAN_IN_MIN.min(runs);
        let mut fan_in = (bytes_max / bytes_of_run).clamp(least, runs);
        loop {
            match held.grow(bytes_of_run.saturating_mul(fan_in)) {
                Ok(()) => return Ok((fan_in, read_at_once)),
                Err(error) if fan_in == least => return Err(error),
                Err(_) => fan_in = (fan_in / 2).max(least),
            }
        }
    }

    /// Merges each `fan_in` runs to one, in a file of their own.
    fn shorten(&mut self, fan_in: usize, read_at_once: usize, limit: usize) -> Result<()> {
        let (mut rows, mut runs) = (RowFile::create(&self.space)?, Vec::new());
        for group in self.runs.chunks(fan_in) {
            let file = &mut *self.rows.file;
            let (mut merge, mut left, start) = (Merge::new(group, read_at_once, file)?, limit, rows.end);
            while left > 0
                && let Some(Head { key, value, .. }) = merge.next(file)?
            {
                self.interrupt.check()?;
                rows.append(&key, &value)?;
                left -= 1;
            }
            rows.write_buffer()?;
            runs.push(start..rows.end);
        }
        (self.rows, self.runs) = (rows, runs);
        Ok(())
    }
}

/// The rows of a sort in order, read from its file.
#[derive(Debug)]
pub(super) struct MergedRows {
    file: Box<dyn SpillFile>,
    merge: Merge,
    interrupt: Interrupt,
    /// The number of rows that are still wanted.
    left: usize,
}

impl MergedRows {
    /// Returns the bytes of the next value.
    pub(super) fn next(&mut self) -> Result<Option<Vec<u8>>> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        self.interrupt.check()?;
        Ok(self.merge.next(&mut *self.file)?.map(|head| head.value))
    }
}

/// A merge of some runs of a file.
#[derive(Debug)]
struct Merge {
    readers: Vec<RunReader>,
    /// The next row of each run that has one.
    heads: BinaryHeap<Reverse<Head>>,
}

/// The next row of a run. Of equal keys, that of the earlier run arrived first.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Head {
    key: Vec<u8>,
    run: usize,
    value: Vec<u8>,
}

impl Merge {
    fn new(runs: &[Range<u64>], read_at_once: usize, file: &mut dyn SpillFile) -> Result<Self> {
        let (mut readers, mut heads) = (Vec::new(), BinaryHeap::new());
        for (run, left) in runs.iter().cloned().enumerate() {
            let mut reader = RunReader { left, read_at_once, buffer: Vec::new(), position: 0 };
            if let Some((key, value)) = reader.next(file)? {
                heads.push(Reverse(Head { key, run, value }));
            }
            readers.push(reader);
        }
        Ok(Merge { readers, heads })
    }

    fn next(&mut self, file: &mut dyn SpillFile) -> Result<Option<Head>> {
        let Some(Reverse(head)) = self.heads.pop() else { return Ok(None) };
        let run = head.run;
        if let Some(reader) = self.readers.get_mut(run)
            && let Some((key, value)) = reader.next(file)?
        {
            self.heads.push(Reverse(Head { key, run, value }));
        }
        Ok(Some(head))
    }
}

/// The rest of a run.
#[derive(Debug)]
struct RunReader {
    /// The bytes that are not in the buffer yet.
    left: Range<u64>,
    read_at_once: usize,
    buffer: Vec<u8>,
    position: usize,
}

impl RunReader {
    /// Returns the next key and value.
    fn next(&mut self, file: &mut dyn SpillFile) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        if self.left.is_empty() && self.position == self.buffer.len() {
            return Ok(None);
        }
        let row = (self.field(file)?, self.field(file)?);
        // The buffer of a large row is not kept.
        if self.position == self.buffer.len() && self.buffer.capacity() > 2 * self.read_at_once {
            (self.buffer, self.position) = (Vec::new(), 0);
        }
        Ok(Some(row))
    }

    fn field(&mut self, file: &mut dyn SpillFile) -> Result<Vec<u8>> {
        let mut length = self.bytes(file, size_of::<u64>())?;
        let length = u64::read(&mut length)?;
        self.bytes(file, usize::try_from(length).unwrap_or(usize::MAX)).map(<[u8]>::to_vec)
    }

    /// Returns the next `count` bytes.
    fn bytes(&mut self, file: &mut dyn SpillFile, count: usize) -> Result<&[u8]> {
        if self.buffer.len() - self.position < count {
            self.buffer.drain(..self.position);
            self.position = 0;
            let missing = count.saturating_sub(self.buffer.len()).max(self.read_at_once);
            let read = (self.left.end - self.left.start).min(missing as u64);
            let held = self.buffer.len();
            self.buffer.resize(held + usize::try_from(read).map_err(|_| damaged())?, 0);
            file.read(self.left.start, self.buffer.get_mut(held..).unwrap_or_default())?;
            self.left.start += read;
        }
        let bytes = self.buffer.get(self.position..self.position.saturating_add(count)).ok_or_else(damaged)?;
        self.position += count;
        Ok(bytes)
    }
}
