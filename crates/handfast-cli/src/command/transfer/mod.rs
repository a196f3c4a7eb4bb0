//! `handfast transfer FILE`: every row is applied exactly once, however often the command is killed and run again.
//!
//! ```text
//! thread   lines ── rows ── names ──┐  chunks, at most `CHUNKS_MAX` of them waiting
//! task                              └──> apply (looks for the name first) ── count ── report what is rejected
//! ```
//!
//! A row has a name: its own id, or one made of a name for the file and the content of the row ([`name`]). The mechanism writes the name
//! together with the transfer ([`mechanism`]), so a second run of the file finds it. Nothing is kept outside of the store.

pub(super) mod arguments;
pub(super) mod cells;
pub(super) mod lines;
mod mechanism;
mod name;
mod report;
mod row;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use handfast_store::Sources;
use tokio::sync::mpsc;

use self::arguments::{AccountIdType, TransferArguments, TransferFormat};
use self::lines::{Line, Lines};
use self::mechanism::{Applier, NamedRow, RowOutcome};
use self::name::{Name, Names};
use self::report::Report;
use self::row::{Columns, Header};
use crate::configuration::Configuration;
use crate::console::Console;
use crate::exit::{Exit, Usage};
use crate::setup::{block_on, prepare_any, until_stopped};

/// Rows of a chunk, which are one transaction, or shared by the workers.
const CHUNK: usize = 100;
/// Chunks that are read before they are applied.
const CHUNKS_MAX: usize = 4;
/// Bytes of a batch's name, which is a part of the name of each row.
const BATCH_BYTES_MAX: usize = 200;

/// A line that was read.
struct Item {
    line: u64,
    /// The line, for the report of a rejected row.
    text: String,
    row: Result<NamedRow, String>,
}

/// Lines that are read and applied together.
struct Chunk {
    items: Vec<Item>,
    /// Bytes of the file up to its end.
    bytes: u64,
}

pub(crate) fn run(arguments: &TransferArguments) -> Result<Exit> {
    let (configuration, console) = prepare_any(&arguments.open)?;
    block_on(until_stopped(transfer(arguments, &configuration, console)))
}

async fn transfer(arguments: &TransferArguments, configuration: &Configuration, console: Console) -> Result<Exit> {
    let sources = Sources::system()?;
    let mechanism = mechanism::chosen(arguments, configuration)?;
    let file = TransferFile::new(arguments)?;
    ensure_apart(&arguments.file, arguments.rejects.as_deref())?;
    // On a thread of its own, because standard input may block. A file without transfers is refused before the store is opened.
    let reader = tokio::task::spawn_blocking(move || file.begin()).await??;
    let report = Report::new(arguments.rejects.as_deref(), mechanism)?;
    let applier = Applier::open(arguments, mechanism, configuration, sources.clone()).await?;
    let began = sources.clock.elapsed();
    let done = apply_all(&applier, reader, report, console).await;
    let closed = applier.close().await;
    // The report also covers a run that failed.
    let (mut report, result) = done;
    report.finish(console, sources.clock.elapsed().saturating_sub(began), result.is_ok())?;
    result.context("not all rows were applied: repeat the command")?;
    closed?;
    Ok(if report.is_complete() { Exit::Good } else { Exit::Failed })
}

/// Refuses a file of rejected rows that is the input itself.
fn ensure_apart(file: &Path, rejects: Option<&Path>) -> Result<()> {
    let same = rejects.is_some_and(|rejects| match (file.canonicalize(), rejects.canonicalize()) {
        (Ok(file), Ok(rejects)) => file == rejects,
        _ => false,
    });
    ensure!(!same, Usage("--rejects names the same file as FILE: name another one".to_owned()));
    Ok(())
}

async fn apply_all(applier: &Applier, reader: RowReader, mut report: Report, console: Console) -> (Report, Result<()>) {
    report.begin();
    let bar = console.progress("transfer", "bytes", reader.length);
    let (sender, mut chunks) = mpsc::channel(CHUNKS_MAX);
    let reading = tokio::task::spawn_blocking(move || reader.read(&sender));
    let applied = async {
        while let Some(Chunk { items, bytes }) = chunks.recv().await {
            let rows: Vec<NamedRow> = items.iter().filter_map(|item| item.row.as_ref().ok().cloned()).collect();
            let mut outcomes = applier.apply(rows).await?.into_iter();
            for Item { line, text, row } in items {
                let outcome = match row {
                    Ok(_) => outcomes.next().context("a row without an outcome")?,
                    Err(why) => RowOutcome::Rejected(why),
                };
                report.count(line, &text, &outcome)?;
            }
            bar.set_position(bytes);
            bar.set_message(report.in_short());
        }
        Ok(())
    }
    .await;
    bar.finish_and_clear();
    if applied.is_err() {
        return (report, applied);
    }
    let result = match reading.await {
        Ok(Ok(())) => applier.finish(console).await,
        Ok(Err(error)) => Err(error),
        Err(error) => Err(error.into()),
    };
    (report, result)
}

/// A file of transfers, before anything of it is read.
struct TransferFile {
    input: Input,
    format: TransferFormat,
    columns: Columns,
    account_ids: AccountIdType,
    names: Names,
    has_batch: bool,
}

impl TransferFile {
    fn new(arguments: &TransferArguments) -> Result<Self> {
        let TransferArguments { file, account_ids, batch, .. } = arguments;
        let format = format(arguments)?;
        if format == TransferFormat::Jsonl && *account_ids != AccountIdType::Text {
            return Err(Usage("--account-ids is only for CSV: in JSON an id has its type".to_owned()).into());
        }
        if let Some(batch) = batch.as_ref().filter(|batch| batch.is_empty() || batch.len() > BATCH_BYTES_MAX) {
            let text = format!("--batch must have 1 to {BATCH_BYTES_MAX} bytes, not {}", batch.len());
            return Err(Usage(text).into());
        }
        let input = open(file)?;
        let columns = Columns::new(&arguments.columns)?;
        let (names, has_batch) = (Names::new(batch.clone()), batch.is_some());
        Ok(TransferFile { input, format, columns, account_ids: *account_ids, names, has_batch })
    }

    /// Reads up to the first row.
    ///
    /// # Errors
    /// Fails if the input has only empty lines, as a file that was cut off, or if a column is missing in the header.
    fn begin(self) -> Result<RowReader> {
        let TransferFile { input, format, columns, account_ids, names, has_batch } = self;
        let Input { mut reader, name, length } = input;
        let is_empty = reader.fill_buf().with_context(|| format!("cannot read {name}"))?.is_empty();
        ensure!(!is_empty, "{name} is empty, without a header: it may have been cut off");
        let mut lines = Lines::new(reader);
        let first = lines.next().with_context(|| format!("cannot read {name}"))?;
        let Some(first) = first else { bail!("{name} has only empty lines: it may have been cut off") };
        let (header, first) = match format {
            TransferFormat::Jsonl => (None, Some(first)),
            TransferFormat::Csv => {
                let header = header(first, &columns, account_ids, &name)?;
                ensure!(header.has_ids() || has_batch, without_ids(&name));
                (Some(header), None)
            }
        };
        Ok(RowReader { lines, first, name, length, header, columns, names })
    }
}

/// Reads rows, on a thread of its own.
struct RowReader {
    lines: Lines<Box<dyn BufRead + Send>>,
    /// The first row of JSON, which was read to look for an empty file.
    first: Option<Line>,
    name: String,
    length: u64,
    /// The header of a CSV file.
    header: Option<Header>,
    columns: Columns,
    names: Names,
}

impl RowReader {
    /// Sends chunks until the end of the file, or until the receiver is dropped.
    fn read(self, sender: &mpsc::Sender<Chunk>) -> Result<()> {
        let RowReader { mut lines, mut first, name, header, columns, mut names, .. } = self;
        loop {
            let mut items = Vec::with_capacity(CHUNK);
            while items.len() < CHUNK {
                let line = match first.take() {
                    Some(line) => Some(line),
                    None => lines.next().with_context(|| format!("cannot read {name}"))?,
                };
                let Some(line) = line else { break };
                items.push(item(line, header.as_ref(), &columns, &mut names));
            }
            let last = items.len() < CHUNK;
            let chunk = Chunk { items, bytes: lines.bytes };
            if sender.blocking_send(chunk).is_err() || last {
                return Ok(());
            }
        }
    }
}

fn item(line: Line, header: Option<&Header>, columns: &Columns, names: &mut Names) -> Item {
    let Line { number: line, text } = line;
    let text = match text {
        Ok(text) => text,
        Err(unreadable) => return Item { line, text: unreadable.shown, row: Err(unreadable.reason) },
    };
    let row = match header {
        Some(header) => header.row(&text),
        None => row::of_json(&text, columns),
    };
    let row = row.and_then(|row| Ok(NamedRow { name: Name::new(names.name(&row)?), row }));
    Item { line, text, row }
}

/// Reads the header of a CSV file.
fn header(first: Line, columns: &Columns, account_ids: AccountIdType, name: &str) -> Result<Header> {
    let Line { number, text } = first;
    let read = text.map_err(|unreadable| unreadable.reason).and_then(|text| Header::read(&text, columns, account_ids));
    read.map_err(|why| anyhow!("{name}, line {number}: {why}"))
}

fn without_ids(name: &str) -> Usage {
    let why = "rows of an earlier run could not be recognised";
    Usage(format!(
        "{name} has no column id, so {why}: name the column with --column id=NAME, or the whole file with --batch"
    ))
}

/// Returns the format that a flag or the name of the file says.
fn format(arguments: &TransferArguments) -> Result<TransferFormat> {
    let extension = arguments.file.extension().and_then(|extension| extension.to_str());
    match (arguments.format, extension) {
        (Some(format), _) => Ok(format),
        (None, Some("csv")) => Ok(TransferFormat::Csv),
        (None, Some("jsonl" | "ndjson" | "json")) => Ok(TransferFormat::Jsonl),
        (None, _) => {
            let file = arguments.file.display();
            let text =
                format!("--format csv or --format jsonl is missing: the name '{file}' does not end in .csv or .jsonl");
            Err(Usage(text).into())
        }
    }
}

/// An input that is open.
struct Input {
    reader: Box<dyn BufRead + Send>,
    /// The name of the input in messages.
    name: String,
    /// Bytes of the input; 0 if the length is unknown.
    length: u64,
}

fn open(file: &Path) -> Result<Input> {
    if file == Path::new("-") {
        let reader = Box::new(BufReader::new(std::io::stdin()));
        return Ok(Input { reader, name: "standard input".to_owned(), length: 0 });
    }
    let name = file.display().to_string();
    let input = File::open(file).with_context(|| format!("cannot read {name}"))?;
    let metadata = input.metadata().with_context(|| format!("cannot read {name}"))?;
    ensure!(!metadata.is_dir(), "cannot read {name}: it is a directory");
    Ok(Input { reader: Box::new(BufReader::new(input)), name, length: metadata.len() })
}

/// Returns how many rows were applied a second.
fn per_second(rows: u64, took: Duration) -> f64 {
    rows as f64 / took.as_secs_f64().max(f64::EPSILON)
}
