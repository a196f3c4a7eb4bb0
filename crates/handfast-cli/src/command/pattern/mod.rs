//! The common part of the commands about patterns, which show what a pattern has left in a store, and repair it.
//!
//! A command opens the store without transactions over it, and finds its collection; a missing one, or one that holds something else, is
//! refused before anything is done. Commands that only read create no indexes. Flags say what a command needs to know of the application
//! (names of fields, leases).

mod opened_collection;

use std::fmt::Display;
use std::future::Future;

use handfast_patterns::{FieldNames, Round};
use serde_json::json;

pub(super) use self::opened_collection::{OpenedCollection, raw};
use crate::console::Console;
use crate::exit::{Exit, Usage};
use crate::flags::{AnyStoreFlags, Renamed};
use crate::listing::{Listing, counted};
use crate::setup::{block_on, prepare_any, until_stopped};

/// Items of one round of a recovery: short enough for the progress to move.
const BATCH: u32 = 100;
/// Findings in a report for people; JSON has as many as the library keeps.
pub(super) const FINDINGS_SHOWN_MAX: usize = 20;

/// Opens a collection, works on it, and closes the store, however the work ended.
pub(super) fn with_collection<F>(
    flags: &AnyStoreFlags,
    collection: &str,
    work: impl FnOnce(OpenedCollection, Console) -> F,
) -> anyhow::Result<Exit>
where
    F: Future<Output = anyhow::Result<Exit>>,
{
    let (configuration, console) = prepare_any(flags)?;
    block_on(until_stopped(async {
        let (collection, open) = OpenedCollection::open(&configuration, &flags.database, collection).await?;
        let result = work(collection, console).await;
        open.close().await?;
        result
    }))
}

/// Renames fields as flags say.
pub(super) fn rename<N: FieldNames>(names: &mut N, renamed: &[Renamed]) -> anyhow::Result<()> {
    for Renamed { default, name } in renamed {
        if !names.rename(default, name) {
            let known = N::DEFAULTS.join(", ");
            return Err(Usage(format!("--field: there is no field '{default}'; there are {known}")).into());
        }
    }
    names.check().map_err(|error| Usage(format!("--field: {error}")).into())
}

/// Runs rounds until one does nothing more.
pub(super) async fn rounds(
    console: Console,
    what: &'static str,
    unit: &'static str,
    round: impl AsyncFn(u32) -> handfast_patterns::Result<Round>,
) -> anyhow::Result<Round> {
    let bar = console.progress(what, unit, 0);
    let mut all = Round::default();
    loop {
        let Round { done, failed, more } = round(BATCH).await?;
        // The next round repeats what failed, so it counts once.
        all = Round { done: all.done + done, failed, more };
        bar.inc(done);
        // After a round of failures alone, the next would be the same.
        if !more || done == 0 {
            bar.finish_and_clear();
            return Ok(all);
        }
    }
}

/// Returns lines with the first findings, and how many more there are.
pub(super) fn first_findings<F: Display>(findings: &[F], count: u64) -> Vec<String> {
    let mut lines: Vec<_> = findings.iter().take(FINDINGS_SHOWN_MAX).map(|finding| format!("  {finding}")).collect();
    let kept = findings.len().saturating_sub(FINDINGS_SHOWN_MAX);
    if kept > 0 {
        lines.push(format!("  and {kept} more: --json has them"));
    }
    let counted = count.saturating_sub(findings.len() as u64);
    if counted > 0 {
        lines.push(format!("  and {counted} beyond those: repair the first ones, then verify again to see them"));
    }
    lines
}

/// Reports the sum of rounds. The log says what failed for a single item.
pub(super) fn report_rounds(console: Console, did: &str, unit: &str, round: Round) -> anyhow::Result<Exit> {
    let Round { done, failed, .. } = round;
    let text = || match failed {
        0 => format!("{did} {}", counted(done, unit)),
        _ => format!("{did} {}; {failed} failed: the log says why; repeat the command", counted(done, unit)),
    };
    console.report(text, &json!({ "done": done, "failed": failed }))?;
    Ok(if failed == 0 { Exit::Good } else { Exit::Failed })
}

/// A list of items with their outcomes, and the exit code over all.
pub(super) struct ItemOutcomes {
    listing: Listing,
    exit: Exit,
}

impl ItemOutcomes {
    pub(super) fn new() -> Self {
        ItemOutcomes { listing: Listing::new(&["id", "outcome"]), exit: Exit::Good }
    }

    /// Adds an outcome; `asked` tells whether it is the wanted one.
    pub(super) fn push(&mut self, id: &bson::Bson, asked: bool, outcome: impl Into<String>) {
        let outcome = outcome.into();
        let line = json!({ "id": crate::id::extended_json(id), "done": asked, "outcome": outcome });
        self.listing.push([crate::id::shown(id), outcome], line);
        if !asked {
            self.exit = Exit::Failed;
        }
    }

    pub(super) fn report(&self, console: Console) -> anyhow::Result<Exit> {
        console.list(&self.listing)?;
        Ok(self.exit)
    }
}

#[cfg(test)]
mod tests {
    use super::first_findings;

    /// Returns the lines after the findings.
    fn behind(kept: usize, count: u64) -> Vec<String> {
        first_findings(&vec!["finding"; kept], count).into_iter().filter(|line| line != "  finding").collect()
    }

    #[test]
    fn a_report_counts_the_findings_that_json_has_and_those_beyond() {
        assert_eq!(behind(20, 20), [""; 0]);
        assert_eq!(behind(21, 21), ["  and 1 more: --json has them"]);
        assert_eq!(behind(1000, 1000), ["  and 980 more: --json has them"]);
        let beyond = "  and 34 beyond those: repair the first ones, then verify again to see them";
        assert_eq!(behind(1000, 1034), ["  and 980 more: --json has them", beyond]);
    }
}
