//! `handfast txns`: locks that dead processes have left on a server are shown and resolved.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bson::{doc, rawdoc};
use handfast_mongodb::{ConnectOptions, connect};
use handfast_store::decorator::{Fault, Faulty, Plan};
use handfast_store::{DocumentStore, Namespace, Sources, StoreExt};
use handfast_txn::{Database, Percolator, PercolatorOptions};
use serde_json::{Value, json};

use crate::support::{Scratch, Serve, assert_one_line, handfast};

/// The maximal number of operations of a transfer.
const OPERATIONS_MAX: u64 = 100;

/// Returns options without a cleaner and with this lifetime of locks: so long that no lock expires, or zero.
fn options(lock_ttl: Duration) -> PercolatorOptions {
    PercolatorOptions { cleaning_interval: None, lock_ttl, ..PercolatorOptions::default() }
}

/// Lets processes die during a transfer, each one operation later than the one before, until one leaves two
/// locks.
async fn leave_two_locks(uri: &str, lock_ttl: Duration) -> Result<()> {
    let sources = Sources::system()?;
    let store = connect(uri, sources.clone(), ConnectOptions::default()).await?.store;
    let accounts = Namespace::new("bank", "accounts")?;
    let operator = Percolator::new(store.clone(), sources.clone(), options(lock_ttl))?;
    // The collection and the engine's indexes are created before, because their creation after an answer would
    // come at any time.
    let healthy = Database::percolator(store.clone(), sources.clone(), options(lock_ttl))?;
    healthy.upsert_one(&accounts, rawdoc! { "_id": "Zoe" }, rawdoc! { "$set": { "balance": 0 } }).await?;
    healthy.flush().await?;
    for number in 0..OPERATIONS_MAX {
        let dying = Arc::new(Faulty::new(store.clone(), Plan::at(number, Fault::CrashAfter)));
        let database = Database::percolator(dying, sources.clone(), options(lock_ttl))?;
        if let Ok(tx) = database.begin().await {
            for (name, by) in [("Bob", -7), ("Joe", 7)] {
                let _ = tx.upsert_one(&accounts, rawdoc! { "_id": name }, rawdoc! { "$inc": { "balance": by } }).await;
            }
            let _ = tx.commit().await;
        }
        match operator.count_locks().await? {
            2 => return Ok(()),
            0 => {}
            _ => {
                let rows = store.delete_many(&accounts, rawdoc! {}).await?;
                ensure!(rows > 0, "a lock is in a row");
            }
        }
    }
    anyhow::bail!("no process left two locks")
}

#[tokio::test]
async fn what_dead_processes_left_is_shown_and_finished() -> Result<()> {
    let scratch = Scratch::new("txns")?;
    let serve = Serve::start(&mut handfast(&scratch, &["serve", "--listen", "127.0.0.1:0", "--data", "data"]))?;
    let store = format!("mongodb://{}", serve.address()?);
    let output = |arguments: &[&str]| handfast(&scratch, arguments).args(["--store", &store, "--json"]).output();
    let report = |arguments: &[&str]| -> Result<Value> {
        let output = output(arguments)?;
        ensure!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).with_context(|| format!("{output:?}"))
    };
    // A command that only reads changes nothing.
    let status = report(&["txns", "status"])?;
    assert_eq!((&status["locks"], &status["safe_point"]), (&json!(0), &json!(null)));
    let listed = output(&["txns", "list"])?;
    assert_eq!((listed.status.code(), listed.stdout.len()), (Some(0), 0), "{listed:?}");
    let remarks = String::from_utf8(listed.stderr)?;
    assert!(remarks.contains("this server is Handfast: its own transactions hold no locks here"), "{remarks}");
    assert!(remarks.contains("Handfast has never made transactions on this server"), "{remarks}");
    assert_one_line(&output(&["txns", "show", "1", "--quiet"])?, 1, "there is no lock of a transaction with the start");
    let databases = serve.command(doc! { "listDatabases": 1, "$db": "admin" })?;
    assert_eq!(databases.get_array("databases")?.len(), 0, "{databases}");

    // The transaction is alive: no command removes its locks.
    leave_two_locks(&store, Duration::from_secs(3600)).await?;
    let status = report(&["txns", "status"])?;
    assert_eq!((&status["locks"], &status["transactions"], &status["abandoned"]), (&json!(2), &json!(1), &json!(0)));
    let start = report(&["txns", "list"])?["start"].to_string();
    let shown = report(&["txns", "show", &start])?;
    assert_eq!(shown["state"], "alive");
    let locks = shown["locks"].as_array().context("locks")?;
    assert_eq!(locks.len(), 2);
    let rows = || serve.command(doc! { "find": "oracle", "$db": "handfast" });
    let before = rows()?;
    report(&["txns", "status"])?;
    report(&["txns", "show", &start])?;
    assert_eq!(rows()?.get_document("cursor")?, before.get_document("cursor")?);
    assert_eq!(locks.iter().filter(|lock| lock["primary"] == true).count(), 1);
    let resolved = report(&["txns", "resolve", "--all"])?;
    assert_eq!((&resolved["resolved"], &resolved["alive"]), (&json!(0), &json!(2)));
    let text = handfast(&scratch, &["txns", "show", &start, "--store", &store]).output()?;
    let text = String::from_utf8(text.stdout)?;
    assert!(text.contains("alive; it may still commit") && text.contains("bank.accounts Joe"), "{text}");
    Ok(())
}

#[tokio::test]
async fn abandoned_transactions_are_rolled_back_one_or_all() -> Result<()> {
    let scratch = Scratch::new("txns-abandoned")?;
    let serve = Serve::start(&mut handfast(&scratch, &["serve", "--listen", "127.0.0.1:0", "--data", "data"]))?;
    let store = format!("mongodb://{}", serve.address()?);
    let report = |arguments: &[&str]| -> Result<Value> {
        let output = handfast(&scratch, arguments).args(["--store", &store, "--json"]).output()?;
        ensure!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).with_context(|| format!("{output:?}"))
    };
    leave_two_locks(&store, Duration::from_millis(1)).await?;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let open = report(&["txns", "list"])?;
    assert_eq!((&open["abandoned"], &open["locks"]), (&json!(true), &json!(2)));
    let start = open["start"].to_string();
    assert_eq!(report(&["txns", "show", &start])?["state"], "abandoned");
    assert_eq!(report(&["txns", "resolve", &start])?["resolved"], 2);
    assert_eq!(report(&["txns", "status"])?["locks"], 0);
    let gone = handfast(&scratch, &["txns", "show", &start, "--store", &store, "--quiet"]).output()?;
    assert_one_line(&gone, 1, "there is no lock of a transaction with the start");

    leave_two_locks(&store, Duration::from_millis(1)).await?;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(report(&["txns", "gc"])?["resolved"], 2);
    assert_eq!(report(&["txns", "status"])?["locks"], 0);
    Ok(())
}

/// Readers of the store itself get the stored name of a collection that was dropped and created again.
#[tokio::test]
async fn collections_with_other_names_in_the_store_are_listed() -> Result<()> {
    let scratch = Scratch::new("txns-collections")?;
    let serve = Serve::start(&mut handfast(&scratch, &["serve", "--listen", "127.0.0.1:0", "--data", "data"]))?;
    let uri = format!("mongodb://{}", serve.address()?);
    let listed = || -> Result<Vec<Value>> {
        let output = handfast(&scratch, &["txns", "collections", "--store", &uri, "--json"]).output()?;
        ensure!(output.status.success(), "{output:?}");
        std::str::from_utf8(&output.stdout)?.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
    };
    let sources = Sources::system()?;
    let store = connect(&uri, sources.clone(), ConnectOptions::default()).await?.store;
    let database = Database::percolator(store.clone(), sources, options(Duration::from_secs(5)))?;
    let items = Namespace::new("shop", "items")?;
    database.insert_one(&items, rawdoc! { "_id": 1 }).await?;
    assert_eq!(listed()?, [] as [Value; 0]);
    database.drop_collection(&items).await?;
    database.insert_one(&items, rawdoc! { "_id": 2 }).await?;
    database.flush().await?;
    let [again, dropped] = &listed()?[..] else { anyhow::bail!("{:?}", listed()?) };
    assert_eq!((&again["name"], &dropped["name"]), (&json!("shop.items"), &json!(null)));
    assert_eq!(dropped["stored"], "shop.items");
    let (_, stored) = again["stored"].as_str().and_then(|name| name.split_once('.')).context("a name")?;
    let found = store.find_one(&Namespace::new("shop", stored)?, rawdoc! {}).await?.context("the document")?;
    assert_eq!(found.get_i32("_id")?, 2);
    Ok(())
}

#[test]
fn a_data_directory_has_no_locks() -> Result<()> {
    let scratch = Scratch::new("txns-data")?;
    assert_one_line(&handfast(&scratch, &["txns", "status"]).output()?, 2, "--store is missing: name the server");
    let both = handfast(&scratch, &["txns", "resolve", "1", "--all", "--store", "mongodb://a"]).output()?;
    assert_eq!(both.status.code(), Some(2));
    Ok(())
}
