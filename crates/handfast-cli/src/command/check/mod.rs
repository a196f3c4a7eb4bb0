//! `handfast check`: verifies that a data directory is intact, or reports the damage.

pub(super) mod arguments;
mod history;

use std::collections::BTreeSet;

use handfast_embedded::{CheckReport, Finding, Remedy, Repair};
use handfast_store::Sources;
use serde_json::{Value, json};

use self::arguments::CheckArguments;
use crate::configuration::Settings;
use crate::console::Console;
use crate::exit::Exit;
use crate::listing::counted;
use crate::store::Directory;

pub(super) use self::history::run as history;

pub(super) async fn run(settings: &Settings, arguments: &CheckArguments, console: Console) -> anyhow::Result<Exit> {
    let directory = Directory::of(settings);
    directory.ensure_exists()?;
    let repair = if arguments.repair { Repair::Yes } else { Repair::No };
    let bar = console.progress("check", "records", 1);
    let shown = bar.clone();
    let progress = move |now: &handfast_embedded::Progress| {
        shown.set_length(now.records_expected.max(now.records));
        shown.set_position(now.records);
        shown.set_message(now.stage.clone());
    };
    let report =
        handfast_embedded::check(&directory.path, Sources::system()?, directory.options, repair, progress).await?;
    bar.finish_and_clear();
    console.report(|| text(&report, repair), &json(&report, repair))?;
    // Also if all was repaired, because there was damage. A second check shows what is left.
    Ok(if report.is_clean() { Exit::Good } else { Exit::GuaranteeBroken })
}

fn text(report: &CheckReport, repair: Repair) -> String {
    let CheckReport { collections, documents, entries, .. } = report;
    let looked_at = format!(
        "{} and {} of {}",
        counted(*documents, "documents"),
        counted(*entries, "index entries"),
        counted(*collections, "collections")
    );
    if report.is_clean() {
        return format!("clean: {looked_at}");
    }
    let mut lines: Vec<String> = report.findings.iter().map(|finding| format!("found: {}", finding.text)).collect();
    if report.findings_beyond > 0 {
        lines.push(format!("found: {} more", report.findings_beyond));
    }
    lines.extend(report.repaired.iter().map(|repaired| format!("repaired: {repaired}")));
    let advice: BTreeSet<&str> = report.findings.iter().filter_map(|finding| advice(&finding.remedy, repair)).collect();
    lines.extend(advice.iter().map(|advice| format!("to do: {advice}")));
    lines.push(format!("not clean: {looked_at}"));
    lines.join("\n")
}

/// Returns the name of a remedy in JSON.
fn name(remedy: &Remedy) -> &'static str {
    match remedy {
        Remedy::None => "none",
        Remedy::WriteFormat => "write-format",
        Remedy::MendJournal => "mend-journal",
        Remedy::ResetWitness => "reset-witness",
        Remedy::WriteWitness => "write-witness",
        Remedy::BuildIndex(..) => "build-index",
        Remedy::Count(_) => "count",
    }
}

/// Returns what can be done about a finding, unless it was done.
fn advice(remedy: &Remedy, repair: Repair) -> Option<&'static str> {
    let by_repair = match remedy {
        Remedy::None => {
            return Some(
                "restore a backup, or write the readable documents of damaged collections with `dump --skip-damaged`",
            );
        }
        Remedy::WriteFormat => "--repair writes FORMAT again",
        Remedy::MendJournal => {
            "--repair cuts the journal where it cannot be read, and keeps a copy; a backup may have more"
        }
        Remedy::ResetWitness => "--repair accepts that batches are missing; a backup may have them",
        Remedy::WriteWitness => {
            "--repair accepts the present data, and writes the witness again; compare the data with a backup"
        }
        Remedy::BuildIndex(..) => "--repair builds indexes again",
        Remedy::Count(_) => "--repair counts documents again",
    };
    (repair == Repair::No).then_some(by_repair)
}

/// Returns a finding for programs.
fn finding(Finding { text, remedy }: &Finding, repair: Repair) -> Value {
    let (namespace, index) = match remedy {
        Remedy::BuildIndex(namespace, index) => (Some(namespace.to_string()), Some(index)),
        Remedy::Count(namespace) => (Some(namespace.to_string()), None),
        _ => (None, None),
    };
    let to_do = advice(remedy, repair);
    json!({ "text": text, "remedy": name(remedy), "namespace": namespace, "index": index, "to_do": to_do })
}

fn json(report: &CheckReport, repair: Repair) -> Value {
    let findings: Vec<Value> = report.findings.iter().map(|found| finding(found, repair)).collect();
    json!({
        "clean": report.is_clean(),
        "collections": report.collections,
        "documents": report.documents,
        "entries": report.entries,
        "findings": findings,
        "findings_beyond": report.findings_beyond,
        "repaired": report.repaired,
    })
}

#[cfg(test)]
mod tests;
