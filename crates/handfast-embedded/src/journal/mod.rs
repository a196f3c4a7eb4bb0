//! Reads the engine's journal before the engine does. The engine *cuts* the journal where it cannot read on; if that is in the
//! middle, synced commits are lost without an error.
//!
//! ```text
//! N.jnl   batch, batch, .., zeros
//! batch   1 | items u32 | sequence u64     item, item, ..     3 | xxh3 of the items u64 | "FJL" 3
//! item    2 | kind u8 | compression u8 | map u64 | key length u16 | length u32 | stored length u32 | key | value
//! ```
//!
//! Every batch holds its number ([`LastBatch`](crate::format::LastBatch)); numbers have no gap. So two cases are distinguished:
//!
//! - a *torn end*: valid batches, among them every one that the witness knows to be synced, then other bytes. A crash of the
//!   machine leaves that: any part of the bytes written since the last sync may be on the disk, so valid batches may follow.
//!   The journal is cut there;
//! - *damage*: an offset from which the journal cannot be read, or a gap in the numbers, before the end of the synced batches; a
//!   missing journal file. Opening fails; a repair drops everything from that offset on, and says so.
//!
//! The engine's checksums cover all synced bytes except `sequence`. The next batch contains that number, too, and the witness has
//! the number of the last synced batch ([`crate::chain`]): a repair corrects it, and drops nothing. The `sequence` of later batches
//! must be near the one that the batch expected.
//!
//! Source: fjall 3.1.13, `journal/entry.rs` and `journal/batch_reader.rs`.

mod last_writes;
mod reader;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::chain::{BatchNumbers, Chain};
use crate::error::{Error, Result};
pub(crate) use last_writes::last_writes;
use reader::{Reader, SEQUENCE_OFFSET, count_batches, written};

/// More sequence numbers than the engine's threads take for flushes and merges between the read of the next number and the
/// application of the batch.
const SEQUENCE_SLACK: u64 = 1024;

/// The journal files of an engine, and the result of reading them.
#[derive(Debug, Default)]
pub(crate) struct Journals {
    /// Sorted by number: the last is the one in use.
    files: Vec<JournalFile>,
    /// The last batch before the first problem, if there is any batch.
    last: Option<PlacedBatch>,
    /// The one before it.
    before_last: Option<PlacedBatch>,
    problem: Option<Problem>,
}

#[derive(Debug)]
struct JournalFile {
    path: PathBuf,
    number: u64,
}

/// A batch with its position.
#[derive(Clone, Copy, Debug)]
struct PlacedBatch {
    batch: Chain,
    file: usize,
    offset: u64,
}

/// A position at which the journal is damaged or torn.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    /// The index of the file in the list.
    file: usize,
    /// The end of the last valid batch before it.
    offset: u64,
    /// The damage, as text for people.
    what: String,
    /// Valid batches after it.
    batches_after: u64,
    /// The right sequence number of the batch there, if only that is wrong.
    sequence: Option<u64>,
}

/// Reads all journal files of an engine's directory. `synced` comes from the witness.
pub(crate) fn read(engine: &Path, synced: BatchNumbers) -> Result<Journals> {
    let mut journals = Journals { files: list(engine)?, ..Journals::default() };
    for index in 0..journals.files.len() {
        let file = &journals.files[index];
        let path = file.path.clone();
        // One file at a time: 64 MiB, and the batch with which it became full.
        let bytes = written(&path).map_err(|error| Error::io(format!("reading {}", path.display()), error))?;
        let number = file.number;
        if let Some(problem) = &mut journals.problem {
            problem.batches_after += count_batches(&bytes);
            continue;
        }
        let gap = index > 0 && number != journals.files[index - 1].number + 1;
        journals.read_file(index, &bytes, gap, synced);
    }
    if journals.problem.is_none() {
        journals.check_last(synced, &[]);
    }
    Ok(journals)
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
    /// Returns the last batch before the first problem, if there is any batch.
    pub(crate) fn last(&self) -> Option<Chain> {
        self.last.map(|last| last.batch)
    }

    fn read_file(&mut self, file: usize, bytes: &[u8], gap: bool, synced: BatchNumbers) {
        let mut reader = Reader { bytes, at: 0 };
        let mut damage = gap.then(|| "a journal file before it is missing".to_owned());
        while damage.is_none() && !reader.at_end() {
            let start = reader.at;
            let read = reader.batch().and_then(|batch| self.follows(batch).map(|()| batch));
            match read {
                Ok(batch) if self.check_by_next(batch, &bytes[start..]) => {
                    self.before_last = self.last.replace(PlacedBatch { batch, file, offset: start as u64 });
                }
                Ok(_) => return,
                Err(what) => {
                    reader.at = start;
                    damage = Some(what);
                }
            }
        }
        let Some(what) = damage else {
            return;
        };
        let rest = &bytes[reader.at..];
        if self.check_last(synced, rest) {
            let batches_after = count_batches(rest);
            self.problem = Some(Problem { file, offset: reader.at as u64, what, batches_after, sequence: None });
        }
    }

    /// Fails unless a batch comes directly after the last one.
    fn follows(&self, next: Chain) -> Result<(), String> {
        let (Some(PlacedBatch { batch: Chain { last, .. }, .. }), next) = (self.last, next.last) else {
            return Ok(());
        };
        // The first batch after a repair that dropped batches has no previous sequence number.
        let is_next = next.number == last.number + 1 || (next.before == 0 && next.number > last.number);
        if !is_next {
            return Err(format!("batch {} follows batch {}", next.number, last.number));
        }
        if next.timestamp < last.timestamp || next.sequence <= last.sequence {
            return Err(format!("batch {} is older than the one before it", next.number));
        }
        Ok(())
    }

    /// Compares the sequence number of the last batch with the one in the next batch. Returns whether it is right.
    fn check_by_next(&mut self, next: Chain, from_next_on: &[u8]) -> bool {
        match next.last.before {
            0 => self.check_last(BatchNumbers::default(), from_next_on),
            before => self.check_sequence(Some(before), from_next_on),
        }
    }

    /// Compares the sequence number of the last batch of the journal with the one in the witness. Returns whether it is right.
    fn check_last(&mut self, synced: BatchNumbers, rest: &[u8]) -> bool {
        let is_synced = |last: PlacedBatch| last.batch.last.number == synced.number && synced.sequence != 0;
        let known = self.last.is_some_and(is_synced).then_some(synced.sequence);
        self.check_sequence(known, rest)
    }

    /// Compares the sequence number of the last batch, under which the engine replays it, with the known one. If none is known, it
    /// must be the one expected before the batch was applied, or a little greater.
    fn check_sequence(&mut self, known: Option<u64>, rest: &[u8]) -> bool {
        let Some(PlacedBatch { batch: Chain { last, sequence }, file, offset }) = self.last else {
            return true;
        };
        let is_about_right = last.sequence <= sequence && sequence <= last.sequence.saturating_add(SEQUENCE_SLACK);
        if known.map_or(is_about_right, |known| known == sequence) {
            return true;
        }
        let what = match known {
            Some(known) => format!("batch {} has sequence number {sequence}, it was {known}", last.number),
            None => format!("batch {} has sequence number {sequence} for {}", last.number, last.sequence),
        };
        self.last = self.before_last.take();
        let batches_after = 1 + count_batches(rest);
        self.problem = Some(Problem { file, offset, what, batches_after, sequence: known });
        false
    }

    /// Fails unless the journal is undamaged, or has a torn end without synced batches.
    ///
    /// # Errors
    /// Returns the damage, as text for people.
    pub(crate) fn check_no_synced_loss(&self, witness: u64) -> Result<(), String> {
        let Some(problem) = &self.problem else {
            return Ok(());
        };
        let described = self.describe(problem);
        match self.last() {
            Some(Chain { last, .. }) if last.number < witness => Err(format!(
                "{described}; batch {witness} was synced, the last batch before that byte is {}, and {} valid ones follow it",
                last.number, problem.batches_after
            )),
            // A file is synced before the next one is created.
            _ if problem.file + 1 < self.files.len() => Err(format!("{described}, and later files exist")),
            // Without a batch before it there is no number to compare.
            None if problem.batches_after > 0 => {
                Err(format!("{described}; {} valid batches follow that byte", problem.batches_after))
            }
            _ => Ok(()),
        }
    }

    /// Returns the problem as text for people, if the last synced batch is unknown.
    pub(crate) fn problem(&self) -> Option<String> {
        let problem = self.problem.as_ref()?;
        Some(format!("{}; {} valid batches follow that byte", self.describe(problem), problem.batches_after))
    }

    fn describe(&self, problem: &Problem) -> String {
        let file = self.files[problem.file].path.display();
        format!("the journal {file} cannot be read from byte {} on ({})", problem.offset, problem.what)
    }

    /// Cuts a torn end that [`Journals::check_no_synced_loss`] has accepted.
    pub(crate) fn cut_torn_end(&self) -> Result<()> {
        let Some(problem) = &self.problem else {
            return Ok(());
        };
        let file = &self.files[problem.file];
        tracing::warn!(
            journal = %file.path.display(),
            offset = problem.offset,
            what = problem.what,
            batches_after = problem.batches_after,
            "the end of the journal was torn by a crash; it is cut, no synced commit is lost"
        );
        self.keep_copy(problem)?;
        truncate(&file.path, problem.offset)
    }

    /// Repairs the problem, and returns a description of the repair: corrects a known sequence number, or drops everything from the
    /// problem on, with copies beside the engine's files. Another problem may follow a corrected number: read the journal again.
    pub(crate) fn repair(&self) -> Result<Option<String>> {
        let Some(problem) = &self.problem else {
            return Ok(None);
        };
        let file = &self.files[problem.file];
        if let Some(sequence) = problem.sequence {
            overwrite_sequence(&file.path, problem.offset, sequence)?;
            let (path, offset, what) = (file.path.display(), problem.offset, &problem.what);
            return Ok(Some(format!("corrected the sequence number of a batch in {path} at byte {offset} ({what})")));
        }
        self.keep_copy(problem)?;
        truncate(&file.path, problem.offset)?;
        for later in &self.files[problem.file + 1..] {
            let kept = later.path.with_extension("jnl.dropped");
            fs::rename(&later.path, &kept).map_err(|error| Error::io(format!("renaming {}", kept.display()), error))?;
        }
        Ok(Some(format!(
            "cut {} at byte {} ({}): {} valid batches after that byte are dropped, the last one kept is {}; the \
             names of the copies of the cut parts end in .dropped",
            file.path.display(),
            problem.offset,
            problem.what,
            problem.batches_after,
            self.last().map_or(0, |batch| batch.last.number)
        )))
    }

    /// Copies the part that is going to be cut, without the zeros at its end.
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

/// Overwrites the sequence number of the batch that begins at an offset.
fn overwrite_sequence(path: &Path, offset: u64, sequence: u64) -> Result<()> {
    let put = || {
        let file = fs::OpenOptions::new().write(true).open(path)?;
        file.write_all_at(&sequence.to_le_bytes(), offset + SEQUENCE_OFFSET)?;
        file.sync_all()
    };
    put().map_err(|error| Error::io(format!("writing {}", path.display()), error))
}
