//! The bank with the server's own transactions, as drivers use them.

use anyhow::{Context, Result};
use bson::doc;
use serde_json::Value;

use super::{check_history, interfered};
use crate::support::{Scratch, Serve, assert_one_line, handfast};

/// Starts a server, runs the bank on it with these flags, and returns the report.
fn bank(name: &str, flags: &[&str]) -> Result<Value> {
    let scratch = Scratch::new(name)?;
    let serve = Serve::start(&mut handfast(&scratch, &["serve", "--listen", "127.0.0.1:0"]))?;
    let uri = format!("mongodb://{}/", serve.address()?);
    let arguments = ["bank", "--json", "--history", "run.jsonl", "--mechanism", "server-side", "--uri", &uri];
    let output =
        handfast(&scratch, &[&arguments[..], &["--accounts", "10", "--workers", "4"], flags].concat()).output()?;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!((&report["mechanism"], &report["holds"]), (&"server-side".into(), &true.into()), "{report}");
    assert_eq!((&report["money_in"], &report["money_out"]), (&1000.into(), &1000.into()), "{report}");
    assert_eq!((&report["locks_left"], &report["unknown"]), (&0.into(), &0.into()), "{report}");
    assert!(report["latency_micros"]["p50"].as_u64() > Some(0), "{report}");
    // Each session that has written has a record, and each worker has one session open at a time.
    assert!(report["records_left"].as_u64() > Some(0), "{report}");
    check_history(&scratch, 150)?;
    let status = serve.command(doc! { "serverStatus": 1, "$db": "admin" })?;
    assert_eq!(status.get_document("transactions")?.get_i64("currentOpen")?, 0, "{status}");
    Ok(report)
}

fn count(report: &Value, name: &str) -> Result<u64> {
    report[name].as_u64().with_context(|| format!("{name} in {report}"))
}

#[test]
fn the_server_keeps_all_the_money() -> Result<()> {
    let report = bank("bank-server", &["--transfers", "200"])?;
    assert_eq!((count(&report, "transfers")?, count(&report, "answers_lost")?), (200, 0), "{report}");
    assert!(count(&report, "old_version_reads")? > 0, "{report}");
    Ok(())
}

/// After each lost answer the commit is sent once more, and no transfer is made twice.
#[test]
fn commits_are_sent_again() -> Result<()> {
    let report = bank("bank-server-lost", &["--transfers", "200", "--lost-replies", "30"])?;
    let (lost, found_committed) = (count(&report, "answers_lost")?, count(&report, "found_committed")?);
    assert!(found_committed > 20 && lost >= found_committed, "{report}");
    Ok(())
}

/// The sessions of killed workers are ended, because their open transactions would lock accounts for a minute.
#[test]
fn sessions_of_the_dead_are_ended() -> Result<()> {
    let report = bank("bank-server-crash", &["--transfers", "150", "--crash", "3", "--lost-replies", "10"])?;
    assert_eq!(count(&report, "kills")?, 3, "{report}");
    // The lifetime of a transaction is a minute.
    assert!(report["seconds"].as_f64() < Some(50.0), "{report}");
    Ok(())
}

#[test]
fn money_that_is_made_is_noticed() -> Result<()> {
    let given = doc! { "$inc": { "balance": 1_i64 } };
    let output = interfered("bank-server-made", &["--json", "--mechanism", "server-side"], &given)?;
    let report: Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!(output.status.code(), Some(3), "{report}");
    assert!(report["money_out"].as_i64() > Some(1000), "{report}");
    Ok(())
}

#[test]
fn what_it_cannot_do_is_refused() -> Result<()> {
    let scratch = Scratch::new("bank-server-refused")?;
    let bank = |flags: &[&str]| {
        handfast(&scratch, &[&["bank", "--mechanism", "server-side"], flags].concat()).output().context("the program")
    };
    assert_one_line(&bank(&[])?, 2, "--mechanism server-side needs --store with a server that has transactions");
    let serializable = ["--store", "mongodb://127.0.0.1:1", "--isolation", "serializable"];
    assert_one_line(&bank(&serializable)?, 2, "--mechanism server-side has only --isolation snapshot");
    let sole = ["--store", "mongodb://127.0.0.1:1", "--sole-writer"];
    assert_one_line(
        &bank(&sole)?,
        2,
        "--sole-writer does not apply to --mechanism server-side: it is for --mechanism transaction",
    );
    Ok(())
}
