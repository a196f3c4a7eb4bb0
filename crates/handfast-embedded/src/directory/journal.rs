//! Reads the engine's journal through before the engine does, because the engine trusts it too much: where it cannot
//! read on, it *cuts* the journal, and if that was in the middle, synced commits are gone without a word.
//!
//! ```text
//! N.jnl   batch, batch, .., zeros
//! batch   1 | items u32 | sequence u64     item, item, ..     3 | xxh3 of the items u64 | "FJL" 3
//! item    2 | kind u8 | compression u8 | map u64 | key length u16 | length u32 | stored length u32 | key | value
//! ```
//!
//! Every batch of ours holds its number ([`LastBatch`]); numbers have no gap. So this is told apart:
//!
//! - a *torn end*: whole batches, among them every one that the witness knows to be synced, then something else. A crash
//!   of the machine leaves that: of what was written since the last sync any part may be on the disk, in any order, so
//!   whole batches may follow. It is cut there;
//! - *damage*: a place that cannot be read, or a gap in the numbers, before the end of what was synced; a journal file
//!   that is missing. Opening is refused; a repair drops everything from that place on, and says so.
//!
//! Source: fjall 3.1.13, `journal/entry.rs` and `journal/batch_reader.rs`.

use std::fs;
use std::io::{self, Read, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{SeekFrom, seek};

use crate::error::{Error, Result};
use crate::format::{LastBatch, MetadataKey};

/// The engine numbers a batch in the moment it is applied; between our asking for the number and that moment, its
/// threads can take some for flushes and merges, of which there are never as many as this.
const SEQUENCE_SLACK: u64 = 1024;

const TAG_START: u8 = 1;
const TAG_ITEM: u8 = 2;
const TAG_END: u8 = 3;
const TRAILER: &[u8] = &[b'F', b'J', b'L', 3];

/// What the journal holds.
#[derive(Debug, Default)]
pub(crate) struct Journals {
    /// By number: the last is the one that was written to.
    files: Vec<JournalFile>,
    /// The last batch before the first problem, if there is any batch.
    pub(crate) last: Option<LastBatch>,
    /// The engine's number in the header of that batch. No checksum covers it.
    last_sequence: u64,
    /// Where reading stopped before the end.
    pub(crate) problem: Option<Problem>,
}

#[derive(Debug)]
struct JournalFile {
    path: PathBuf,
    number: u64,
}

/// A place where the journal is not as it was written.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    /// The place of the file in the list.
    file: usize,
    /// The end of the last whole batch before it.
    offset: u64,
    /// What is wrong there.
    what: String,
    /// Whole batches behind it.
    batches_behind: u64,
}

/// Reads all journal files of an engine's directory.
pub(crate) fn read(engine: &Path) -> Result<Journals> {
    let mut journals = Journals { files: list(engine)?, ..Journals::default() };
    for place in 0..journals.files.len() {
        let file = &journals.files[place];
        let path = file.path.clone();
        // One file at a time: 64 MiB, and the batch with which it became full.
        let bytes = written(&path).map_err(|error| Error::io(format!("reading {}", path.display()), error))?;
        let number = file.number;
        if let Some(problem) = &mut journals.problem {
            problem.batches_behind += count_batches(&bytes);
            continue;
        }
        let gap = place > 0 && number != journals.files[place - 1].number + 1;
        journals.read_file(place, &bytes, gap);
    }
    Ok(journals)
}

/// The bytes of a file without the hole at its end. A journal file is laid out before it is written to: reading all of
/// it would cost memory and time, and give zeros.
fn written(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = fs::File::open(path)?;
    let mut bytes = Vec::new();
    let mut end = 0;
    loop {
        let start = match seek(&file, SeekFrom::Data(end)) {
            Ok(start) => start,
            // There is nothing but a hole.
            Err(rustix::io::Errno::NXIO) => return Ok(bytes),
            Err(error) => return Err(error.into()),
        };
        end = seek(&file, SeekFrom::Hole(start))?;
        bytes.resize(usize::try_from(start).map_err(io::Error::other)?, 0);
        file.seek(io::SeekFrom::Start(start))?;
        Read::by_ref(&mut file).take(end - start).read_to_end(&mut bytes)?;
    }
}

fn list(engine: &Path) -> Result<Vec<JournalFile>> {
    let failed = |error| Error::io(format!("reading {}", engine.display()), error);
    let mut files = Vec::new();
    for entry in fs::read_dir(engine).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "jnl") {
            let number = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok());
            let number = number.ok_or_else(|| Error::Corrupt(format!("{} is no journal file", path.display())))?;
            files.push(JournalFile { path, number });
        }
    }
    files.sort_by_key(|file| file.number);
    Ok(files)
}

impl Journals {
    fn read_file(&mut self, place: usize, bytes: &[u8], gap: bool) {
        let mut reader = Reader { bytes, at: 0 };
        let mut problem = gap.then(|| "a journal file before it is missing".to_owned());
        while problem.is_none() && !reader.at_end() {
            let start = reader.at;
            match reader.batch().and_then(|read| self.follows(read.0, read.1).map(|()| read)) {
                Ok((batch, sequence)) => (self.last, self.last_sequence) = (Some(batch), sequence),
                Err(what) => {
                    reader.at = start;
                    problem = Some(what);
                }
            }
        }
        if let Some(what) = problem {
            let offset = reader.at;
            let batches_behind = count_batches(&bytes[offset..]);
            self.problem = Some(Problem { file: place, offset: offset as u64, what, batches_behind });
        }
    }

    /// The engine replays a batch under the number in its header, so these numbers must stand in the order in which
    /// the batches were written. The number that a batch holds itself, under its checksum, was asked for after the batch
    /// before it had been applied: it is above the number of that one. A header whose number was changed within the slack
    /// and did not reach it leaves the order as it was.
    fn follows(&self, batch: LastBatch, sequence: u64) -> Result<(), String> {
        if sequence < batch.sequence || sequence > batch.sequence.saturating_add(SEQUENCE_SLACK) {
            return Err(format!("batch {} has sequence number {sequence} for {}", batch.number, batch.sequence));
        }
        match self.last {
            Some(last) if batch.number != last.number + 1 => {
                Err(format!("batch {} follows batch {}", batch.number, last.number))
            }
            Some(last) if batch.timestamp < last.timestamp || batch.sequence <= self.last_sequence => {
                Err(format!("batch {} is older than the one before it", batch.number))
            }
            _ => Ok(()),
        }
    }

    /// Whether opening may go on: there is no problem, or it is a torn end in which nothing synced was lost.
    ///
    /// # Errors
    /// What is wrong, for people.
    pub(crate) fn judge(&self, witness: u64) -> Result<(), String> {
        let Some(problem) = &self.problem else {
            return Ok(());
        };
        let place = format!(
            "the journal {} cannot be read from byte {} on ({})",
            self.files[problem.file].path.display(),
            problem.offset,
            problem.what
        );
        match self.last {
            Some(last) if last.number < witness => Err(format!(
                "{place}; batch {witness} was synced, the last before that place is {}, {} whole ones are behind it",
                last.number, problem.batches_behind
            )),
            // A file is synced before the next one is begun.
            _ if problem.file + 1 < self.files.len() => Err(format!("{place}, and later files are there")),
            // Without a batch before it there is no number to compare with.
            None if problem.batches_behind > 0 => {
                Err(format!("{place}; {} whole batches are behind that place", problem.batches_behind))
            }
            _ => Ok(()),
        }
    }

    /// Cuts a torn end, which [`Journals::judge`] has let pass.
    pub(crate) fn cut_torn_end(&self) -> Result<()> {
        let Some(problem) = &self.problem else {
            return Ok(());
        };
        let file = &self.files[problem.file];
        tracing::warn!(
            journal = %file.path.display(),
            offset = problem.offset,
            what = problem.what,
            batches_behind = problem.batches_behind,
            "the end of the journal was torn by a crash; it is cut, no synced commit is lost"
        );
        self.keep_copy(problem)?;
        truncate(&file.path, problem.offset)
    }

    /// Drops everything from the problem on, keeping copies beside the engine's files; returns what it did.
    pub(crate) fn repair(&self) -> Result<Option<String>> {
        let Some(problem) = &self.problem else {
            return Ok(None);
        };
        let file = &self.files[problem.file];
        self.keep_copy(problem)?;
        truncate(&file.path, problem.offset)?;
        for later in &self.files[problem.file + 1..] {
            let kept = later.path.with_extension("jnl.dropped");
            fs::rename(&later.path, &kept).map_err(|error| Error::io(format!("renaming {}", kept.display()), error))?;
        }
        Ok(Some(format!(
            "cut {} at byte {} ({}): {} whole batches behind that place are dropped, the last one kept is {}; copies \
             of what was cut end in .dropped",
            file.path.display(),
            problem.offset,
            problem.what,
            problem.batches_behind,
            self.last.map_or(0, |last| last.number)
        )))
    }

    /// Keeps what is about to be cut, without the zeros at its end.
    fn keep_copy(&self, problem: &Problem) -> Result<()> {
        let file = &self.files[problem.file];
        let failed = |error| Error::io(format!("copying the end of {}", file.path.display()), error);
        let bytes = fs::read(&file.path).map_err(failed)?;
        let start = usize::try_from(problem.offset).unwrap_or(usize::MAX).min(bytes.len());
        let end = bytes.iter().rposition(|&byte| byte != 0).map_or(start, |last| (last + 1).max(start));
        let kept = file.path.with_extension(format!("{}.dropped", problem.offset));
        let mut copy = fs::File::create(kept).map_err(failed)?;
        copy.write_all(&bytes[start..end]).map_err(failed)
    }
}

fn truncate(path: &Path, bytes: u64) -> Result<()> {
    let cut = || {
        let file = fs::OpenOptions::new().write(true).open(path)?;
        file.set_len(bytes)?;
        file.sync_all()
    };
    cut().map_err(|error| Error::io(format!("cutting {}", path.display()), error))
}

/// Whole batches anywhere in these bytes.
fn count_batches(bytes: &[u8]) -> u64 {
    let mut count = 0;
    let mut at = 0;
    while let Some(start) = bytes[at..].iter().position(|&byte| byte == TAG_START) {
        let mut reader = Reader { bytes, at: at + start };
        match reader.batch() {
            Ok(_) => {
                count += 1;
                at = reader.at;
            }
            Err(_) => at += start + 1,
        }
    }
    count
}

struct Reader<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Reader<'b> {
    /// A journal file is laid out with zeros; after the last batch there is nothing else.
    fn at_end(&self) -> bool {
        // The first byte tells in all cases but the last, so this is not quadratic.
        self.bytes.get(self.at).is_none_or(|&byte| byte == 0) && self.bytes[self.at..].iter().all(|&byte| byte == 0)
    }

    fn batch(&mut self) -> Result<(LastBatch, u64), String> {
        self.expect(TAG_START, "the start of a batch")?;
        let items = u32::from_le_bytes(self.array()?);
        let sequence = u64::from_le_bytes(self.array()?);
        let start = self.at;
        let mut last = None;
        for _ in 0..items {
            let (key, value) = self.item()?;
            if key == MetadataKey::LastBatch.encode() {
                last = LastBatch::decode(value).ok().or(last);
            }
        }
        let sum = xxhash_rust::xxh3::xxh3_64(&self.bytes[start..self.at]);
        self.expect(TAG_END, "the end of a batch")?;
        if u64::from_le_bytes(self.array()?) != sum {
            return Err("the checksum of a batch is wrong".to_owned());
        }
        if self.take(TRAILER.len())? != TRAILER {
            return Err("a batch does not end as it should".to_owned());
        }
        last.map(|last| (last, sequence)).ok_or_else(|| "a batch has no number".to_owned())
    }

    fn item(&mut self) -> Result<(&'b [u8], &'b [u8]), String> {
        self.expect(TAG_ITEM, "an item of a batch")?;
        let [_kind, compression] = self.array()?;
        if compression != 0 {
            return Err("an item is compressed, which this store never does".to_owned());
        }
        self.take(8)?;
        let key_length = u16::from_le_bytes(self.array()?);
        let length = u32::from_le_bytes(self.array()?);
        let stored_length = u32::from_le_bytes(self.array()?);
        if length != stored_length {
            return Err("an item has two lengths".to_owned());
        }
        let key = self.take(usize::from(key_length))?;
        let value = self.take(usize::try_from(length).unwrap_or(usize::MAX))?;
        Ok((key, value))
    }

    fn expect(&mut self, tag: u8, what: &str) -> Result<(), String> {
        match self.take(1)? {
            [found] if *found == tag => Ok(()),
            _ => Err(format!("{what} is not where it should be")),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let taken = self.take(N)?;
        taken.try_into().map_err(|_| "the journal ends within a batch".to_owned())
    }

    fn take(&mut self, count: usize) -> Result<&'b [u8], String> {
        let taken = self.at.checked_add(count).and_then(|end| self.bytes.get(self.at..end));
        let taken = taken.ok_or_else(|| "the journal ends within a batch".to_owned())?;
        self.at += count;
        Ok(taken)
    }
}
