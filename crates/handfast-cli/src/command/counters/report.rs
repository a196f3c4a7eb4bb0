//! The reports of `verify`, `top` and `show`.

use anyhow::{Result, ensure};
use handfast_counters::jiff::ToSpan as _;
use handfast_counters::jiff::civil::Date;
use handfast_counters::{Difference, Item, Kind, StorageForm};
use serde_json::{Value, json};

use super::OpenedCounters;
use crate::command::pattern::first_findings;
use crate::console::Console;
use crate::exit::Exit;
use crate::listing::{Listing, counted, listed};

/// The number of days that are shown, if no flag says.
const DAYS: i64 = 30;

pub(super) async fn verify(opened: &OpenedCounters, kind: Option<&Kind>, console: Console) -> Result<Exit> {
    let bar = console.progress("verify", "items", 0);
    let found = opened.counters.storage().verify(kind, |items| bar.set_position(items)).await;
    bar.finish_and_clear();
    let found = found?;
    if found.items == 0 {
        ensure_items(opened, kind).await?;
    }
    let waiting = waiting(opened, kind).await?;
    let text = || {
        let all = format!("{} with {} checked", counted(found.items, "items"), counted(found.views, "views"));
        let mut lines = vec![match found.differences.len() {
            0 if !found.damaged.is_empty() => {
                format!("{all}: each total that can be read is its base and the sum of its days")
            }
            0 => format!("{all}: each total is its base and the sum of its days"),
            1 => format!("{all}: 1 total is not its base and the sum of its days"),
            more => format!("{all}: {more} totals are not their base and the sum of their days"),
        }];
        let findings: Vec<String> = found.differences.iter().map(difference).collect();
        lines.extend(first_findings(&findings, findings.len() as u64));
        lines.extend(damaged_lines(&found.damaged));
        if found.in_progress > 0 {
            lines.push(format!("not checked: {}, which are being saved", counted(found.in_progress, "items")));
        }
        if let Some(waiting @ 1..) = waiting {
            let requests = counted(waiting, "requests");
            lines.push(format!("not checked: the views of {requests} in the queue, which `counters serve` saves"));
        }
        lines.join("\n")
    };
    let differences = found.differences.iter().map(|found| {
        let Difference { item, total, base, days } = found;
        json!({ "kind": item.kind.as_str(), "id": item.id.as_str(), "total": total, "base": base, "days": days })
    });
    let differences: Vec<Value> = differences.collect();
    let mut json = json!({ "items": found.items, "views": found.views, "waiting": waiting, "differences": differences, "damaged": found.damaged });
    if opened.counters.storage().form() == StorageForm::SingleDocuments {
        json["in_progress"] = found.in_progress.into();
    }
    console.report(text, &json)?;
    Ok(if found.differences.is_empty() && found.damaged.is_empty() { Exit::Good } else { Exit::GuaranteeBroken })
}

/// Returns the number of requests in the queues of a kind, or of all, whose views are not saved; `None` if the queue is not known.
pub(super) async fn waiting(opened: &OpenedCounters, kind: Option<&Kind>) -> Result<Option<u64>> {
    if !opened.has_queue {
        return Ok(None);
    }
    let mut waiting = 0;
    for of_queue in opened.counters.buffer().kinds().await? {
        if kind.is_none_or(|kind| *kind == of_queue) {
            waiting += opened.counters.buffer().depth(&of_queue).await?.pending;
        }
    }
    Ok(Some(waiting))
}

/// Fails if there is no saved item of a kind; it may be misspelt.
pub(super) async fn ensure_items(opened: &OpenedCounters, kind: Option<&Kind>) -> Result<()> {
    let Some(kind) = kind else { return Ok(()) };
    let kinds = opened.counters.storage().item_kinds().await?;
    let waiting = match waiting(opened, Some(kind)).await? {
        None | Some(0) => String::new(),
        Some(waiting) => format!("; {} of it in the queue", counted(waiting, "requests")),
    };
    let names: Vec<String> = kinds.iter().map(Kind::to_string).collect();
    ensure!(kinds.contains(kind), "there is no saved item of the kind '{kind}'{waiting}; {}", listed(&names));
    Ok(())
}

/// Returns the lines about items that cannot be read.
pub(super) fn damaged_lines(damaged: &[String]) -> Vec<String> {
    let mut lines = Vec::new();
    if !damaged.is_empty() {
        lines.push(format!(
            "{} cannot be read, as something else has changed them:",
            counted(damaged.len() as u64, "items")
        ));
        lines.extend(first_findings(damaged, damaged.len() as u64));
    }
    lines
}

fn difference(found: &Difference) -> String {
    let Difference { item, total, base, days } = found;
    format!("{item}: the total is {total}, and base {base} and days {days} are {}", base + days)
}

pub(super) async fn top(
    opened: &OpenedCounters,
    kind: &Kind,
    day: Option<Date>,
    limit: u32,
    console: Console,
) -> Result<Exit> {
    let mut listing = Listing::new(&["id", "views"]);
    let items = opened.counters.top(kind, limit as usize, day).await?;
    if items.is_empty() {
        ensure_items(opened, Some(kind)).await?;
    }
    for item in items {
        let line = json!({ "id": item.id.as_str(), "views": item.views });
        listing.push([item.id.to_string(), item.views.to_string()], line);
    }
    console.list(&listing)?;
    Ok(Exit::Good)
}

pub(super) async fn show(
    opened: &OpenedCounters,
    item: &Item,
    from: Option<Date>,
    to: Option<Date>,
    console: Console,
) -> Result<Exit> {
    let counters = &opened.counters;
    let to = match to {
        Some(to) => to,
        None => counters.today()?,
    };
    let from = from.unwrap_or_else(|| to.saturating_sub((DAYS - 1).days()));
    let ids = std::slice::from_ref(&item.id);
    // Before the total, which has all saved views in it: the service may run beside.
    let saved = counters.storage().totals(&item.kind, ids).await?.first().copied().unwrap_or(0);
    let base = counters.storage().base(item).await?;
    let total = counters.totals(&item.kind, ids).await?.into_iter().next();
    let total = total.filter(|_| opened.has_queue);
    let days = counters.daily(item, from, to).await?;
    let mut listing = Listing::new(&["day", "views"]);
    for day in days.iter().filter(|day| day.views > 0) {
        listing.push([day.day.to_string(), day.views.to_string()], Value::Null);
    }
    let text = || {
        let base = match base {
            0 => String::new(),
            base => format!(", {base} of them without a day"),
        };
        let views = match total {
            None => format!("{} saved{base}", counted(saved, "views")),
            Some(total) => {
                let least = if total.partial { "at least " } else { "" };
                let waiting = match total.views == saved {
                    true => String::new(),
                    false => format!(", {saved} of them saved; the others wait in the queue"),
                };
                format!("{least}{}{base}{waiting}", counted(total.views, "views"))
            }
        };
        format!("{item} has {views}\n{}", listing.table())
    };
    let days = days.iter().map(|day| json!({ "day": day.day.to_string(), "views": day.views }));
    let json = json!({
        "kind": item.kind.as_str(),
        "id": item.id.as_str(),
        "total": total.map(|total| total.views),
        "saved": saved,
        "base": base,
        "days": days.collect::<Vec<_>>(),
    });
    console.report(text, &json)?;
    Ok(Exit::Good)
}
