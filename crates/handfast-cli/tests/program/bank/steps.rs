//! The bank without transactions: several processes are killed while they work, and answers get lost.

use anyhow::Result;
use serde_json::Value;

use crate::support::{Scratch, assert_one_line, handfast};

const FAULTS: [&str; 6] = ["--transfers", "300", "--crash", "4", "--lost-replies", "10"];

fn bank(name: &str, mechanism: &str, code: i32) -> Result<Value> {
    let scratch = Scratch::new(name)?;
    let arguments = ["bank", "--json", "--accounts", "12", "--mechanism", mechanism];
    let output = handfast(&scratch, &[&arguments[..], &FAULTS].concat()).output()?;
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!((&report["workers"], &report["processes"]), (&8.into(), &3.into()), "{report}");
    // The scratch directory is removed.
    assert_eq!(std::fs::read_dir(scratch.path("."))?.flatten().filter(|entry| entry.path().is_dir()).count(), 0);
    Ok(report)
}

fn assert_holds(report: &Value) {
    assert_eq!((&report["holds"], &report["money_in"]), (&true.into(), &report["money_out"]), "{report}");
    assert_eq!(report["kills"], 4, "{report}");
    assert!(report["answers_lost"].as_u64() > Some(10), "{report}");
    // The sum is checked after every kill; the last kill may come after the last transfer.
    assert!(report["moments"].as_u64() >= report["kills"].as_u64(), "{report}");
    assert!(report["transfers"].as_u64() >= report["acknowledged"].as_u64(), "{report}");
    let latency = &report["latency_micros"];
    assert!(latency["p50"].as_u64() > Some(0) && latency["p99"].as_u64() >= latency["p50"].as_u64(), "{report}");
    assert!(report["acknowledged"].as_u64() >= Some(300) && report["refused"].as_u64() > Some(0), "{report}");
}

#[test]
fn two_phase_commit_keeps_the_money_together() -> Result<()> {
    assert_holds(&bank("bank-two-phase", "two-phase", 0)?);
    Ok(())
}

#[test]
fn a_ledger_keeps_the_money_together() -> Result<()> {
    assert_holds(&bank("bank-ledger", "ledger", 0)?);
    Ok(())
}

#[test]
fn without_either_money_is_lost_and_that_is_seen() -> Result<()> {
    let report = bank("bank-unprotected", "unprotected", 3)?;
    assert_eq!(report["holds"], false, "{report}");
    let wrong = report["wrong"].as_str().unwrap_or_default();
    assert!(wrong.contains("the accounts hold") || wrong.contains("finding"), "{report}");
    Ok(())
}

#[test]
fn what_has_no_meaning_without_transactions_is_refused() -> Result<()> {
    let scratch = Scratch::new("bank-steps-refused")?;
    for flag in ["--isolation=serializable", "--history=run.jsonl", "--sole-writer"] {
        let output = handfast(&scratch, &["bank", "--mechanism", "ledger", "--store", "mongodb://a", flag]).output()?;
        assert_one_line(&output, 2, "does not apply to --mechanism ledger");
    }
    let output = handfast(&scratch, &["bank", "--processes", "2"]).output()?;
    assert_one_line(&output, 2, "--processes: only one process can open a data directory");
    Ok(())
}
