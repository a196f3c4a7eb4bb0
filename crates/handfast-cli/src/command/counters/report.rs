//! The reports of `verify`, `top` and `show`.

use anyhow::Result;
use handfast_counters::jiff::ToSpan as _;
use handfast_counters::jiff::civil::Date;
use handfast_counters::{Difference, Item, Kind};
use serde_json::{Value, json};

use super::OpenedCounters;
use crate::command::pattern::first_findings;
use crate::console::Console;
use crate::exit::Exit;
use crate::listing::{Listing, counted};

/// The number of days that are shown, if no flag says.
const DAYS: i64 = 30;

pub(super) async fn verify(opened: &OpenedCounters, kind: Option<&Kind>, console: Console) -> Result<Exit> {
    let bar = console.progress("verify", "items", 0);
    let found = opened.counters.storage().verify(kind, |items| bar.set_position(items)).await;
    bar.finish_and_clear();
    let found = found?;
    let mut waiting = opened.has_queue.then_some(0);
    for of_queue in opened.counters.buffer().kinds().await? {
        if kind.is_none_or(|kind| *kind == of_queue) {
            let pending = opened.counters.buffer().depth(&of_queue).await?.pending;
            waiting = waiting.map(|waiting| waiting + pending);
        }
    }
    let text = || {
        let all = format!("{} with {} checked", counted(found.items, "items"), counted(found.views, "views"));
        let mut lines = vec![match found.differences.len() {
            0 => format!("{all}: each total is its base and the sum of its days"),
            1 => format!("{all}: 1 total is not its base and the sum of its days"),
            more => format!("{all}: {more} totals are not their base and the sum of their days"),
        }];
        let findings: Vec<String> = found.differences.iter().map(difference).collect();
        lines.extend(first_findings(&findings, findings.len() as u64));
        if let Some(waiting @ 1..) = waiting {
            lines.push(format!(
                "{} in the queue: `counters serve` saves what waits there",
                counted(waiting, "requests")
            ));
        }
        lines.join("\n")
    };
    let differences = found.differences.iter().map(|found| {
        let Difference { item, total, base, days } = found;
        json!({ "kind": item.kind.as_str(), "id": item.id.as_str(), "total": total, "base": base, "days": days })
    });
    let differences: Vec<Value> = differences.collect();
    let json = json!({ "items": found.items, "views": found.views, "waiting": waiting, "differences": differences });
    console.report(text, &json)?;
    Ok(if found.differences.is_empty() { Exit::Good } else { Exit::GuaranteeBroken })
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
    for item in opened.counters.top(kind, limit as usize, day).await? {
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
    let total = counters.totals(&item.kind, ids).await?.into_iter().next();
    let total = total.filter(|_| opened.has_queue);
    let days = counters.daily(item, from, to).await?;
    let mut listing = Listing::new(&["day", "views"]);
    for day in days.iter().filter(|day| day.views > 0) {
        listing.push([day.day.to_string(), day.views.to_string()], Value::Null);
    }
    let text = || {
        let views = match total {
            None => format!("{} saved", counted(saved, "views")),
            Some(total) => {
                let least = if total.partial { "at least " } else { "" };
                let waiting = match total.views == saved {
                    true => String::new(),
                    false => format!(", {saved} of them saved; the others wait in the queue"),
                };
                format!("{least}{}{waiting}", counted(total.views, "views"))
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
        "days": days.collect::<Vec<_>>(),
    });
    console.report(text, &json)?;
    Ok(Exit::Good)
}
