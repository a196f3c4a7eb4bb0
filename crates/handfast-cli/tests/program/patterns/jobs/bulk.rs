//! Commands on many jobs: their selection, the counts in the report, and the exit code.

use anyhow::{Context as _, Result};
use bson::oid::ObjectId;
use serde_json::{Value, json};

use super::super::{Ground, Store, namespace, output, report, text};
use super::filled;
use crate::patterns::json;
use crate::support::assert_one_line;

/// Returns the counts of done, skipped and failed jobs of the last line, and the exit code.
fn counted(ground: &Ground, arguments: &[&str]) -> Result<([u64; 3], Option<i32>)> {
    let (lines, code) = json(ground, arguments)?;
    let last = lines.last().context("a last line")?;
    let count = |name: &str| last["summary"][name].as_u64().with_context(|| format!("{arguments:?}: {last}"));
    Ok(([count("done")?, count("skipped")?, count("failed")?], code))
}

/// Inserts a document into the collection of the jobs.
async fn put(ground: &Ground, document: bson::Document) -> Result<()> {
    let store = Store::open(ground).await?;
    let raw = bson::RawDocumentBuf::try_from(&document)?;
    handfast_store::StoreExt::insert_one(&*store.shared, &namespace("jobs")?, raw).await?;
    store.close().await
}

#[tokio::test]
async fn a_canceled_job_is_not_revived_with_those_that_failed() -> Result<()> {
    Ground::each("jobs-canceled", async |ground| {
        let ids = filled(&ground).await?;
        assert_eq!(counted(&ground, &["jobs", "cancel", &ids[4].to_hex()])?, ([1, 0, 0], Some(0)));
        let status = report(&ground, &["jobs", "status"])?;
        assert_eq!((&status["canceled"], &status["failed"], &status["done"]), (&json!(1), &json!(2), &json!(1)));
        assert_eq!(counted(&ground, &["jobs", "retry", "--all"])?, ([2, 0, 0], Some(0)));
        let (listed, _) = json(&ground, &["jobs", "list", "--state", "canceled"])?;
        assert_eq!((listed.len(), &listed[0]["state"]), (1, &json!("CANCELED")));
        let (lines, code) = json(&ground, &["jobs", "retry", &ids[4].to_hex()])?;
        assert_eq!((lines[0]["outcome"].as_str(), code), (Some("was canceled"), Some(1)));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_limit_counts_jobs_of_the_type_that_was_asked_for() -> Result<()> {
    Ground::each("jobs-limit", async |ground| {
        let ids = filled(&ground).await?;
        let (lines, _) = json(&ground, &["jobs", "retry", "--all", "--type", "print", "--limit", "1"])?;
        assert_eq!(
            lines[0]["id"],
            json!({ "$oid": ids[1].to_hex() }),
            "the first one that failed is a mail: {lines:?}"
        );
        let (lines, _) = json(&ground, &["jobs", "discard", "--all", "--type", "mail", "--limit", "1"])?;
        assert_eq!(lines[0]["id"], json!({ "$oid": ids[0].to_hex() }));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn states_that_nobody_knows_are_no_jobs_that_are_done() -> Result<()> {
    Ground::each("jobs-states", async |ground| {
        filled(&ground).await?;
        put(&ground, bson::doc! { "_id": 1, "state": "ARCHIVED" }).await?;
        put(&ground, bson::doc! { "_id": 2, "state": "ARCHIVED" }).await?;
        put(&ground, bson::doc! { "_id": 3, "state": 7 }).await?;
        put(&ground, bson::doc! { "_id": 4 }).await?;
        let status = report(&ground, &["jobs", "status"])?;
        assert_eq!(status["done"], 1, "{status}");
        let unknown =
            json!([{ "state": "ARCHIVED", "count": 2 }, { "state": null, "count": 1 }, { "state": 7, "count": 1 }]);
        assert_eq!(status["unknown"], unknown, "{status}");
        let shown = text(&ground, &["jobs", "status"])?;
        assert!(shown.contains("\"ARCHIVED\"") && shown.contains("4 documents have unknown states"), "{shown}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_bulk_command_says_how_many_it_did_and_could_not_do() -> Result<()> {
    Ground::each("jobs-counts", async |ground| {
        let ids = filled(&ground).await?;
        put(&ground, bson::doc! { "_id": ObjectId::from_bytes([7; 12]), "state": "FAILED", "who": "they" }).await?;
        // Two jobs have failed, and one document is unreadable; one of the named jobs has not
        // failed.
        let named = ["jobs", "retry", &ids[0].to_hex(), &ids[4].to_hex()];
        assert_eq!(counted(&ground, &named)?, ([1, 1, 0], Some(1)));
        assert_eq!(counted(&ground, &["jobs", "retry", "--all"])?, ([1, 0, 1], Some(1)));
        assert_eq!(counted(&ground, &["jobs", "retry", "--all", "--type", "nothing"])?, ([0, 0, 0], Some(0)));
        let shown = output(&ground, &["jobs", "discard", &ids[4].to_hex(), &ids[3].to_hex()])?;
        assert_eq!(shown.status.code(), Some(1));
        assert!(String::from_utf8(shown.stdout)?.ends_with("0 removed, 2 skipped, 0 failed\n"));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn lists_are_of_a_type_and_go_on_behind_a_job() -> Result<()> {
    Ground::each("jobs-pages", async |ground| {
        let ids = filled(&ground).await?;
        let listed = |arguments: &[&str]| -> Result<Vec<Value>> {
            let (lines, code) = json(&ground, &[&["jobs", "list"], arguments].concat())?;
            anyhow::ensure!(code == Some(0), "{lines:?}");
            Ok(lines.into_iter().map(|line| line["_id"]["$oid"].clone()).collect())
        };
        let hex = |place: usize| Value::from(ids[place].to_hex());
        assert_eq!(listed(&["--state", "failed", "--limit", "1"])?, [hex(0)]);
        assert_eq!(listed(&["--state", "failed", "--after", &ids[0].to_hex()])?, [hex(1)]);
        assert_eq!(listed(&["--type", "print"])?, [hex(1)]);
        assert!(listed(&["--older-than", "1h"])?.is_empty());
        let refused = output(&ground, &["jobs", "list", "--state", "failed", "--after", "nobody"])?;
        assert_one_line(&refused, 1, "db.jobs has no document with the _id nobody");
        let refused =
            output(&ground, &["jobs", "list", "--state", "failed", "--state", "todo", "--after", &ids[0].to_hex()])?;
        assert_one_line(&refused, 2, "--after needs exactly one --state");
        Ok(())
    })
    .await
}
