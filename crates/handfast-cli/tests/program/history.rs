//! `handfast check history`: its exit codes and messages.

use anyhow::Result;
use serde_json::json;

use crate::support::{Scratch, assert_one_line, handfast};

/// Two transactions that read both keys and wrote one each: allowed under snapshot isolation, not serializable.
const WRITE_SKEW: &str = r#"{"type":"invoke","process":0,"value":[]}
{"type":"invoke","process":1,"value":[]}
{"type":"ok","process":0,"value":[["r","x",[]],["r","y",[]],["append","x",1]]}
{"type":"ok","process":1,"value":[["r","x",[]],["r","y",[]],["append","y",1]]}
{"type":"invoke","process":0,"value":[]}
{"type":"ok","process":0,"value":[["r","x",[1]],["r","y",[1]]]}
"#;

#[test]
fn a_history_is_judged_by_what_was_promised() -> Result<()> {
    let scratch = Scratch::new("history")?;
    std::fs::write(scratch.path("skew.jsonl"), WRITE_SKEW)?;
    let output = handfast(&scratch, &["check", "history", "skew.jsonl"]).output()?;
    let text = String::from_utf8(output.stdout)?;
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.starts_with("clean: 3 committed, 0 failed"), "{text}");

    let output = handfast(&scratch, &["check", "history", "skew.jsonl", "--isolation", "serializable"]).output()?;
    let text = String::from_utf8(output.stdout)?;
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.starts_with("G2: 2 transactions cannot be put in an order\n  T"), "{text}");
    assert!(text.contains("read key x as it was before T0 wrote it"), "{text}");
    Ok(())
}

#[test]
fn a_report_as_json_names_transactions_and_keys() -> Result<()> {
    let scratch = Scratch::new("history-json")?;
    std::fs::write(scratch.path("skew.jsonl"), WRITE_SKEW)?;
    let arguments = ["check", "history", "skew.jsonl", "--isolation", "serializable", "--json"];
    let output = handfast(&scratch, &arguments).output()?;
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!(report["clean"], false);
    assert_eq!(report["anomalies"][0]["kind"], "G2");
    assert_eq!(report["anomalies"][0]["transactions"], json!([0, 1]));
    assert_eq!(report["anomalies"][0]["keys"], json!(["x", "y"]));
    assert_eq!(report["adya"], json!(["G2-item"]));
    assert_eq!(report["disagreement"], json!(null));
    Ok(())
}

#[test]
fn what_is_no_history_is_an_error_with_its_line() -> Result<()> {
    let scratch = Scratch::new("history-error")?;
    std::fs::write(scratch.path("broken.jsonl"), format!("{WRITE_SKEW}oops\n"))?;
    let output = handfast(&scratch, &["check", "history", "broken.jsonl"]).output()?;
    assert_one_line(&output, 1, "line 7 of the history");
    std::fs::write(scratch.path("empty.jsonl"), "")?;
    let output = handfast(&scratch, &["check", "history", "empty.jsonl"]).output()?;
    assert_one_line(&output, 1, "empty.jsonl holds no transaction");
    let output = handfast(&scratch, &["check", "history", "nowhere.jsonl"]).output()?;
    assert_one_line(&output, 1, "cannot judge nowhere.jsonl");
    let output = handfast(&scratch, &["check", "--repair", "history", "broken.jsonl"]).output()?;
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    Ok(())
}
