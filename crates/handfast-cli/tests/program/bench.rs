//! `handfast bench`: that it measures what it says, not how fast it is.

use anyhow::{Context, Result};
use serde_json::Value;

use crate::support::{Scratch, assert_one_line, handfast};

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
