//! Verification, rebuilds and exports: each kind of damage is found by name.

use std::sync::Arc;
use std::time::Duration;

use bson::{Document, doc, rawdoc};
use handfast_patterns::Error;
use handfast_patterns::ledger::{Change, ExportFormat, Finding, Ledger, LedgerOptions, NewAccount, NewEntry, Posting};
use handfast_store::{DocumentStore, Find, StoreExt};

use super::{HOUR, all, balance, books, cancels, commit_all, funded, holds, open, open_with, options, posted};
use crate::crash::World;

/// Removes everything that can be recomputed.
pub(super) async fn wipe(world: &World) {
    let unset = rawdoc! { "$unset": { "cache": "" } };
    world.store.update_many(&world.namespace("account"), rawdoc! {}, unset).await.unwrap();
    let unset = rawdoc! { "$unset": { "changes.$[].cachedHeld": "" }, "$set": { "changes.$[].cachedBal": null } };
    world.store.update_many(&world.namespace("tx"), rawdoc! {}, unset).await.unwrap();
}

/// Posts entries with authorisations and a cancel, some of them committed.
async fn lively() -> (World, Ledger) {
    let world = World::in_memory();
    let ledger = open(&world).await.unwrap();
    funded(&ledger, &[("A", 1000), ("B", 0)]).await;
    ledger.open_account(NewAccount::new("fees", "EUR").with_sequence()).await.unwrap();
    holds::walk_through(&world, &ledger).await;
    cancels::walk_through(&ledger).await;
    for value in 1..=5 {
        posted(&ledger, NewEntry::transfer("A", "fees", value, "EUR")).await;
    }
    commit_all(&ledger).await;
    posted(&ledger, NewEntry::transfer("A", "B", 1, "EUR").with_id("open")).await;
    (world, ledger)
}

#[tokio::test]
async fn wiped_caches_are_rebuilt_to_the_same_values() {
    let (world, ledger) = lively().await;
    let before = (all(&world, "tx").await, all(&world, "account").await);
    let rebuilt = ledger.rebuild_all().await.unwrap();
    assert!(rebuilt.balances == 0 && rebuilt.is_whole(), "{rebuilt:?}");
    wipe(&world).await;
    // Without any cache the balances are the same.
    let a = ledger.balance("A").await.unwrap().unwrap();
    assert_eq!((a.balance, a.anchor_seq_id), (1000 - 30 - 15 - 1, 0));
    let verified = ledger.verify_all().await.unwrap();
    assert!(verified.findings.iter().all(|finding| matches!(finding, Finding::Balance { cached: None, .. })));
    let rebuilt = ledger.rebuild_all().await.unwrap();
    assert_eq!((rebuilt.accounts, rebuilt.caches), (4, 4));
    assert_eq!(rebuilt.balances, verified.findings.count());
    assert_eq!((all(&world, "tx").await, all(&world, "account").await), before);
    // Without the documents of the accounts their settings are lost, too.
    world.store.delete_many(&world.namespace("account"), rawdoc! {}).await.unwrap();
    let (rebuilt, lost) = (ledger.rebuild_all().await.unwrap(), all(&world, "account").await);
    assert!(rebuilt.stops.count() == 4 && lost.is_empty(), "no account without its limits: {rebuilt:?}");
    for (id, minimum) in [("A", Some(0)), ("B", Some(0)), ("cash", None)] {
        let again = NewAccount::new(id, "EUR");
        let again = minimum.into_iter().fold(again, NewAccount::with_minimum);
        ledger.open_account(again).await.unwrap();
    }
    ledger.open_account(NewAccount::new("fees", "EUR").with_sequence()).await.unwrap();
    assert!(ledger.rebuild_all().await.unwrap().is_whole());
    let caches =
        |accounts: &[Document]| accounts.iter().map(|account| account.get("cache").cloned()).collect::<Vec<_>>();
    assert_eq!(caches(&all(&world, "account").await), caches(&before.1));
    assert!(ledger.verify_all().await.unwrap().is_clean());
}

/// Each case damages one thing.
#[tokio::test]
async fn each_kind_of_damage_is_found_by_name() {
    let tx = |filter, update| ("tx", filter, update);
    let first = || rawdoc! { "changes": { "$elemMatch": { "account": "A", "seqId": 3 } } };
    let cases = [
        (tx(first(), rawdoc! { "$inc": { "changes.$.cachedBal": 1 } }), vec!["balance"]),
        (tx(first(), rawdoc! { "$inc": { "changes.$.cachedHeld": 1 } }), vec!["balance"]),
        (tx(first(), rawdoc! { "$set": { "changes.$.cachedBal": null } }), vec!["balance"]),
        (tx(first(), rawdoc! { "$set": { "proc": "UNCOMMITTED" } }), vec!["order"]),
        (tx(first(), rawdoc! { "$set": { "changes.$.asset": "USD" } }), vec!["asset"]),
        (tx(rawdoc! { "_id": "old" }, rawdoc! { "$inc": { "changes.0.value": 1 } }), vec!["altered", "unbalanced"]),
        (tx(rawdoc! { "_id": "old" }, rawdoc! { "$set": { "state": "CANCELED" } }), vec!["altered"]),
        (tx(rawdoc! { "_id": "old" }, rawdoc! { "$set": { "state": "LOST" } }), vec!["unreadable"]),
        (tx(rawdoc! { "_id": "old" }, rawdoc! { "$inc": { "changes.0.seqId": 1000 } }), vec!["gap"]),
        (("account", rawdoc! { "_id": "A" }, rawdoc! { "$inc": { "cache.balance": 1 } }), vec!["cache"]),
        (("account", rawdoc! { "_id": "A" }, rawdoc! { "$inc": { "cache.seqId": 1 } }), vec!["cache"]),
        (("account", rawdoc! { "_id": "A" }, rawdoc! { "$inc": { "cache.seqId": 100 } }), vec!["gap"]),
    ];
    for ((collection, filter, update), expected) in cases {
        let (world, ledger) = lively().await;
        assert!(ledger.verify_all().await.unwrap().is_clean());
        let target = world.namespace(collection);
        let outcome = world.store.update_one(&target, filter, update.clone()).await.unwrap();
        assert_eq!(outcome.modified, 1, "{update:?}");
        let verified = ledger.verify_all().await.unwrap();
        let gaps = verified.gaps.iter().map(|_| "gap");
        let mut names: Vec<_> = gaps.chain(verified.findings.iter().map(Finding::kind)).collect();
        names.dedup();
        for name in expected {
            assert!(names.contains(&name), "{name} is not among {verified:?} after {update:?}");
        }
    }
}

/// A lost entry is a gap without an abandoned target, at any target.
#[tokio::test]
async fn an_entry_that_is_lost_is_a_gap() {
    let (_, ledger) = lively().await;
    let last = ledger.account("A").await.unwrap().unwrap().cache.unwrap().seq_id;
    for place in 1..=last {
        let (world, ledger) = lively().await;
        let lost = rawdoc! { "changes": { "$elemMatch": { "account": "A", "seqId": place } } };
        assert!(world.store.delete_one(&world.namespace("tx"), lost).await.unwrap());
        let found = ledger.verify("A").await.unwrap();
        assert!(found.gaps.iter().any(|gap| (gap.first..=gap.last).contains(&place)), "place {place}: {found:?}");
        assert_eq!(found.findings.count(), 0, "what was final behind place {place} still is: {found:?}");
    }
}

/// Damage does not spread: an account with a lost place takes no entry for which its minimum must be checked.
#[tokio::test]
async fn nothing_is_spent_from_an_account_that_has_lost_an_entry() {
    let world = World::in_memory();
    let ledger = open_with(&world, LedgerOptions { attempts_max: 3, ..options() }).await.unwrap();
    funded(&ledger, &[("A", 100)]).await;
    posted(&ledger, NewEntry::transfer("A", "B", 90, "EUR").with_id(1)).await;
    posted(&ledger, NewEntry::transfer("cash", "A", 1, "EUR")).await;
    world.store.delete_one(&world.namespace("tx"), rawdoc! { "_id": 1 }).await.unwrap();
    let error = ledger.post(NewEntry::transfer("A", "B", 90, "EUR")).await.unwrap_err();
    assert!(matches!(&error, Error::Contended { what, .. } if what.contains("1 places of account \"A\"")), "{error}");
    let round = ledger.commit(10).await.unwrap();
    assert_eq!((round.done, round.failed), (1, 1), "the first one; not what comes behind the gap");
    posted(&ledger, NewEntry::transfer("cash", "A", 1, "EUR")).await;
}

#[tokio::test]
async fn exported_as_csv_and_as_json() {
    let world = World::in_memory();
    let ledger = open(&world).await.unwrap();
    let changes = [Change::new("a, \"b\"", -5, "EUR").called("fee"), Change::new(7, 5, "EUR")];
    posted(&ledger, NewEntry::new(changes).with_id("x").with_metadata(doc! { "n": 1 })).await;
    commit_all(&ledger).await;
    let handfast_patterns::ledger::Cancel::Reversed(_) = ledger.cancel("x", "no").await.unwrap() else { panic!() };
    let csv = exported(&ledger, ExportFormat::Csv).await;
    let expected = "entry,ts,proc,state,account,type,asset,value,hold,seqId,cachedBal,link,linked,reason,metadata\r\n\
        x,2020-01-01T00:00:00Z,COMMITTED,VALID,\"a, \"\"b\"\"\",fee,EUR,-5,0,1,-5,,,,\"{\"\"n\"\":1}\"\r\n\
        x,2020-01-01T00:00:00Z,COMMITTED,VALID,7,deposit,EUR,5,0,1,5,,,,\"{\"\"n\"\":1}\"\r\n\
        \"{\"\"reverses\"\":\"\"x\"\"}\",2020-01-01T00:00:00Z,UNCOMMITTED,VALID,\"a, \"\"b\"\"\",reversal,EUR,5,0,2,,reverses,x,no,\r\n\
        \"{\"\"reverses\"\":\"\"x\"\"}\",2020-01-01T00:00:00Z,UNCOMMITTED,VALID,7,reversal,EUR,-5,0,2,,reverses,x,no,\r\n";
    assert_eq!(csv, expected);
    let json = exported(&ledger, ExportFormat::Json).await;
    let lines: Vec<&str> = json.lines().collect();
    assert_eq!(lines.len(), 2);
    assert!(
        lines[0].contains("\"_id\":\"x\"") && lines[0].contains("\"ts\":{\"$date\":\"2020-01-01T00:00:00Z\"}"),
        "{json}"
    );
    assert!(lines[1].contains("\"_id\":{\"reverses\":\"x\"}") && lines[1].contains("\"value\":-5"), "{json}");
}

async fn exported(ledger: &Ledger, format: ExportFormat) -> String {
    let (mut export, mut text) = (ledger.export(format).await.unwrap(), String::new());
    while let Some(lines) = export.next().await.unwrap() {
        text.push_str(&lines);
    }
    text
}

/// Entries are in the order of time, then of ids, whatever the order of the inserts. Integers that are not the
/// ledger's own keep their types.
#[tokio::test]
async fn an_export_is_in_the_order_of_time() {
    let world = World::in_memory();
    let ledger = open(&world).await.unwrap();
    let start = world.sources.clock.now().timestamp_millis();
    for (id, second) in [(5, 1), (1, 2), (3, 0), (4, 1), (2, 2)] {
        let ts = bson::DateTime::from_millis(start + second * 1000);
        let entry = NewEntry::transfer(7_i64, "B", 1, "EUR").with_id(id).with_metadata(doc! { "n": 1_i64 });
        posted(&ledger, entry.at(ts)).await;
    }
    let json = exported(&ledger, ExportFormat::Json).await;
    let lines: Vec<serde_json::Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.iter().map(|line| line["_id"].as_i64().unwrap()).collect::<Vec<_>>(), [3, 4, 5, 1, 2]);
    let seven = serde_json::json!({ "$numberLong": "7" });
    assert_eq!(
        (&lines[0]["changes"][0]["account"], &lines[0]["changes"][0]["value"]),
        (&seven, &serde_json::json!(-1))
    );
    assert_eq!(lines[0]["metadata"]["n"], serde_json::json!({ "$numberLong": "1" }));
    let csv = exported(&ledger, ExportFormat::Csv).await;
    let ids: Vec<_> = csv.lines().skip(1).map(|line| line.split(',').next().unwrap()).collect();
    assert_eq!(ids, ["3", "3", "4", "4", "5", "5", "1", "1", "2", "2"]);
}

/// There are more entries than a sort may hold in memory.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_ledger_is_exported_without_being_held_in_memory() {
    let directory = tempfile::tempdir().unwrap();
    let (mut sources, clock) = handfast_store::Sources::manual(1);
    sources.query_memory.stage_bytes_max = 16 << 10;
    let options = handfast_embedded::Options { expiry_interval: None, ..handfast_embedded::Options::small() };
    let store = handfast_embedded::EmbeddedStore::open(directory.path(), sources.clone(), options).await.unwrap();
    let store: Arc<dyn DocumentStore> = Arc::new(store);
    let target = handfast_store::Namespace::new("db", "tx").unwrap();
    let ledger =
        Ledger::open_with(Arc::clone(&store), target.clone(), sources, LedgerOptions::default()).await.unwrap();
    for number in 0..300 {
        clock.advance(Duration::from_secs(1));
        posted(&ledger, NewEntry::transfer(format!("a{number}"), format!("b{number}"), 1, "EUR").with_id(-number))
            .await;
    }
    let by = Find { sort: rawdoc! { "state": 1 }, ..Find::new(target, rawdoc! {}) };
    let Err(error) = store.find_all(by).await else { panic!("a sort without an index holds all of them") };
    assert!(error.to_string().contains("memory limit"), "{error}");
    let lines = exported(&ledger, ExportFormat::Json).await;
    assert!(lines.lines().next().unwrap().contains("\"_id\":0") && lines.lines().count() == 300);
}

#[tokio::test]
async fn the_status_of_a_ledger_counts_its_entries() {
    let (world, ledger) = lively().await;
    world.clock.advance(HOUR);
    let status = ledger.status().await.unwrap();
    assert_eq!((status.uncommitted, status.oldest_uncommitted, status.expiring), (1, Some(HOUR), 0));
    assert_eq!(ledger.uncommitted(10).await.unwrap()[0].id, "open".into());
    let (mut accounts, mut ids) = (ledger.accounts(2).await.unwrap(), Vec::new());
    loop {
        let page = accounts.next().await.unwrap();
        if page.is_empty() {
            break;
        }
        ids.extend(page.into_iter().map(|account| account.unwrap().id.to_string()));
    }
    ids.sort();
    assert_eq!(ids, ["\"A\"", "\"B\"", "\"cash\"", "\"fees\""]);
}

/// In a transaction of the store an entry is posted if and only if that transaction commits.
#[tokio::test]
async fn an_entry_posted_in_a_transaction_exists_if_and_only_if_it_commits() {
    let world = World::in_memory();
    let memory = handfast_store::MemoryStore::new(world.sources.clone());
    let database = handfast_txn::Database::local(memory, world.sources.clone());
    let world = world.on(Arc::new(database.clone()));
    let ledger = open(&world).await.unwrap();
    funded(&ledger, &[("A", 100)]).await;
    for commit in [false, true] {
        let tx = database.begin().await.unwrap();
        let inside = ledger.within(Arc::new(tx.clone()));
        posted(&inside, NewEntry::transfer("A", "B", 60, "EUR").with_id(1)).await;
        // The transaction sees its own entries, and so does the check of the minimum.
        let refused = inside.post(NewEntry::transfer("A", "B", 60, "EUR").with_id(2)).await.unwrap();
        assert!(matches!(refused, Posting::Refused(_)), "{refused:?}");
        posted(&inside, NewEntry::transfer("A", "B", 40, "EUR").with_id(3)).await;
        assert_eq!((balance(&inside, "A").await, balance(&ledger, "A").await), (0, 100));
        if commit {
            tx.commit().await.unwrap();
        } else {
            tx.abort();
        }
        assert_eq!(balance(&ledger, "A").await, if commit { 0 } else { 100 });
    }
    commit_all(&ledger).await;
    books::check(&world).await.unwrap();
}
