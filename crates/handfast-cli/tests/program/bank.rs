//! `handfast bank`: the guarantee, shown, also while things go wrong.

use anyhow::{Context, Result};
use serde_json::Value;

use crate::support::{Scratch, assert_one_line, handfast};

/// Runs until something has happened that one run may miss.
const RUNS_MAX: usize = 20;

fn bank(name: &str, arguments: &[&str]) -> Result<Value> {
    let scratch = Scratch::new(name)?;
    let output = handfast(&scratch, &[&["bank", "--json", "--history", "run.jsonl"], arguments].concat()).output()?;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!(report["money_in"], report["money_out"], "{report}");
    assert_eq!((&report["history_clean"], &report["records_left"]), (&true.into(), &0.into()), "{report}");
    // The recorded history says so too, and it is not an empty one.
    let output = handfast(&scratch, &["check", "history", "run.jsonl", "--json"]).output()?;
    let verdict: Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!(output.status.code(), Some(0), "{verdict}");
    assert!(verdict["committed"].as_u64().context("committed")? >= 300, "{verdict}");
    // The scratch directory is gone.
    assert_eq!(std::fs::read_dir(scratch.path("."))?.flatten().filter(|entry| entry.path().is_dir()).count(), 0);
    Ok(report)
}

#[test]
fn all_the_money_is_there() -> Result<()> {
    // Without reads of old versions a run has shown nothing, nor without conflicts: those are likely in one run, and certain
    // in none, as that is up to the machine.
    for _ in 0..RUNS_MAX {
        let report = bank("bank", &["--transfers", "300", "--accounts", "10"])?;
        assert_eq!(report["transfers"], 300);
        assert!(report["old_version_reads"].as_u64() > Some(0), "{report}");
        if report["conflicts"].as_u64() > Some(0) {
            return Ok(());
        }
    }
    anyhow::bail!("no conflict in {RUNS_MAX} runs")
}

#[test]
fn all_the_money_is_there_after_kills() -> Result<()> {
    let report = bank("bank-crash", &["--transfers", "300", "--crash", "4", "--isolation", "serializable"])?;
    assert_eq!(report["kills"], 4);
    assert!(report["transfers"].as_u64() >= Some(300), "{report}");
    Ok(())
}

/// How many lost answers there were, how many commits after them the library settled, and how many a worker asked for.
fn doubts(report: &Value) -> Result<[u64; 3]> {
    let number = |name: &str| report[name].as_u64().with_context(|| format!("{name} in {report}"));
    assert_eq!(number("unknown")?, 0, "{report}");
    let asked = number("asked_committed")? + number("asked_rolled_back")?;
    Ok([number("answers_lost")?, number("settled_by_library")?, asked])
}

#[test]
fn lost_answers_are_asked_for() -> Result<()> {
    let report = bank("bank-lost", &["--transfers", "300", "--lost-replies", "20"])?;
    let [lost, settled, asked] = doubts(&report)?;
    assert!(settled > 10 && asked > 0, "{report}");
    // A commit is in doubt after one lost answer; a worker has to ask after two.
    assert!(lost >= settled + 2 * asked, "{report}");
    assert_eq!(report["asked_rolled_back"], 0, "a commit whose answer was lost is done: {report}");
    Ok(())
}

#[test]
fn lost_answers_are_asked_for_between_kills() -> Result<()> {
    let flags = ["--transfers", "300", "--crash", "3", "--lost-replies", "20"];
    let report = bank("bank-crash-lost", &flags)?;
    assert_eq!(report["kills"], 3);
    let [lost, settled, asked] = doubts(&report)?;
    assert!(settled > 10 && asked > 0 && lost >= settled + 2 * asked, "{report}");
    Ok(())
}

#[test]
fn a_bank_of_one_account_is_refused() -> Result<()> {
    let scratch = Scratch::new("bank-refused")?;
    let output = handfast(&scratch, &["bank", "--accounts", "1"]).output()?;
    assert_one_line(&output, 2, "--accounts must be at least 2");
    let output = handfast(&scratch, &["bank", "--lost-replies", "90"]).output()?;
    assert_one_line(&output, 2, "--lost-replies is a percentage between 0 and 50");
    Ok(())
}
