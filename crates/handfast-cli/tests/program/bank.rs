//! `handfast bank`: no money is lost, also while processes are killed and answers are lost.

mod server_side;
mod steps;

use std::process::{Output, Stdio};

use anyhow::{Context, Result};
use bson::{Document, doc};
use serde_json::Value;

use crate::support::{Scratch, Serve, assert_one_line, finish, handfast, until};

/// The maximal number of runs until an event occurs that a single run may miss.
const RUNS_MAX: usize = 20;

fn bank(name: &str, arguments: &[&str]) -> Result<Value> {
    let scratch = Scratch::new(name)?;
    let output = handfast(&scratch, &[&["bank", "--json", "--history", "run.jsonl"], arguments].concat()).output()?;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!(report["money_in"], report["money_out"], "{report}");
    assert_eq!((&report["history_clean"], &report["records_left"]), (&true.into(), &0.into()), "{report}");
    check_history(&scratch, 300)?;
    // The scratch directory is removed.
    assert_eq!(std::fs::read_dir(scratch.path("."))?.flatten().filter(|entry| entry.path().is_dir()).count(), 0);
    Ok(report)
}

/// Checks that the recorded history is not empty, and that its check succeeds, too.
fn check_history(scratch: &Scratch, committed_min: u64) -> Result<()> {
    let output = handfast(scratch, &["check", "history", "run.jsonl", "--json"]).output()?;
    let verdict: Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!(output.status.code(), Some(0), "{verdict}");
    assert!(verdict["committed"].as_u64().context("committed")? >= committed_min, "{verdict}");
    Ok(())
}

#[test]
fn all_the_money_is_there() -> Result<()> {
    // A run without reads of old versions or without conflicts shows nothing. Conflicts are likely in one run and certain in
    // none, as they depend on the machine.
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
fn a_history_is_not_written_over() -> Result<()> {
    let scratch = Scratch::new("bank-history")?;
    std::fs::write(scratch.path("run.jsonl"), "mine")?;
    let output = handfast(&scratch, &["bank", "--transfers", "1", "--history", "run.jsonl"]).output()?;
    assert_one_line(&output, 2, "--history: run.jsonl is not empty: name another file");
    assert_eq!(std::fs::read_to_string(scratch.path("run.jsonl"))?, "mine");
    Ok(())
}

#[test]
fn all_the_money_is_there_after_kills() -> Result<()> {
    let report = bank("bank-crash", &["--transfers", "300", "--crash", "4", "--isolation", "serializable"])?;
    assert_eq!(report["kills"], 4);
    assert!(report["transfers"].as_u64() >= Some(300), "{report}");
    Ok(())
}

/// Returns the number of lost answers, of commits that were found to be committed after one, and of those whose outcome a
/// worker asked for.
fn lost_answer_counts(report: &Value) -> Result<[u64; 3]> {
    let number = |name: &str| report[name].as_u64().with_context(|| format!("{name} in {report}"));
    assert_eq!(number("unknown")?, 0, "{report}");
    let asked = number("asked_committed")? + number("asked_rolled_back")?;
    Ok([number("answers_lost")?, number("found_committed")?, asked])
}

#[test]
fn lost_answers_are_asked_for() -> Result<()> {
    let report = bank("bank-lost", &["--transfers", "300", "--lost-replies", "20"])?;
    let [lost, found_committed, asked] = lost_answer_counts(&report)?;
    assert!(found_committed > 10 && asked > 0, "{report}");
    // A commit is in doubt after one lost answer; a worker has to ask after two.
    assert!(lost >= found_committed + 2 * asked, "{report}");
    assert_eq!(report["asked_rolled_back"], 0, "a commit whose answer was lost is done: {report}");
    Ok(())
}

#[test]
fn lost_answers_are_asked_for_between_kills() -> Result<()> {
    let flags = ["--transfers", "300", "--crash", "3", "--lost-replies", "20"];
    let report = bank("bank-crash-lost", &flags)?;
    assert_eq!(report["kills"], 3);
    let [lost, found_committed, asked] = lost_answer_counts(&report)?;
    assert!(found_committed > 10 && asked > 0 && lost >= found_committed + 2 * asked, "{report}");
    Ok(())
}

/// Runs the bank on a server, while a client without transactions changes its accounts all the time.
fn interfered(name: &str, flags: &[&str], change: &Document) -> Result<Output> {
    let scratch = Scratch::new(name)?;
    let serve = Serve::start(&mut handfast(&scratch, &["serve", "--listen", "127.0.0.1:0"]))?;
    let store = format!("mongodb://{}/", serve.address()?);
    let arguments = ["bank", "--store", &store, "--accounts", "10", "--transfers", "100"];
    let mut bank = handfast(&scratch, &[&arguments, flags].concat());
    let mut bank = bank.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut changed = 0;
    until("the end of the bank", || {
        // The update matches no account until the bank has created them.
        let update = doc! { "q": {}, "u": change.clone(), "multi": true };
        let reply = serve.command(doc! { "update": "accounts", "updates": [update], "$db": "handfast_bank" })?;
        changed += reply.get_i32("nModified")?;
        Ok(bank.try_wait()?.is_some())
    })?;
    assert!(changed > 0, "nobody interfered");
    finish(bank)
}

#[test]
fn money_that_is_made_is_noticed() -> Result<()> {
    let given = doc! { "$inc": { "balance": 1_i64 } };
    let output = interfered("bank-made", &[], &given)?;
    let text = String::from_utf8(output.stdout)?;
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("money in 1000, money out ") && text.contains("THE MONEY IS WRONG"), "{text}");
    assert!(text.contains("the history breaks snapshot isolation"), "{text}");
    Ok(())
}

#[test]
fn money_that_is_lost_is_noticed_in_json() -> Result<()> {
    let taken = doc! { "$inc": { "balance": -1_i64 } };
    let output = interfered("bank-lost-money", &["--json"], &taken)?;
    let report: Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!(output.status.code(), Some(3), "{report}");
    assert_eq!((&report["holds"], &report["history_clean"]), (&false.into(), &false.into()), "{report}");
    assert_eq!(report["money_in"], 1000, "{report}");
    assert!(report["money_out"].as_i64() < Some(1000), "{report}");
    let anomalies = report["anomalies"].as_array().context("anomalies")?;
    assert!(anomalies.iter().any(|it| it.as_str().is_some_and(|it| it.starts_with("wrong-total"))), "{report}");
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
