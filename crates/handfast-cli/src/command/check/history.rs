//! `handfast check history`: checks the isolation that the recorded transactions of clients show.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, ensure};
use handfast_history::{Anomaly, Expectation, Isolation, Name, Order, Verdict};
use serde_json::{Value, json};

use super::arguments::{HistoryArguments, HistoryIsolation, HistoryOrder};
use crate::console::Console;
use crate::exit::Exit;

pub(in crate::command) async fn run(arguments: HistoryArguments) -> anyhow::Result<Exit> {
    let console = Console::new(arguments.output);
    // On a thread of its own, so that a signal stops the command in the middle of a search.
    let path = arguments.file.clone();
    let verdict = tokio::task::spawn_blocking(move || judge(&arguments, console)).await??;
    // Every promise holds for an empty history: most likely the file is a wrong one.
    ensure!(verdict.report.counts.transactions > 0, "{} holds no transaction", path.display());
    console.report(|| text(&verdict), &json(&verdict))?;
    let is_sound = verdict.is_clean() && verdict.disagreement().is_none();
    Ok(if is_sound { Exit::Good } else { Exit::GuaranteeBroken })
}

fn judge(arguments: &HistoryArguments, console: Console) -> anyhow::Result<Verdict> {
    let path = &arguments.file;
    let cannot = || format!("cannot judge {}", path.display());
    if path == Path::new("-") {
        let bar = console.progress("judge", "bytes", 0);
        return read(BufReader::new(bar.wrap_read(std::io::stdin())), arguments).with_context(cannot);
    }
    let file = File::open(path).with_context(cannot)?;
    let bar = console.progress("judge", "bytes", file.metadata().with_context(cannot)?.len());
    let verdict = read(BufReader::new(bar.wrap_read(file)), arguments).with_context(cannot);
    bar.finish_and_clear();
    verdict
}

fn read(input: impl BufRead, arguments: &HistoryArguments) -> handfast_history::Result<Verdict> {
    let isolation = arguments.isolation.map(|isolation| match isolation {
        HistoryIsolation::Snapshot => Isolation::Snapshot,
        HistoryIsolation::Serializable => Isolation::Serializable,
    });
    let order = arguments.order.map(|order| match order {
        HistoryOrder::None => Order::None,
        HistoryOrder::Session => Order::Session,
        HistoryOrder::RealTime => Order::RealTime,
    });
    handfast_history::judge(input, isolation, order)
}

fn text(verdict: &Verdict) -> String {
    let Verdict { expectation, report, adya } = verdict;
    let counts = &report.counts;
    let mut lines: Vec<String> = report.anomalies.iter().map(Anomaly::to_string).collect();
    lines.extend(report.unlisted.iter().map(|(kind, count)| format!("{kind}: {count} more")));
    if report.is_clean() || verdict.disagreement().is_some() {
        // The findings of the other judge that this one has not reported.
        lines.extend(adya.explanations.iter().zip(&adya.anomalies).map(|(why, name)| format!("{name} (adya): {why}")));
    }
    lines.extend(verdict.disagreement());
    if counts.unconfirmed > 0 {
        lines.push(format!("{} acknowledged appends have no read after them that could show them", counts.unconfirmed));
    }
    if counts.dependencies_left_out > 0 {
        lines.push(format!(
            "{} dependencies were left out: an anomaly may have been missed",
            counts.dependencies_left_out
        ));
    }
    let result = if verdict.is_clean() { "clean" } else { "not clean" };
    lines.push(format!(
        "{result}: {} committed, {} failed, {} given up, {} unknown and seen, {} unknown and not seen; {} reads, {} of them of old \
         versions; held against {}",
        counts.committed,
        counts.failed,
        counts.given_up,
        counts.unknown_seen,
        counts.unknown_unseen,
        counts.reads,
        counts.old_version_reads,
        title(*expectation),
    ));
    lines.join("\n")
}

fn title(expectation: Expectation) -> String {
    let isolation = match expectation.isolation {
        Isolation::Snapshot => "snapshot isolation",
        Isolation::Serializable => "serializability",
    };
    let order = match expectation.order {
        Order::None => "without an order",
        Order::Session => "in each session's order",
        Order::RealTime => "in real time",
    };
    format!("{isolation} {order}")
}

fn json(verdict: &Verdict) -> Value {
    let Verdict { expectation, report, adya } = verdict;
    let counts = &report.counts;
    let anomaly = |anomaly: &Anomaly| {
        json!({
            "kind": anomaly.kind.name(),
            "transactions": anomaly.transactions,
            "keys": anomaly.keys.iter().map(Name::to_string).collect::<Vec<_>>(),
            "explanation": anomaly.explanation,
        })
    };
    json!({
        "clean": verdict.is_clean(),
        "isolation": expectation.isolation,
        "order": expectation.order,
        "anomalies": report.anomalies.iter().map(anomaly).collect::<Vec<_>>(),
        "anomalies_beyond": report.unlisted,
        "adya": adya.anomalies,
        "disagreement": verdict.disagreement(),
        "transactions": counts.transactions,
        "committed": counts.committed,
        "failed": counts.failed,
        "given_up": counts.given_up,
        "unknown_seen": counts.unknown_seen,
        "unknown_unseen": counts.unknown_unseen,
        "keys": counts.keys,
        "reads": counts.reads,
        "writes": counts.writes,
        "old_version_reads": counts.old_version_reads,
        "unconfirmed": counts.unconfirmed,
        "dependencies": counts.dependencies,
        "dependencies_left_out": counts.dependencies_left_out,
    })
}
