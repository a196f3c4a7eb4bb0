//! The report: counts of rows by their outcome, and the rejected rows with their lines.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::json;

use super::arguments::TransferMechanism;
use super::mechanism::RowOutcome;
use super::per_second;
use crate::console::{Console, write_remark};
use crate::listing::counted;
use crate::unfinished::UnfinishedFile;

/// Rejected rows that are shown one by one; the file of --rejects has all.
const SHOWN_MAX: u64 = 20;

pub(super) struct Report {
    mechanism: TransferMechanism,
    rejects: Option<Rejects>,
    applied: u64,
    already: u64,
    rejected: u64,
    undecided: u64,
    reported: Reported,
}

/// Whether the counts were reported.
#[derive(PartialEq)]
enum Reported {
    NothingYet,
    /// Rows are being applied: a command that is stopped reports how far it came.
    Pending,
    All,
}

/// The file of rejected rows, which has its name once all are in it.
struct Rejects {
    path: PathBuf,
    file: UnfinishedFile,
}

impl Report {
    pub(super) fn new(rejects: Option<&Path>, mechanism: TransferMechanism) -> Result<Self> {
        let rejects = rejects.map(Rejects::create).transpose()?;
        Ok(Report {
            mechanism,
            rejects,
            applied: 0,
            already: 0,
            rejected: 0,
            undecided: 0,
            reported: Reported::NothingYet,
        })
    }

    /// Notes that rows are applied from here on.
    pub(super) fn begin(&mut self) {
        self.reported = Reported::Pending;
    }

    /// Counts a row, and reports it if it was not applied.
    pub(super) fn count(&mut self, line: u64, text: &str, outcome: &RowOutcome) -> Result<()> {
        let (count, untold) = match outcome {
            RowOutcome::Applied => (&mut self.applied, None),
            RowOutcome::AlreadyApplied => (&mut self.already, None),
            RowOutcome::Rejected(why) => (&mut self.rejected, Some(("rejected", why))),
            RowOutcome::Undecided(why) => (&mut self.undecided, Some(("undecided", why))),
        };
        *count += 1;
        let Some((what, why)) = untold else { return Ok(()) };
        match self.rejected + self.undecided {
            shown if shown <= SHOWN_MAX => write_remark(&format!("line {line} {what}: {why}")),
            next if next == SHOWN_MAX + 1 => write_remark("more rows are not applied: --rejects FILE gets all of them"),
            _ => {}
        }
        match &mut self.rejects {
            Some(rejects) => rejects.write(&json!({ "line": line, "outcome": what, "reason": why, "row": text })),
            None => Ok(()),
        }
    }

    /// Returns the counts in one line, for the progress bar.
    pub(super) fn in_short(&self) -> String {
        let Report { applied, already, rejected, undecided, .. } = self;
        let undecided = if *undecided == 0 { String::new() } else { format!(", {undecided} undecided") };
        format!("{applied} applied, {already} already applied, {rejected} rejected{undecided}")
    }

    /// Returns whether every row is applied.
    pub(super) fn is_complete(&self) -> bool {
        self.rejected == 0 && self.undecided == 0
    }

    /// Reports the counts, also of a run that did not reach the end.
    pub(super) fn finish(&mut self, console: Console, took: Duration, to_the_end: bool) -> Result<()> {
        self.reported = Reported::All;
        if let Some(rejects) = self.rejects.take() {
            rejects.file.finish().context("--rejects")?;
        }
        let Report { applied, already, rejected, undecided, .. } = &*self;
        let mechanism = self.mechanism.name();
        let rows = *applied + *already + *rejected + *undecided;
        let text = || {
            let rate = per_second(rows, took);
            format!("{} by {mechanism}: {}; {rate:.0} per second", counted(rows, "rows"), self.in_short())
        };
        let json = json!({
            "rows": rows,
            "applied": applied,
            "already_applied": already,
            "rejected": rejected,
            "undecided": undecided,
            "to_the_end": to_the_end,
            "mechanism": mechanism,
            "seconds": took.as_secs_f64(),
        });
        Ok(console.report(text, &json)?)
    }
}

impl Drop for Report {
    /// Reports the counts of a command that was stopped.
    fn drop(&mut self) {
        if self.reported == Reported::Pending {
            // Rows that were under way may be applied, too.
            let counts = self.in_short();
            write_remark(&format!(
                "interrupted: at least {counts}; the same command, with the whole input, continues and applies nothing twice"
            ));
        }
    }
}

impl Rejects {
    fn create(path: &Path) -> Result<Self> {
        let file = UnfinishedFile::replace(path).context("--rejects")?;
        Ok(Rejects { path: path.to_owned(), file })
    }

    fn write(&mut self, line: &serde_json::Value) -> Result<()> {
        let failed = || format!("--rejects: cannot write {}", self.path.display());
        writeln!(self.file, "{line}").with_context(failed)
    }
}
