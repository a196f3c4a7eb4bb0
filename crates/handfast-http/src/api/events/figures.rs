//! The figures of a moment, from two replies of `serverStatus`: what has grown between them, a second.

use std::collections::BTreeMap;
use std::time::Duration;

use bson::{Bson, Document};
use serde_json::{Map, Value, json};

use super::super::reads::integer;

/// The counts that are shown as rates, with their paths.
const RATES: [(&str, &str); 8] = [
    ("reads", "opLatencies.reads.ops"),
    ("writes", "opLatencies.writes.ops"),
    ("committed", "transactions.totalCommitted"),
    ("aborted", "transactions.totalAborted"),
    ("conflicts", "transactions.totalConflicts"),
    ("retries", "transactions.retriedCommandsCount"),
    ("bytesIn", "network.bytesIn"),
    ("bytesOut", "network.bytesOut"),
];
/// The numbers that are shown as they are.
const LEVELS: [(&str, &str); 6] = [
    ("uptimeMillis", "uptimeMillis"),
    ("connections", "connections.current"),
    ("openTransactions", "transactions.currentOpen"),
    ("snapshots", "transactions.currentSnapshots"),
    ("cursors", "metrics.cursor.open.total"),
    ("memoryMegabytes", "mem.resident"),
];
/// The path of the oldest snapshot.
const OLDEST: &str = "handfast.storage.oldestSnapshot";
/// The durations whose percentiles are shown, with the paths of their histograms.
const DURATIONS: [(&str, &str); 3] = [
    ("readMillis", "opLatencies.reads.histogram"),
    ("writeMillis", "opLatencies.writes.histogram"),
    ("syncMillis", "handfast.storage.sync.histogram"),
];
const PERCENTILES: [(&str, f64); 3] = [("p50", 0.5), ("p95", 0.95), ("p99", 0.99)];

/// The counts of the last reply.
#[derive(Default)]
pub(super) struct Figures {
    last: Option<(Duration, Counts)>,
}

/// The numbers of a reply that only grow.
struct Counts {
    rates: Vec<i64>,
    commands: i64,
    failed: i64,
    /// By the least duration of each bucket, in microseconds.
    histograms: Vec<BTreeMap<i64, i64>>,
}

impl Figures {
    /// Returns the figures of a reply that was requested at a time of the clock. The first ones have no rates.
    pub(super) fn read(&mut self, status: &Document, at: Duration) -> Value {
        let mut figures = Map::new();
        if let Ok(time) = status.get_datetime("localTime") {
            figures.insert("atMillis".to_owned(), time.timestamp_millis().into());
        }
        for (name, path) in LEVELS {
            if let Some((parent, field)) = parent(status, path).filter(|(parent, field)| parent.contains_key(field)) {
                figures.insert(name.to_owned(), integer(parent, field).into());
            }
        }
        if let Some((storage, _)) = parent(status, OLDEST) {
            figures.insert("oldestSnapshotCommits".to_owned(), snapshot_age(storage).into());
        }
        let counts = Counts::of(status);
        if let Some((before, last)) = &self.last {
            let seconds = at.saturating_sub(*before).as_secs_f64();
            let rate = |now: i64, before: i64| per_second(now.saturating_sub(before), seconds);
            for ((name, _), (now, before)) in RATES.iter().zip(counts.rates.iter().zip(&last.rates)) {
                figures.insert((*name).to_owned(), rate(*now, *before));
            }
            figures.insert("commands".to_owned(), rate(counts.commands, last.commands));
            figures.insert("failed".to_owned(), rate(counts.failed, last.failed));
            for ((name, _), (now, before)) in DURATIONS.iter().zip(counts.histograms.iter().zip(&last.histograms)) {
                figures.insert((*name).to_owned(), percentiles(now, before));
            }
        }
        self.last = Some((at, counts));
        Value::Object(figures)
    }
}

impl Counts {
    fn of(status: &Document) -> Self {
        let commands = status.get_document("metrics").and_then(|metrics| metrics.get_document("commands"));
        let of_commands = |field: &str| {
            let counts = commands.iter().flat_map(|commands| commands.values()).filter_map(Bson::as_document);
            counts.map(|counts| integer(counts, field)).sum()
        };
        Counts {
            rates: RATES.iter().map(|(_, path)| number(status, path)).collect(),
            commands: of_commands("total"),
            failed: of_commands("failed"),
            histograms: DURATIONS.iter().map(|(_, path)| histogram(status, path)).collect(),
        }
    }
}

/// Returns the number of commits after the oldest snapshot in use, whose older values are kept for it.
pub(in super::super) fn snapshot_age(storage: &Document) -> i64 {
    integer(storage, "newestCommit").saturating_sub(integer(storage, "oldestSnapshot")).max(0)
}

/// Returns the document that has the last field of a path, and the field.
fn parent<'a, 'b>(document: &'a Document, path: &'b str) -> Option<(&'a Document, &'b str)> {
    let (parents, field) = path.rsplit_once('.').unwrap_or(("", path));
    let mut parents = parents.split('.').filter(|name| !name.is_empty());
    Some((parents.try_fold(document, |document, name| document.get_document(name).ok())?, field))
}

fn number(document: &Document, path: &str) -> i64 {
    parent(document, path).map_or(0, |(parent, field)| integer(parent, field))
}

fn histogram(document: &Document, path: &str) -> BTreeMap<i64, i64> {
    let Some((parent, field)) = parent(document, path) else { return BTreeMap::new() };
    let buckets = parent.get_array(field).map(Vec::as_slice).unwrap_or_default();
    let buckets = buckets.iter().filter_map(Bson::as_document);
    buckets.map(|bucket| (integer(bucket, "micros"), integer(bucket, "count"))).collect()
}

#[expect(clippy::cast_precision_loss, reason = "a rate is shown with three digits")]
fn per_second(count: i64, seconds: f64) -> Value {
    if seconds > 0.0 { json!((count.max(0) as f64 / seconds * 10.0).round() / 10.0) } else { Value::Null }
}

/// Returns percentiles of the durations that were counted between two histograms, in milliseconds; null if there were none.
#[expect(clippy::cast_precision_loss, reason = "counts of a second")]
fn percentiles(now: &BTreeMap<i64, i64>, before: &BTreeMap<i64, i64>) -> Value {
    let grown = now.iter().map(|(least, count)| (*least, count - before.get(least).copied().unwrap_or(0)));
    let grown: Vec<(i64, i64)> = grown.filter(|(_, count)| *count > 0).collect();
    let all: i64 = grown.iter().map(|(_, count)| count).sum();
    if all == 0 {
        return Value::Null;
    }
    let percentile = |part: f64| {
        let mut left = (all as f64 * part).ceil().max(1.0);
        for (least, count) in &grown {
            if left <= *count as f64 {
                return json!((*least as f64 + width(*least) * left / *count as f64) / 1_000.0);
            }
            left -= *count as f64;
        }
        Value::Null
    };
    PERCENTILES.iter().map(|(name, part)| ((*name).to_owned(), percentile(*part))).collect::<Map<_, _>>().into()
}

/// Returns the width of the bucket that begins at a duration: a microsecond, or from 4 on a quarter of a power of two.
fn width(least: i64) -> f64 {
    match least.checked_ilog2() {
        Some(power) if power > 2 => f64::from(power - 2).exp2(),
        _ => 1.0,
    }
}
