//! Processes that work on one server are killed repeatedly. The locks and records that they leave are bounded while they work,
//! and all of them are removed after the retention.
//!
//! `HANDFAST_KILLS` says how often (default 3, 200 in continuous integration).

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bson::{RawDocumentBuf, rawdoc};
use handfast_mongodb::{ConnectOptions, connect};
use handfast_store::{DocumentStore, Find, Namespace, Sources, StoreExt, Ticket, ticket};
use handfast_txn::percolator::row::{FIELD, RECORDS_MAX, VERSIONS_MAX};
use handfast_txn::{Percolator, PercolatorOptions};
use serde_json::Value;

use crate::support::{FREE_PORT, Scratch, Serve, handfast};

/// The retention for a check after the last process has ended: none of its requests is delayed any more.
const KEPT: Duration = Duration::from_secs(1);

#[tokio::test]
async fn nothing_is_left_of_processes_that_were_killed() -> Result<()> {
    let kills = std::env::var("HANDFAST_KILLS").unwrap_or_else(|_| "3".to_owned());
    let scratch = Scratch::new("kills")?;
    let serve = Serve::start(handfast(&scratch, &FREE_PORT).args(["--data", "data"]))?;
    let uri = format!("mongodb://{}", serve.address()?);
    let flags = ["--accounts", "10", "--workers", "4", "--transfers", "50", "--store", &uri];
    let output = handfast(&scratch, &["bank", "--json", "--crash", &kills]).args(flags).output()?;
    ensure!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout)?;
    println!("{report}");
    ensure!(report["kills"] == serde_json::from_str::<Value>(&kills)? && report["locks_left"] == 0, "{report}");
    ensure!(report["money_in"] == report["money_out"] && report["history_clean"] == true, "{report}");

    let sources = Sources::system()?;
    let store = connect(&uri, sources.clone(), ConnectOptions::default()).await?.store;
    let before = hidden(&*store).await?;
    let kept = before.iter().map(Kept::of).collect::<Result<Vec<_>>>()?;
    println!("{kept:?}");
    for Kept { versions, decisions, rollbacks } in &kept {
        ensure!(*versions <= VERSIONS_MAX && versions + decisions <= RECORDS_MAX && *rollbacks <= RECORDS_MAX);
    }
    ensure!(kept.iter().any(|kept| kept.versions > 0), "nothing was there to be forgotten");

    let options = PercolatorOptions {
        retention: KEPT,
        outcome_retention: KEPT,
        cleaning_interval: None,
        ..PercolatorOptions::default()
    };
    let operator = Percolator::new(store.clone(), sources, options)?;
    // The first pass notes a timestamp, so that the later passes know its age.
    let first = operator.clean().await?;
    tokio::time::sleep(KEPT * 2).await;
    let cleaned = [first, operator.clean().await?, operator.clean().await?];
    println!("{cleaned:?}");
    ensure!(operator.count_locks().await? == 0, "locks are left");
    for hidden in hidden(&*store).await? {
        let is_left = hidden.iter().flatten().any(|(name, _)| !["v", "c", "s", "p"].contains(&name.as_str()));
        ensure!(!is_left, "{hidden:?}");
    }
    let of_transactions = rawdoc! { "_id": { "$ne": ticket::forgotten_id() } };
    let outcomes = store.count_matching(&Ticket::namespace()?, of_transactions).await?;
    ensure!(outcomes == 0, "{outcomes} records of outcomes are left");
    let status = handfast(&scratch, &["txns", "status", "--json", "--store", &uri]).output()?;
    let status: Value = serde_json::from_slice(&status.stdout)?;
    ensure!(status["locks"] == 0 && status["abandoned"] == 0, "{status}");
    Ok(())
}

/// The old versions and records that a document holds.
#[derive(Debug)]
struct Kept {
    /// The number of old versions that a reader may need.
    versions: usize,
    /// The number of records that the document decided a transaction without a version of it: another process may ask for the
    /// outcome.
    decisions: usize,
    rollbacks: usize,
}

impl Kept {
    fn of(hidden: &RawDocumentBuf) -> Result<Self> {
        let mut kept = Kept { versions: 0, decisions: 0, rollbacks: 0 };
        for version in hidden.get_array("old").into_iter().flatten() {
            let version = version?.as_document().context("a version is none")?;
            match version.get("cut")? {
                None => kept.versions += 1,
                Some(_) => {
                    ensure!(version.get_bool("p")?, "a version without a document that decides nothing");
                    kept.decisions += 1;
                }
            }
        }
        kept.rollbacks = hidden.get_array("rb").into_iter().flatten().count();
        Ok(kept)
    }
}

/// Returns the hidden field of the engine in each document of the bank.
async fn hidden(store: &dyn DocumentStore) -> Result<Vec<RawDocumentBuf>> {
    let mut all = Vec::new();
    for collection in store.list_collections("handfast_bank").await? {
        let namespace = Namespace::new("handfast_bank", collection.name)?;
        for document in store.find_all(Find::new(namespace, rawdoc! {})).await? {
            all.push(document.get_document(FIELD).context("a document that no transaction wrote")?.to_owned());
        }
    }
    ensure!(!all.is_empty(), "the bank has no documents");
    Ok(all)
}
