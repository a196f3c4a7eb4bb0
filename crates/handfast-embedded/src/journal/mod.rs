//! Reads the engine's journal through before the engine does, because the engine trusts it too much: where it cannot
//! read on, it *cuts* the journal, and if that was in the middle, synced commits are gone without a word.
//!
//! ```text
//! N.jnl   batch, batch, .., zeros
//! batch   1 | items u32 | sequence u64     item, item, ..     3 | xxh3 of the items u64 | "FJL" 3
//! item    2 | kind u8 | compression u8 | map u64 | key length u16 | length u32 | stored length u32 | key | value
//! ```
//!
//! Every batch of ours holds its number ([`LastBatch`](crate::format::LastBatch)); numbers have no gap. So this is told apart:
//!
//! - a *torn end*: whole batches, among them every one that the witness knows to be synced, then something else. A crash
//!   of the machine leaves that: of what was written since the last sync any part may be on the disk, in any order, so
//!   whole batches may follow. It is cut there;
//! - *damage*: a place that cannot be read, or a gap in the numbers, before the end of what was synced; a journal file
//!   that is missing. Opening is refused; a repair drops everything from that place on, and says so.
//!
//! Of all bytes that were synced only `sequence` is outside of the engine's checksums. The next batch holds it too, and the
//! witness that of the last synced one ([`crate::chain`]): a repair puts it right again, and drops nothing. Of the last
//! batches, which were not known to be synced, it must be about what we asked for.
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

/// The engine numbers a batch in the moment it is applied; between our asking for the number and that moment, its
/// threads can take some for flushes and merges, of which there are never as many as this.
const SEQUENCE_SLACK: u64 = 1024;

/// What the journal holds.
#[derive(Debug, Default)]
pub(crate) struct Journals {
    /// By number: the last is the one that was written to.
    files: Vec<JournalFile>,
    /// The last batch before the first problem, if there is any batch.
    last: Option<Placed>,
    /// The one before it.
    before_last: Option<Placed>,
    /// Where reading stopped before the end.
    problem: Option<Problem>,
}

#[derive(Debug)]
struct JournalFile {
    path: PathBuf,
    number: u64,
}

/// A batch, and where it begins.
#[derive(Clone, Copy, Debug)]
struct Placed {
    batch: Chain,
    file: usize,
    offset: u64,
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
    /// All that is wrong is the engine's number of the batch there, which is this one.
    sequence: Option<u64>,
}

/// Reads all journal files of an engine's directory. `synced` is what the witness knows.
pub(crate) fn read(engine: &Path, synced: BatchNumbers) -> Result<Journals> {
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
        journals.read_file(place, &bytes, gap, synced);
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
    /// The last batch before the first problem, if there is any batch.
    pub(crate) fn last(&self) -> Option<Chain> {
        self.last.map(|last| last.batch)
    }

    fn read_file(&mut self, file: usize, bytes: &[u8], gap: bool, synced: BatchNumbers) {
        let mut reader = Reader { bytes, at: 0 };
        let mut wrong = gap.then(|| "a journal file before it is missing".to_owned());
        while wrong.is_none() && !reader.at_end() {
            let start = reader.at;
            let read = reader.batch().and_then(|batch| self.follows(batch).map(|()| batch));
            match read {
                Ok(batch) if self.check_by_next(batch, &bytes[start..]) => {
                    self.before_last = self.last.replace(Placed { batch, file, offset: start as u64 });
                }
                Ok(_) => return,
                Err(what) => {
                    reader.at = start;
                    wrong = Some(what);
                }
            }
        }
        let Some(what) = wrong else {
            return;
        };
        let rest = &bytes[reader.at..];
        if self.check_last(synced, rest) {
            let batches_behind = count_batches(rest);
            self.problem = Some(Problem { file, offset: reader.at as u64, what, batches_behind, sequence: None });
        }
    }

    /// Whether a batch comes after the last one.
    fn follows(&self, next: Chain) -> Result<(), String> {
        let (Some(Placed { batch: Chain { last, .. }, .. }), next) = (self.last, next.last) else {
            return Ok(());
        };
        // A repair that had to drop what was before says so.
        let is_next = next.number == last.number + 1 || (next.before == 0 && next.number > last.number);
        if !is_next {
            return Err(format!("batch {} follows batch {}", next.number, last.number));
        }
        if next.timestamp < last.timestamp || next.sequence <= last.sequence {
            return Err(format!("batch {} is older than the one before it", next.number));
        }
        Ok(())
    }

    /// Compares the engine's number of the last batch with what the next one says of it. Whether it is right.
    fn check_by_next(&mut self, next: Chain, from_next_on: &[u8]) -> bool {
        match next.last.before {
            0 => self.check_last(BatchNumbers::default(), from_next_on),
            before => self.check_sequence(Some(before), from_next_on),
        }
    }

    /// Compares the engine's number of the last batch, behind which there is none, with what the witness says.
    fn check_last(&mut self, synced: BatchNumbers, rest: &[u8]) -> bool {
        let is_synced = |last: Placed| last.batch.last.number == synced.number && synced.sequence != 0;
        let known = self.last.is_some_and(is_synced).then_some(synced.sequence);
        self.check_sequence(known, rest)
    }

    /// The engine replays a batch under the number before it, so that must be what it was. Where nobody else knows it, it is
    /// what was asked for before the batch was applied, or little more.
    fn check_sequence(&mut self, known: Option<u64>, rest: &[u8]) -> bool {
        let Some(Placed { batch: Chain { last, sequence }, file, offset }) = self.last else {
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
        let batches_behind = 1 + count_batches(rest);
        self.problem = Some(Problem { file, offset, what, batches_behind, sequence: known });
        false
    }

    /// Whether opening may go on: there is no problem, or it is a torn end in which nothing synced was lost.
    ///
    /// # Errors
    /// What is wrong, for people.
    pub(crate) fn check_no_synced_loss(&self, witness: u64) -> Result<(), String> {
        let Some(problem) = &self.problem else {
            return Ok(());
        };
        let place = self.place(problem);
        match self.last() {
            Some(Chain { last, .. }) if last.number < witness => Err(format!(
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

    /// The problem, for people, where nobody knows what was synced.
    pub(crate) fn problem(&self) -> Option<String> {
        let problem = self.problem.as_ref()?;
        Some(format!("{}; {} whole batches are behind that place", self.place(problem), problem.batches_behind))
    }

    fn place(&self, problem: &Problem) -> String {
        let file = self.files[problem.file].path.display();
        format!("the journal {file} cannot be read from byte {} on ({})", problem.offset, problem.what)
    }

    /// Cuts a torn end, which [`Journals::check_no_synced_loss`] has let pass.
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

    /// Mends the problem, and returns what it did: puts a number right that is known, or else drops everything from the
    /// problem on, keeping copies beside the engine's files. There may be another problem behind a number that was put
    /// right: read again.
    pub(crate) fn repair(&self) -> Result<Option<String>> {
        let Some(problem) = &self.problem else {
            return Ok(None);
        };
        let file = &self.files[problem.file];
        if let Some(sequence) = problem.sequence {
            put_sequence(&file.path, problem.offset, sequence)?;
            let (path, offset, what) = (file.path.display(), problem.offset, &problem.what);
            return Ok(Some(format!("put the number of a batch right in {path} at byte {offset} ({what})")));
        }
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
            self.last().map_or(0, |batch| batch.last.number)
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

/// Writes the engine's number of the batch that begins at an offset.
fn put_sequence(path: &Path, offset: u64, sequence: u64) -> Result<()> {
    let put = || {
        let file = fs::OpenOptions::new().write(true).open(path)?;
        file.write_all_at(&sequence.to_le_bytes(), offset + SEQUENCE_OFFSET)?;
        file.sync_all()
    };
    put().map_err(|error| Error::io(format!("writing {}", path.display()), error))
}
