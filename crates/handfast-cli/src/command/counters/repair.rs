//! `handfast counters rebuild` and `trim`, which change stored figures.

use anyhow::{Context as _, Result};
use handfast_counters::jiff::civil::Date;
use handfast_counters::{Difference, Kind, Trimmed};
use serde_json::{Value, json};

use super::OpenedCounters;
use super::report::{damaged_lines, ensure_items};
use crate::command::pattern::first_findings;
use crate::console::Console;
use crate::exit::{Exit, Usage};
use crate::listing::counted;

/// Sets totals that are wrong, or shows them.
pub(super) async fn rebuild(
    opened: &OpenedCounters,
    kind: Option<&Kind>,
    dry_run: bool,
    console: Console,
) -> Result<Exit> {
    let bar = console.progress("rebuild", "items", 0);
    let storage = opened.counters.storage();
    let (mut changes, mut items) = (Changes::default(), 0);
    let mut progress = |count| {
        items = count;
        bar.set_position(count);
    };
    let result = match dry_run {
        true => storage.verify(kind, &mut progress).await.map_err(anyhow::Error::from).map(|found| {
            changes = Changes { rebuilt: found.differences, damaged: found.damaged };
        }),
        false => {
            let rebuilt = opened.counters.rebuild(kind, &mut progress, |change| changes.add(change)).await.map(drop);
            rebuilt.context(
                "not all totals were rebuilt, or not all of those in the cache have followed: repeat the command",
            )
        }
    };
    bar.finish_and_clear();
    // What was changed before an error is reported, too.
    if result.is_ok() || !changes.is_empty() {
        if items == 0 {
            ensure_items(opened, kind).await?;
        }
        report_rebuilt(items, &changes, dry_run, console)?;
    }
    result?;
    Ok(if changes.damaged.is_empty() { Exit::Good } else { Exit::GuaranteeBroken })
}

/// The changes of a repair, which were made or would be made.
#[derive(Default)]
struct Changes {
    rebuilt: Vec<Difference>,
    /// The errors of items that cannot be read. They are left as they are.
    damaged: Vec<String>,
}

impl Changes {
    fn add(&mut self, change: Result<Difference, String>) {
        match change {
            Ok(difference) => self.rebuilt.push(difference),
            Err(what) => self.damaged.push(what),
        }
    }

    fn is_empty(&self) -> bool {
        self.rebuilt.is_empty() && self.damaged.is_empty()
    }
}

fn report_rebuilt(items: u64, changes: &Changes, dry_run: bool, console: Console) -> Result<()> {
    let Changes { rebuilt, damaged } = changes;
    let text = || {
        let would = if dry_run { "would be" } else { "was" };
        let mut lines = vec![match rebuilt.len() {
            0 if !damaged.is_empty() => format!("{} checked: no total {would} changed", counted(items, "items")),
            0 => format!("{} checked: each total is its base and the sum of its days", counted(items, "items")),
            1 => format!("{} checked: 1 total {would} changed", counted(items, "items")),
            more => {
                let would = if dry_run { "would be" } else { "were" };
                format!("{} checked: {more} totals {would} changed", counted(items, "items"))
            }
        }];
        let findings = rebuilt.iter().map(|difference| {
            let Difference { item, total, base, days } = difference;
            format!("{item}: {total} -> {} (base {base} and days {days})", difference.right_total())
        });
        lines.extend(first_findings(&findings.collect::<Vec<_>>(), rebuilt.len() as u64));
        lines.extend(damaged_lines(damaged));
        lines.join("\n")
    };
    let changes = rebuilt.iter().map(|difference| {
        let Difference { item, total, base, days } = difference;
        let (kind, id, after) = (item.kind.as_str(), item.id.as_str(), difference.right_total());
        json!({ "kind": kind, "id": id, "before": total, "after": after, "base": base, "days": days })
    });
    let changes: Vec<Value> = changes.collect();
    let json = json!({ "items": items, "dry_run": dry_run, "changes": changes, "damaged": damaged });
    Ok(console.report(text, &json)?)
}

/// Makes old daily figures a part of the base of their totals, or counts them.
pub(super) async fn trim(opened: &OpenedCounters, before: Date, dry_run: bool, console: Console) -> Result<Exit> {
    let today = opened.counters.today()?;
    if before > today {
        return Err(Usage(format!("--before: {before} is in the future, today is {today}")).into());
    }
    let storage = opened.counters.storage();
    let bar = console.progress("trim", "months", 0);
    let trimmed = match dry_run {
        true => storage.trimmable(before).await.map_err(anyhow::Error::from),
        false => {
            // Views of old days that wait in the queue become a part of the base as well.
            opened.counters.flush().await.context("the views in the queue could not be saved")?;
            let trimmed = storage.trim(before, u64::MAX, |months| bar.set_position(months)).await;
            trimmed.context("not all days were removed: repeat the command")
        }
    };
    bar.finish_and_clear();
    let Trimmed { months, views, .. } = trimmed?;
    let text = || {
        let first = before.first_of_month();
        let (months, views) = (counted(months, "months"), counted(views, "views"));
        match dry_run {
            true => {
                format!("{months} of items before {first} with {views} would become a part of the totals without days")
            }
            false => format!("{months} of items before {first} with {views} are a part of the totals without days now"),
        }
    };
    console.report(text, &json!({ "months": months, "views": views, "dry_run": dry_run }))?;
    Ok(Exit::Good)
}
