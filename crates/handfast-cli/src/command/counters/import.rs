//! `handfast counters import FILE`: each line is added once, however often the command is killed and run again.
//!
//! ```text
//! file      all lines are checked, and hashed: the hash is the name of the import, unless a flag names it
//! store     what waits in the queue is saved; a new import is compared with those of before
//! thread    lines ── figures ──┐  chunks, some of them waiting at most
//! task                         └──> Import: skips what was added ── batches: a transaction each, then the cached totals
//! ```
//!
//! With Redis, instances may run beside it. The totals that they have there follow after each batch, also those of lines that an earlier run has added: it may
//! have been killed in between.
//!
//! Standard input cannot be read twice: it needs a name, and its lines are checked batch by batch.

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use handfast_counters::{
    Counters, Import, ImportName, ImportSaved, LineState, SharedBeginning, StorageForm, TOTAL_MAX,
};
use serde_json::json;
use tokio::sync::mpsc;

use super::OpenedCounters;
use super::data_arguments::ImportArguments;
use super::input::{AddedBefore, Checked, Chunk, Input, InputLine};
use super::opened_counters::{Limits, ensure_totals_known, options_beside_instances};
use crate::command::pattern::first_findings;
use crate::configuration::Configuration;
use crate::console::Console;
use crate::exit::{Exit, Usage};
use crate::listing::counted;

/// The figures that one transaction adds.
const BATCH_FIGURES: usize = 1_000;
/// Chunks that are read before they are added.
const CHUNKS_MAX: usize = 4;

/// The lines that a run has added, and those that it found added.
#[derive(Debug, Default)]
struct Added {
    /// The lines that it has added, and the sum of their views.
    lines: u64,
    views: u64,
    /// The lines that were added before.
    before: u64,
}

pub(super) async fn run(configuration: &Configuration, arguments: &ImportArguments, console: Console) -> Result<Exit> {
    ensure_totals_known(configuration, "import")?;
    let input = Input::new(&arguments.file, arguments.format)?;
    let given = arguments.name.as_ref().map(|name| name.0.clone());
    if input.length.is_none() && given.is_none() && !arguments.dry_run {
        let text =
            "--name is missing: standard input and pipes cannot be read twice, so a name says which lines were added";
        return Err(Usage(text.to_owned()).into());
    }
    let mut checked = None;
    if input.length.is_some() || arguments.dry_run {
        checked = Some(check(&input, console).await?);
    }
    if let Some(checked) = checked.as_ref().filter(|_| arguments.dry_run) {
        return report_check(&input, checked, console);
    }
    let name = match (&given, &checked) {
        (Some(name), _) => name.clone(),
        (None, Some(checked)) => ImportName::new(&format!("sha256:{}", checked.hash))?,
        (None, None) => bail!("an import without a name"),
    };
    if let Some(checked) = &checked {
        checked.ensure_right(&input)?;
    }
    // The queue is emptied, and nothing is added to it.
    let limits = Limits { queue_events: u32::MAX, idempotency_keys: u32::MAX };
    let opened = OpenedCounters::open(configuration, &arguments.counters, options_beside_instances(), limits).await?;
    let result = match opened.counters.storage().form() {
        StorageForm::Transactions => add(&opened, &input, name, given.is_none(), checked.as_ref(), console).await,
        StorageForm::SingleDocuments => Err(anyhow!(
            "--transactions: an import needs transactions, and the data in {} are saved without: export them, import both files into a directory \
             (--data), and copy that into a new database, as docs/counters.md says under \"Change the form\"",
            arguments.counters.database
        )),
    };
    opened.close().await?;
    result
}

async fn check(input: &Input, console: Console) -> Result<Checked> {
    let bar = console.progress("check", "bytes", input.length.unwrap_or(0));
    let (input, shown) = (input.clone(), bar.clone());
    let checked = tokio::task::spawn_blocking(move || input.check(&shown)).await?;
    bar.finish_and_clear();
    checked
}

fn report_check(input: &Input, checked: &Checked, console: Console) -> Result<Exit> {
    let Checked { lines, views, wrong, wrong_count, .. } = checked;
    let text = || {
        let right = format!("{}: {} with {}", input.name, counted(*lines, "lines"), counted(*views, "views"));
        let findings: Vec<String> = wrong.iter().map(|(line, why)| format!("line {line}: {why}")).collect();
        let mut text = vec![match wrong_count {
            0 => format!("{right}, none of them wrong; nothing was added"),
            _ => format!("{right}, and {}", counted(*wrong_count, "wrong lines")),
        }];
        text.extend(first_findings(&findings, *wrong_count));
        text.join("\n")
    };
    let wrong: Vec<_> = wrong.iter().map(|(line, why)| json!({ "line": line, "error": why })).collect();
    let json = json!({ "lines": lines, "views": views, "wrong": wrong_count, "errors": wrong });
    console.report(text, &json)?;
    Ok(if *wrong_count == 0 { Exit::Good } else { Exit::Failed })
}

/// Adds the lines of the file that were not added before.
async fn add(
    opened: &OpenedCounters,
    input: &Input,
    name: ImportName,
    is_default: bool,
    checked: Option<&Checked>,
    console: Console,
) -> Result<Exit> {
    // A deletion that waits there drops what was counted before it, and not what is added now.
    opened.counters.flush_all().await.context("the views in the queue could not be saved; nothing was added")?;
    let storage = opened.counters.storage();
    let mut import = storage.begin_import(name).await?;
    if is_default && import.position().is_none() {
        ensure_new(input, storage.earlier_imports().await?).await?;
    }
    let mut added = Added::default();
    let result = add_lines(&opened.counters, &mut import, input, checked, &mut added, console).await;
    result.map_err(|error| match added.lines > 0 || error.is::<handfast_counters::Error>() {
        true => {
            let (file, lines) = (&input.name, counted(added.lines, "lines"));
            error.context(format!(
                "the import of {file} has not ended, and has added {lines}: repeat the command, which adds nothing twice"
            ))
        }
        false => error,
    })?;
    report(&import, &added, console)?;
    Ok(Exit::Good)
}

/// Refuses a file that begins with lines that another import has added: all of them, or so many that the file may be the same one with changes.
async fn ensure_new(input: &Input, earlier: handfast_counters::EarlierImports) -> Result<()> {
    if !earlier.any_beyond() {
        return Ok(());
    }
    let reader = input.clone();
    let file = &input.name;
    match tokio::task::spawn_blocking(move || reader.added_by(earlier)).await?? {
        AddedBefore::Nothing => Ok(()),
        AddedBefore::All { import, line } => {
            let name = import.name.as_str();
            bail!(
                "{file} begins with the lines that the import {name} has added, up to line {line}: --name {name} adds those behind \
                 it, and another --name adds all of them again"
            )
        }
        AddedBefore::Beginning(SharedBeginning { import, lines }) => {
            let (name, all) = (import.name.as_str(), import.position.lines);
            bail!(
                "{file} begins with at least {lines} of the {all} lines that the import {name} has added, empty ones not counted: \
                 leave out what was added; another --name adds all of the file, these lines again"
            )
        }
    }
}

async fn add_lines(
    counters: &Counters,
    import: &mut Import,
    input: &Input,
    checked: Option<&Checked>,
    added: &mut Added,
    console: Console,
) -> Result<()> {
    let bar = console.progress("import", "bytes", input.length.unwrap_or(0));
    let (sender, mut chunks) = mpsc::channel(CHUNKS_MAX);
    let reader = input.clone();
    let reading = tokio::task::spawn_blocking(move || reader.send(&sender));
    let mut batch = Batch::default();
    let result = async {
        while let Some(Chunk { lines, bytes }) = chunks.recv().await {
            for line in lines {
                batch.read(import, input, line, added)?;
                if import.batch_len() >= BATCH_FIGURES {
                    batch.save(counters, import, input, added).await?;
                }
            }
            bar.set_position(bytes);
        }
        anyhow::Ok(())
    }
    .await;
    bar.finish_and_clear();
    result?;
    let hash = reading.await??;
    if !import.has_caught_up() {
        let lines = counted(import.added_figures(), "lines");
        bail!("{}; it ends before all {lines} with views that were added", changed(import, input));
    }
    batch.save(counters, import, input, added).await?;
    let name = import.name().as_str();
    let is_same = checked.is_none_or(|checked| checked.hash == hash);
    ensure!(is_same, "{} was changed while it was read: --name {name} adds lines that were appended", input.name);
    Ok(())
}

/// The lines whose figures are in the batch of an import.
#[derive(Default)]
struct Batch {
    lines: Vec<u64>,
    views: u64,
}

impl Batch {
    /// Reads a line; if it is new, its figure becomes a part of the batch.
    fn read(&mut self, import: &mut Import, input: &Input, line: InputLine, added: &mut Added) -> Result<()> {
        let InputLine { number, text, figure } = line;
        match import.read(&text) {
            LineState::Changed => bail!("{}", changed(import, input)),
            LineState::Known => {
                if let Ok(Some(figure)) = figure {
                    added.before += 1;
                    import.add_known(figure.item);
                }
            }
            LineState::New => match figure {
                Ok(None) => {}
                Ok(Some(figure)) => {
                    self.lines.push(number);
                    self.views = self.views.saturating_add(figure.views);
                    import.add(figure);
                }
                Err(why) => bail!("{}, line {number}: {why}", input.name),
            },
        }
        Ok(())
    }

    async fn save(&mut self, counters: &Counters, import: &mut Import, input: &Input, added: &mut Added) -> Result<()> {
        match counters.save_import(import).await? {
            ImportSaved::Added => {}
            ImportSaved::Elsewhere => {
                let name = import.name().as_str();
                bail!("another process adds lines under the name {name} now: repeat the command when it has ended")
            }
            ImportSaved::TooLarge { figure } => {
                let line = self.lines.get(figure).copied().unwrap_or_default();
                let text = "the total of its item would be above";
                bail!("{}, line {line}: {text} {TOTAL_MAX}, the largest one", input.name)
            }
        }
        let Batch { lines, views } = std::mem::take(self);
        added.lines += lines.len() as u64;
        added.views = added.views.saturating_add(views);
        Ok(())
    }
}

fn changed(import: &Import, input: &Input) -> String {
    let (file, name) = (&input.name, import.name().as_str());
    format!(
        "{file} has other lines than those that the import {name} has added: go on with that file, or choose another --name"
    )
}

fn report(import: &Import, added: &Added, console: Console) -> Result<()> {
    let name = import.name().as_str();
    let Added { lines, views, before } = added;
    let text = || {
        let all = format!("added {} with {}", counted(*lines, "lines"), counted(*views, "views"));
        match (lines, before) {
            (_, 0) => format!("{all}, as the import {name}"),
            (0, before) => {
                format!("nothing was added: the import {name} had added all {} before", counted(*before, "lines"))
            }
            (_, before) => format!("{all}, as the import {name}, which had added {} before", counted(*before, "lines")),
        }
    };
    Ok(console.report(text, &json!({ "name": name, "lines": lines, "views": views, "before": before }))?)
}
