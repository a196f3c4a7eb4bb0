//! `handfast bench`: that it measures what it says, what it says of promises, and how it ends; not how fast anything is.

use anyhow::{Context, Result};
use serde_json::Value;

use crate::support::{Scratch, assert_one_line, handfast};

const SHORT: [&str; 7] = ["--json", "--rounds", "1", "--seconds", "0.05", "--documents", "50"];

/// The cases of a run, and its exit code.
fn run(scratch: &Scratch, arguments: &[&str]) -> Result<(Vec<Value>, Option<i32>)> {
    let output = handfast(scratch, &["bench"]).args(arguments).args(SHORT).output()?;
    let cases = serde_json::from_slice(&output.stdout).map_err(|error| anyhow::anyhow!("{error}: {output:?}"))?;
    Ok((cases, output.status.code()))
}

fn kept(cases: &[Value]) -> Vec<&Value> {
    cases.iter().map(|case| &case["kept"]).collect()
}

#[test]
fn the_server_is_measured_with_the_clients_that_the_promise_is_for() -> Result<()> {
    let scratch = Scratch::new("bench-serve")?;
    // How fast this machine is today decides which: it is marked, and nothing else.
    let (cases, code) = run(&scratch, &["serve"])?;
    assert_eq!(code, Some(0));
    assert!(cases[0]["note"].as_str().is_some_and(|note| note.starts_with("16 connections")), "{cases:?}");
    assert_eq!(cases[0]["promised"], 0.6);
    assert_eq!(cases[0]["kept"].as_bool(), cases[0]["ratio"].as_f64().map(|ratio| ratio >= 0.6), "{cases:?}");
    assert_eq!(cases[1]["kept"], Value::Null, "nothing is promised of an update");
    let (cases, code) = run(&scratch, &["serve", "--clients", "2", "--strict"])?;
    assert_eq!((kept(&cases), code), (vec![&Value::Null, &Value::Null], Some(0)), "{cases:?}");
    Ok(())
}

#[test]
fn a_missed_promise_is_a_failure_for_who_says_so() -> Result<()> {
    let scratch = Scratch::new("bench-strict")?;
    let arguments = ["store", "--strict", "--document-bytes", "100"];
    let (cases, code) = run(&scratch, &arguments)?;
    let any_missed = kept(&cases).contains(&&Value::Bool(false));
    assert_eq!(code, Some(if any_missed { 3 } else { 0 }), "{cases:?}");
    Ok(())
}

#[test]
fn transfers_are_measured_in_every_way() -> Result<()> {
    let scratch = Scratch::new("bench-transfers")?;
    let flags = ["--delay", "0s", "--clients", "1", "--documents", "100", "--seconds", "0.05", "--rounds", "1"];
    let output = handfast(&scratch, &["bench", "transfers", "--json"]).args(flags).output()?;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout)?;
    let cases = report.as_array().context("a list of cases")?;
    // One in round trips; three comparisons, between all accounts and between few.
    assert_eq!(cases.len(), 1 + 3 * 2, "{report}");
    for case in cases {
        assert!(case["rate"].as_f64() > Some(0.0) && case["baseline_rate"].as_f64() > Some(0.0), "{case}");
        let operations = case["note"].as_str().and_then(|note| note.strip_suffix(" store operations")?.parse().ok());
        assert!(operations > Some(0.9), "{case}");
    }
    Ok(())
}

#[test]
fn a_bench_of_hot_accounts_alone_is_refused() -> Result<()> {
    let scratch = Scratch::new("bench-refused")?;
    let output = handfast(&scratch, &["bench", "transfers", "--documents", "10"]).output()?;
    assert_one_line(&output, 1, "--documents must be above 10");
    Ok(())
}
