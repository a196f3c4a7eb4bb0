//! The log of changes of a server is as large and as old as its settings say, without anybody asking.

use anyhow::{Context as _, Result, ensure};
use bson::{Document, doc};

use crate::support::{FREE_PORT, Scratch, Serve, handfast, until};

fn run(serve: &Serve, mut command: Document) -> Result<Document> {
    command.insert("$db", "db");
    serve.command(command)
}

fn watch(serve: &Serve, stage: Document) -> Result<Document> {
    let pipeline = vec![doc! { "$changeStream": stage }];
    run(serve, doc! { "aggregate": "c", "pipeline": pipeline, "cursor": {} })
}

#[test]
fn old_changes_are_gone_from_a_server_that_is_left_alone() -> Result<()> {
    let scratch = Scratch::new("log-retention")?;
    let flags = ["--change-log-bytes", "1MiB"];
    let serve = Serve::start(&mut handfast(&scratch, &[&FREE_PORT[..], &flags].concat()))?;
    let opened = watch(&serve, doc! {})?;
    let token = opened.get_document("cursor")?.get_document("postBatchResumeToken").context("a token")?.clone();
    for id in 0..30 {
        let inserted = run(&serve, doc! { "insert": "c", "documents": [{ "_id": id, "p": "x".repeat(200_000) }] })?;
        ensure!(inserted.get_i32("n").ok() == Some(1), "{inserted}");
    }
    // Nothing is written meanwhile.
    until("the first changes are removed", || {
        let resumed = watch(&serve, doc! { "resumeAfter": token.clone() })?;
        Ok(resumed.get_i32("code").ok() == Some(286))
    })
}

#[test]
fn a_server_that_is_to_log_all_changes_does_so_from_its_start() -> Result<()> {
    let scratch = Scratch::new("log-from-start")?;
    let serve = Serve::start(&mut handfast(&scratch, &[&FREE_PORT[..], &["--change-streams", "on"]].concat()))?;
    let inserted = run(&serve, doc! { "insert": "c", "documents": [{ "_id": 1 }] })?;
    let time = inserted.get_timestamp("operationTime")?;
    run(&serve, doc! { "insert": "c", "documents": [{ "_id": 2 }] })?;
    let opened = watch(&serve, doc! { "startAtOperationTime": time })?;
    let events = opened.get_document("cursor")?.get_array("firstBatch")?;
    ensure!(events.len() == 2, "{opened}");
    Ok(())
}
