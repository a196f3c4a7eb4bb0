//! The first page: what the server does now, as curves, and what it has done since its start.

use axum::response::Response;
use bson::{Bson, Document, doc};

use super::super::events::figures::snapshot_age;
use super::super::reads::integer;
use super::super::{Api, Result};
use super::html::{Html, html};
use super::layout::{Page, Section};
use super::parts::{Column, close_region, empty, link, open_region, table, text, tile};
use super::values::{grouped, span};
use crate::problem::ProblemKind;
use crate::request::Call;

/// The curves: an id, a title, the unit, and the series as `name:label` of the figures that `/v1/events` sends.
const CURVES: [(&str, &str, &str, &str); 8] = [
    ("commands-curve", "Commands", "per second", "reads:reads writes:writes commands:all failed:failed"),
    ("transactions-curve", "Transactions", "per second", "committed:committed aborted:aborted"),
    ("read-curve", "Duration of reads", "ms", "readMillis.p50:p50 readMillis.p95:p95 readMillis.p99:p99"),
    ("write-curve", "Duration of writes", "ms", "writeMillis.p50:p50 writeMillis.p95:p95 writeMillis.p99:p99"),
    ("conflicts-curve", "Conflicts and repeated writes", "per second", "conflicts:conflicts retries:repeated"),
    ("sync-curve", "Duration of syncs to disk", "ms", "syncMillis.p50:p50 syncMillis.p99:p99"),
    (
        "open-curve",
        "Connections and snapshots",
        "",
        "connections:connections openTransactions:transactions snapshots:snapshots",
    ),
    ("network-curve", "Network", "bytes per second", "bytesIn:received bytesOut:sent"),
];
/// The commands that the table shows, by the time that they took.
const COMMANDS_MAX: usize = 12;
/// The collections that the table shows, by the time that they took.
const COLLECTIONS_MAX: usize = 12;

pub(super) async fn page(api: &Api, call: Call) -> Result<Response> {
    let mut client = api.client(&call).await?;
    let mut page = Page::new(Section::Overview, "Overview").live().with_script("curves.js");
    let status = match client.run("admin", &doc! { "serverStatus": 1 }).await {
        Err(problem) if problem.kind == ProblemKind::Forbidden => {
            let title = "The figures of the server need the role clusterMonitor";
            page.body.push(&empty(title, "Your user does not have it. The other pages show what it may see."));
            return Ok(page.answer());
        }
        status => status?,
    };
    let top = client.run("admin", &doc! { "top": 1 }).await?;
    page.body.push(&tiles(&status));
    page.body.push(&curves());
    html!(page.body, "<div class=\"columns\">");
    page.body.push(&commands(&status));
    page.body.push(&collections(&top));
    html!(page.body, "</div>");
    Ok(page.answer())
}

fn tiles(status: &Document) -> Html {
    let none = Document::new();
    let part = |name: &str| status.get_document(name).unwrap_or(&none);
    let (connections, transactions, memory) = (part("connections"), part("transactions"), part("mem"));
    let storage = part("handfast").get_document("storage").unwrap_or(&none);
    let mut html = Html::new();
    html!(html, "<section id=\"tiles\" data-region aria-label=\"Figures\"><dl class=\"tiles\">");
    let number = |of: &Document, name: &str| grouped(integer(of, name));
    html.push(&tile(
        "Uptime",
        &span(integer(status, "uptimeMillis")),
        &format!("{} store", part("storageEngine").get_str("name").unwrap_or("unknown")),
    ));
    html.push(&tile(
        "Connections",
        &number(connections, "current"),
        &format!("{} since the start", number(connections, "totalCreated")),
    ));
    html.push(&tile(
        "Open transactions",
        &number(transactions, "currentOpen"),
        &format!("{} of them run a statement", number(transactions, "currentActive")),
    ));
    html.push(&tile(
        "Committed",
        &number(transactions, "totalCommitted"),
        &format!("{} aborted", number(transactions, "totalAborted")),
    ));
    html.push(&tile(
        "Conflicts",
        &number(transactions, "totalConflicts"),
        &format!("{} outcomes unknown", number(transactions, "totalUnknown")),
    ));
    let snapshots = format!("{} in use", number(transactions, "currentSnapshots"));
    let oldest = if storage.is_empty() { "–".to_owned() } else { grouped(snapshot_age(storage)) };
    html.push(&tile("Oldest snapshot", &oldest, &format!("commits old; {snapshots}")));
    if !storage.is_empty() {
        html.push(&tile(
            "Safe point",
            &number(storage, "oldestSnapshot"),
            &format!("of {} commits", number(storage, "newestCommit")),
        ));
    }
    html.push(&tile("Memory", &format!("{} MiB", number(memory, "resident")), "of the process"));
    html!(html, "</dl></section>\n");
    html
}

fn curves() -> Html {
    let mut html = Html::new();
    html!(
        html,
        "<section aria-labelledby=\"curves-title\"><h2 id=\"curves-title\">The last five minutes</h2><noscript><p class=\"note\">The curves need JavaScript. The tables do not, and <a href=\"/metrics\">/metrics</a> has the same figures.</p></noscript><div class=\"curves\">"
    );
    for (id, title, unit, series) in CURVES {
        html!(
            html,
            "<figure id=\"{}\" class=\"curve\" data-unit=\"{}\" data-series=\"{}\" hidden><figcaption><strong>{}</strong> <span class=\"unit\">{}</span></figcaption></figure>",
            id,
            unit,
            series,
            title,
            unit
        );
    }
    html!(html, "</div></section>\n");
    html
}

fn commands(status: &Document) -> Html {
    let counts = status.get_document("metrics").and_then(|metrics| metrics.get_document("commands"));
    let mut counts: Vec<(&String, &Document)> = counts
        .iter()
        .flat_map(|counts| counts.iter())
        .filter_map(|(name, counts)| Some((name, counts.as_document()?)))
        .collect();
    counts.retain(|(_, counts)| integer(counts, "total") > 0);
    counts.sort_by_key(|(_, counts)| std::cmp::Reverse(integer(counts, "micros")));
    let row = |(name, counts): &(&String, &Document)| {
        let total = integer(counts, "total");
        vec![
            text(name),
            text(grouped(total)),
            text(grouped(integer(counts, "failed"))),
            text(mean_millis(integer(counts, "micros"), total)),
        ]
    };
    let rows: Vec<_> = counts.iter().take(COMMANDS_MAX).map(row).collect();
    let columns =
        [Column::Text("Command"), Column::Number("Number"), Column::Number("Failed"), Column::Number("Mean, ms")];
    region("commands", "Commands since the start", &columns, &rows)
}

fn collections(top: &Document) -> Html {
    let none = Document::new();
    let totals = top.get_document("totals").unwrap_or(&none);
    let mut used: Vec<(&String, &Document)> =
        totals.iter().filter_map(|(name, used)| Some((name, used.as_document()?))).collect();
    let time = |used: &Document| used.get_document("total").map_or(0, |total| integer(total, "time"));
    used.sort_by_key(|(_, used)| std::cmp::Reverse(time(used)));
    let row = |(name, used): &(&String, &Document)| {
        let count = |part: &str| used.get_document(part).map_or(0, |part| integer(part, "count"));
        let of = name.split_once('.').filter(|(_, collection)| !collection.starts_with('$'));
        let named = match of {
            Some((database, collection)) => link(&super::browse::path(database, collection), name),
            None => text(name),
        };
        vec![
            named,
            text(grouped(count("readLock"))),
            text(grouped(count("writeLock"))),
            text(mean_millis(time(used), count("total"))),
        ]
    };
    let rows: Vec<_> = used.iter().take(COLLECTIONS_MAX).map(row).collect();
    let columns =
        [Column::Text("Collection"), Column::Number("Reads"), Column::Number("Writes"), Column::Number("Mean, ms")];
    region("used", "Collections by time", &columns, &rows)
}

fn region(id: &str, heading: &str, columns: &[Column], rows: &[Vec<Html>]) -> Html {
    let mut html = Html::new();
    open_region(&mut html, id, heading);
    if rows.is_empty() {
        html.push(&empty("Nothing yet", "No command has used a collection since the start."));
    } else {
        html.push(&table(heading, columns, rows));
    }
    close_region(&mut html);
    html
}

#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn mean_millis(micros: i64, count: i64) -> String {
    if count == 0 { "–".to_owned() } else { format!("{:.2}", micros as f64 / count as f64 / 1_000.0) }
}

/// Returns whether a value is a true flag.
pub(super) fn is_true(value: Option<&Bson>) -> bool {
    value == Some(&Bson::Boolean(true))
}
