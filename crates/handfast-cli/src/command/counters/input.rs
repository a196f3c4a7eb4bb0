//! The file that an import reads: its lines, and a check of all of them.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use handfast_counters::{EarlierImports, Figure, ImportRecord, SharedBeginning};
use indicatif::ProgressBar;
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;

use super::figures::{FigureFormat, FigureReader};
use crate::command::transfer::lines::Lines;
use crate::listing::counted;

/// The lines of a chunk, which are read ahead.
const CHUNK_LINES: usize = 1_000;
/// The wrong lines that a check names at most.
pub(super) const WRONG_LINES_MAX: usize = 1_000;

/// The file of an import.
#[derive(Clone, Debug)]
pub(super) struct Input {
    path: PathBuf,
    /// The name of the input in messages.
    pub(super) name: String,
    /// The bytes of the file; `None` for standard input or a pipe, which can be read once.
    pub(super) length: Option<u64>,
    format: FigureFormat,
}

/// A line that was read.
pub(super) struct InputLine {
    /// The number in the file, for messages. Empty lines are counted.
    pub(super) number: u64,
    /// The text; of a line that is no text, its beginning.
    pub(super) text: String,
    /// The figure, if the line has one, or what is wrong with the line.
    pub(super) figure: Result<Option<Figure>, String>,
}

/// Lines that are read together.
pub(super) struct Chunk {
    pub(super) lines: Vec<InputLine>,
    /// The bytes of the file up to their end.
    pub(super) bytes: u64,
}

/// The lines of a file that an earlier import has added.
pub(super) enum AddedBefore {
    Nothing,
    /// The file begins with all lines of the import, up to the line with this number.
    All {
        import: ImportRecord,
        line: u64,
    },
    /// Both begin with the same lines, and go on with others or end.
    Beginning(SharedBeginning),
}

/// The result of a check of all lines.
#[derive(Debug, Default)]
pub(super) struct Checked {
    pub(super) lines: u64,
    pub(super) views: u64,
    /// The first wrong lines, with their numbers.
    pub(super) wrong: Vec<(u64, String)>,
    pub(super) wrong_count: u64,
    /// The SHA-256 hash of the file, as `sha256sum` prints it.
    pub(super) hash: String,
}

/// A reader that hashes what is read.
struct Hashing<R> {
    input: R,
    hash: Sha256,
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.input.read(buffer)?;
        self.hash.update(buffer.get(..bytes).unwrap_or_default());
        Ok(bytes)
    }
}

impl Input {
    pub(super) fn new(path: &Path, format: Option<FigureFormat>) -> Result<Self> {
        let format = FigureFormat::of_input(format, path)?;
        if path == Path::new("-") {
            return Ok(Input { path: path.to_owned(), name: "standard input".to_owned(), length: None, format });
        }
        let name = path.display().to_string();
        let metadata = std::fs::metadata(path).with_context(|| format!("cannot read {name}"))?;
        ensure!(!metadata.is_dir(), "cannot read {name}: it is a directory");
        let length = metadata.is_file().then_some(metadata.len());
        Ok(Input { path: path.to_owned(), name, length, format })
    }

    fn open(&self) -> Result<BufReader<Hashing<Box<dyn Read + Send>>>> {
        let input: Box<dyn Read + Send> = match self.path == Path::new("-") {
            true => Box::new(io::stdin()),
            false => Box::new(File::open(&self.path).with_context(|| self.unreadable())?),
        };
        Ok(BufReader::new(Hashing { input, hash: Sha256::new() }))
    }

    fn unreadable(&self) -> String {
        format!("cannot read {}", self.name)
    }

    /// Calls `each` for each line that is not empty, with the bytes of the file up to its end, while it returns `true`. Returns the hash of what
    /// was read.
    fn each_line(&self, mut each: impl FnMut(InputLine, u64) -> Result<bool>) -> Result<String> {
        let mut reader = self.open()?;
        let mut figures = FigureReader::new(self.format);
        let mut lines = Lines::new(&mut reader);
        let mut any = false;
        while let Some(line) = lines.next().with_context(|| self.unreadable())? {
            any = true;
            let (text, figure) = match line.text {
                Ok(text) => {
                    let figure = figures.read(&text);
                    (text, figure)
                }
                Err(unreadable) => (unreadable.shown, Err(unreadable.reason)),
            };
            let more = each(InputLine { number: line.number, text, figure }, lines.bytes)?;
            // Without a header no line means anything.
            if !more || figures.is_lost() {
                break;
            }
        }
        ensure!(any, "{} has no lines: it may have been cut off", self.name);
        Ok(reader.get_ref().hash.clone().finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Reads all lines, and returns what they add and which of them are wrong.
    pub(super) fn check(&self, bar: &ProgressBar) -> Result<Checked> {
        let mut checked = Checked::default();
        let hash = self.each_line(|line, bytes| {
            match line.figure {
                Ok(None) => {}
                Ok(Some(figure)) => {
                    checked.lines += 1;
                    checked.views = checked.views.saturating_add(figure.views);
                }
                Err(why) => {
                    checked.wrong_count += 1;
                    if checked.wrong.len() < WRONG_LINES_MAX {
                        checked.wrong.push((line.number, why));
                    }
                }
            }
            bar.set_position(bytes);
            Ok(true)
        })?;
        Ok(Checked { hash, ..checked })
    }

    /// Returns what earlier imports have added of the file.
    pub(super) fn added_by(&self, mut earlier: EarlierImports) -> Result<AddedBefore> {
        let mut found = None;
        self.each_line(|line, _| {
            let has_figure = matches!(line.figure, Ok(Some(_)));
            found = earlier.read(&line.text, has_figure).map(|record| (record.clone(), line.number));
            Ok(found.is_none() && earlier.any_beyond())
        })?;
        Ok(match (found, earlier.shared_beginning()) {
            (Some((import, line)), _) => AddedBefore::All { import, line },
            (None, Some(shared)) => AddedBefore::Beginning(shared.clone()),
            (None, None) => AddedBefore::Nothing,
        })
    }

    /// Sends chunks until the end of the file, or until the receiver is dropped. Returns the hash of what was read.
    pub(super) fn send(&self, sender: &mpsc::Sender<Chunk>) -> Result<String> {
        let mut chunk = Chunk { lines: Vec::new(), bytes: 0 };
        let hash = self.each_line(|line, bytes| {
            chunk.lines.push(line);
            chunk.bytes = bytes;
            if chunk.lines.len() < CHUNK_LINES {
                return Ok(true);
            }
            let full = std::mem::replace(&mut chunk, Chunk { lines: Vec::new(), bytes });
            Ok(sender.blocking_send(full).is_ok())
        })?;
        // Nobody receives it after an error, which is reported there.
        let _ = sender.blocking_send(chunk);
        Ok(hash)
    }
}

impl Checked {
    /// Fails if a line is wrong.
    pub(super) fn ensure_right(&self, input: &Input) -> Result<()> {
        let Some((line, why)) = self.wrong.first() else { return Ok(()) };
        let more = match self.wrong_count {
            1 => String::new(),
            count => format!("; --dry-run lists {}", counted(count - 1, "more wrong lines")),
        };
        bail!("{}, line {line}: {why}{more}; nothing was added", input.name)
    }
}
