//! Documents that another program has changed: each is named, none hides another one, and no transaction is finished
//! that cannot be.

use std::sync::Arc;
use std::time::Duration;

use bson::{Bson, Document, doc, rawdoc};
use handfast_patterns::two_phase::{Transfer, TwoPhaseOptions, TwoPhaseOutcome};
use handfast_patterns::{CancellationToken, Round, RunnerOptions};
use handfast_store::StoreExt;
use handfast_store::decorator::{Fault, Operation};

use super::{HOUR, accounts, all, balances, open, open_with};
use crate::crash::World;
use crate::fault::first;

async fn insert(world: &World, collection: &str, document: Document) {
    let document = bson::RawDocumentBuf::try_from(&document).unwrap();
    world.store.insert_one(&world.namespace(collection), document).await.unwrap();
}

async fn set(world: &World, collection: &str, id: &str, set: Document) {
    let update = bson::RawDocumentBuf::try_from(&doc! { "$set": set }).unwrap();
    world.store.update_one(&world.namespace(collection), rawdoc! { "_id": id }, update).await.unwrap();
}

/// Returns a transaction of 100 from A to B, as another application has left it.
fn left(world: &World, id: &str, state: &str) -> Document {
    doc! {
        "_id": id, "source": "A", "destination": "B", "value": 100_i64, "state": state,
        "lastModified": world.sources.clock.now(), "application": "App1",
    }
}

async fn found(world: &World) -> Vec<String> {
    let verified = open(world, "App2").await.unwrap().verify(1, |_| ()).await.unwrap();
    let found: Vec<_> = verified.findings.iter().map(ToString::to_string).collect();
    assert_eq!(found.len() as u64, verified.findings.count());
    found
}

#[track_caller]
fn assert_names(found: &[String], parts: &[&str]) {
    assert!(found.iter().any(|line| parts.iter().all(|part| line.contains(part))), "{parts:?} in {found:#?}");
}

/// B lacks the update of an applied transaction, or does not exist: a process that takes the transaction over leaves
/// it unfinished.
#[tokio::test(start_paused = true)]
async fn an_applied_transaction_that_a_participant_lacks_is_not_finished() {
    for is_gone in [false, true] {
        let world = World::in_memory();
        accounts(&world).await;
        insert(&world, "transactions", left(&world, "x", "applied")).await;
        set(&world, "accounts", "A", doc! { "balance": 900, "pendingTransactions": ["x"] }).await;
        let b = world.namespace("accounts");
        if is_gone {
            assert!(world.store.delete_one(&b, rawdoc! { "_id": "B" }).await.unwrap());
        }
        let transfers = open(&world, "App2").await.unwrap();
        for _ in 0..2 {
            world.clock.advance(HOUR);
            assert_eq!(transfers.recover(10).await.unwrap(), Round { done: 0, failed: 1, more: false });
            let a = all(&world, "accounts").await.remove(0);
            assert_eq!(a.get_array("pendingTransactions").unwrap()[..], [Bson::from("x")], "it is evidence");
            assert_eq!(all(&world, "transactions").await[0].get_str("state").unwrap(), "applied");
            assert_names(&found(&world).await, &["\"B\"", "lacks the update of transaction \"x\", which is applied"]);
        }
        let error = transfers.run("x").await.expect_err("it was taken over").to_string();
        assert!(error.contains("lacks the update of transaction \"x\""), "{error}");

        world.clock.advance(HOUR);
        let cancel = CancellationToken::new();
        let recovery = transfers.spawn_recovery(RunnerOptions::default(), &cancel).unwrap();
        tokio::time::sleep(Duration::from_secs(100)).await;
        assert_eq!((recovery.counts().done, recovery.counts().failed), (0, 1));
        recovery.stop().await;

        // Another program has repaired B.
        if is_gone {
            insert(&world, "accounts", doc! { "_id": "B", "balance": 1100, "pendingTransactions": ["x"] }).await;
        } else {
            set(&world, "accounts", "B", doc! { "balance": 1100, "pendingTransactions": ["x"] }).await;
        }
        world.clock.advance(HOUR);
        assert_eq!(transfers.recover(10).await.unwrap().done, 1);
        assert_eq!(found(&world).await, [""; 0]);
        assert_eq!(balances(&world).await, [900, 1100]);
    }
}

/// With all kinds of damage at once, documents that cannot be read are named like the others.
#[tokio::test]
async fn an_unreadable_document_does_not_hide_another_one() {
    let world = World::in_memory();
    accounts(&world).await;
    let transfers = open(&world, "App1").await.unwrap();
    transfers.begin("paid", Transfer::new("A", "B", 1)).await.unwrap();
    assert_eq!(transfers.run("paid").await.unwrap(), TwoPhaseOutcome::Done);
    assert_eq!(found(&world).await, [""; 0]);

    let mut without_value = left(&world, "v", "pending");
    without_value.remove("value");
    insert(&world, "transactions", without_value).await;
    let mut with_text = left(&world, "t", "applied");
    with_text.insert("value", "hundred");
    insert(&world, "transactions", with_text).await;
    let mut without_date = left(&world, "d", "done");
    without_date.remove("lastModified");
    insert(&world, "transactions", without_date).await;
    let mut of_no_settings = left(&world, "s", "canceling");
    of_no_settings.insert("settings", 7);
    insert(&world, "transactions", of_no_settings).await;
    insert(&world, "transactions", left(&world, "c", "canceled")).await;
    set(&world, "accounts", "A", doc! { "pendingTransactions": ["v", "t", "d", "s", "ghost", "c"] }).await;
    insert(&world, "accounts", doc! { "_id": "C", "balance": "lots" }).await;
    insert(&world, "accounts", doc! { "_id": "D", "balance": 1, "pendingTransactions": "x" }).await;
    insert(&world, "stock", doc! { "_id": "E", "finishedTransactions": 7 }).await;

    let all = found(&world).await;
    for parts in [
        &["transaction \"v\"", "it has no value"][..],
        &["transaction \"t\"", "its value is \"hundred\""],
        &["transactions \"d\"", "it has no date lastModified"],
        &["transaction \"s\"", "revision 7 of the settings"],
        &["\"A\" has the update of transaction \"ghost\", which is not there"],
        &["\"A\" carries the id of transaction \"c\", which is canceled"],
        &["accounts \"C\" has \"lots\" in balance"],
        &["accounts \"D\" has \"x\" in pendingTransactions"],
        &["stock \"E\" has 7 in finishedTransactions"],
    ] {
        assert_names(&all, parts);
    }
    assert_eq!(all.len(), 9, "each once: {all:#?}");
    // The repair completes the transactions that it can.
    let round = transfers.repair(1).await.unwrap();
    assert_eq!((round.done, round.failed), (1, 1), "c; and d cannot be read");
    assert_eq!(found(&world).await.len(), 8);
    transfers.status().await.expect("it counts what it can read");
}

/// The record names fields that the transfers under these settings have never written.
#[tokio::test]
async fn settings_that_name_fields_that_no_account_has_are_found() {
    let world = World::in_memory();
    accounts(&world).await;
    let transfers = open(&world, "App1").await.unwrap();
    let target = world.namespace("transactions.settings");
    let change = async |update| world.store.update_one(&target, rawdoc! { "_id": "two-phase" }, update).await.unwrap();
    let by_record = async || {
        let recorded =
            TwoPhaseOptions::recorded(Arc::clone(&world.store), &world.namespace("transactions"), "App2").await;
        let transfers = open_with(&world, recorded.unwrap().unwrap()).await.unwrap();
        let verified = transfers.verify(1, |_| ()).await.unwrap();
        verified.findings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    change(rawdoc! { "$set": { "settings.accounts.balance": "saldo" } }).await;
    assert_eq!(by_record().await, [""; 0], "nobody has made a transfer yet");
    transfers.begin(1, Transfer::new("A", "B", 1)).await.unwrap();
    assert_eq!(transfers.run(1).await.unwrap(), TwoPhaseOutcome::Done);
    let found = by_record().await;
    assert_names(&found, &["no document of", "accounts has saldo"]);
    assert_eq!(found.len(), 1, "{found:?}");
    let pending = rawdoc! { "$set": {
        "settings.accounts.balance": "balance", "settings.accounts.pending": { "credits": "in", "debits": "out" },
    } };
    change(pending).await;
    let found = by_record().await;
    assert_names(&found, &["no document of", "accounts has in or out"]);
    assert_eq!(found.len(), 1, "{found:?}");
}

#[tokio::test]
async fn a_transaction_is_taken_back_once() {
    let world = World::in_memory();
    accounts(&world).await;
    let transfers = open(&world, "App1").await.unwrap();
    transfers.begin(1, Transfer::new("A", "B", 100)).await.unwrap();
    assert_eq!(transfers.run(1).await.unwrap(), TwoPhaseOutcome::Done);
    // A canceled compensation has taken nothing back.
    set(&world, "accounts", "B", doc! { "balance": 0 }).await;
    for _ in 0..2 {
        let _ = transfers.compensate(1, "b0").await.unwrap();
        assert!(matches!(transfers.run("b0").await.unwrap(), TwoPhaseOutcome::Canceled { .. }), "B has nothing");
    }
    set(&world, "accounts", "B", doc! { "balance": 1100 }).await;
    // The process dies after the transaction names the one that takes it back, and before that one is begun.
    let dying = world.fault_at(first(Operation::Update, "transactions"), Fault::CrashAfter);
    let _ = transfers.within(dying).compensate(1, "b1").await.expect_err("killed");
    assert_eq!(transfers.show("b1").await.unwrap(), None);
    for _ in 0..2 {
        let _ = transfers.compensate(1, "b1").await.expect("the same again");
        let refused = transfers.compensate(1, "b2").await.expect_err("it is taken back already").to_string();
        assert!(refused.contains("is taken back by transaction \"b1\""), "{refused}");
        assert_eq!(transfers.run("b1").await.unwrap(), TwoPhaseOutcome::Done);
    }
    assert_eq!(balances(&world).await, [1000, 1000]);
    assert_eq!(transfers.show("b2").await.unwrap(), None);
}

/// Two processes take back two transactions by the same id. One dies before it begins the compensation, which the other one begins.
#[tokio::test]
async fn a_compensation_takes_back_the_transaction_that_it_names() {
    let world = World::in_memory();
    accounts(&world).await;
    let transfers = open(&world, "App1").await.unwrap();
    for id in [1, 2, 3] {
        transfers.begin(id, Transfer::new("A", "B", 100)).await.unwrap();
        assert_eq!(transfers.run(id).await.unwrap(), TwoPhaseOutcome::Done);
    }
    for id in [1, 3] {
        let dying = world.fault_at(first(Operation::Update, "transactions"), Fault::CrashAfter);
        let _ = transfers.within(dying).compensate(id, format!("back {}", id / 3)).await.expect_err("killed");
    }
    let _ = transfers.compensate(2, "back 0").await.unwrap();
    transfers.begin("back 1", Transfer::new("B", "A", 100)).await.unwrap();
    for (id, by) in [(1, "back 0"), (3, "back 1")] {
        let refused = transfers.compensate(id, by).await.expect_err("it takes back another one").to_string();
        assert!(refused.contains("another transaction has the id"), "{refused}");
    }
    assert_eq!(transfers.show("back 0").await.unwrap().unwrap().compensates, Some(2.into()));
    let refused = transfers.begin("back 0", Transfer::new("B", "A", 100)).await.expect_err("it is a compensation");
    assert!(refused.to_string().contains("another transaction has the id"), "{refused}");
    let _ = transfers.compensate(1, "back").await.unwrap();
    for id in ["back 0", "back"] {
        assert_eq!(transfers.run(id).await.unwrap(), TwoPhaseOutcome::Done);
    }
    assert_eq!(balances(&world).await, [900, 1100]);
}

/// A compensation is refused if another transaction has its id, or if a participant has nothing to give back.
#[tokio::test]
async fn a_refused_compensation_leaves_no_trace() {
    let world = World::in_memory();
    accounts(&world).await;
    let transfers = open(&world, "App1").await.unwrap();
    for id in [1, 2] {
        transfers.begin(id, Transfer::new("A", "B", 100)).await.unwrap();
        assert_eq!(transfers.run(id).await.unwrap(), TwoPhaseOutcome::Done);
    }
    for taken in [1, 2] {
        let refused = transfers.compensate(1, taken).await.expect_err("the id is another's").to_string();
        assert!(refused.contains("another transaction has the id"), "{refused}");
    }
    // Another process has begun a transaction with this id after it was looked for.
    let update = rawdoc! { "$set": { "compensation": 2 } };
    world.store.update_one(&world.namespace("transactions"), rawdoc! { "_id": 1 }, update).await.unwrap();
    let _ = transfers.compensate(1, "back").await.unwrap();
    assert_eq!(transfers.run("back").await.unwrap(), TwoPhaseOutcome::Done);
    assert_eq!(balances(&world).await, [900, 1100]);

    insert(&world, "transactions", left(&world, "x", "applied")).await;
    set(&world, "accounts", "A", doc! { "balance": 800, "pendingTransactions": ["x"] }).await;
    let refused = transfers.compensate("x", "x back").await.expect_err("B has nothing of it").to_string();
    assert!(refused.contains("lacks the update of transaction \"x\""), "{refused}");
    assert_eq!(transfers.show("x back").await.unwrap(), None);
}

/// The oldest ones cannot be read, and are more than a round takes.
#[tokio::test]
async fn transactions_that_cannot_be_read_keep_no_others_waiting() {
    let world = World::in_memory();
    accounts(&world).await;
    for id in ["a", "b", "c"] {
        let mut damaged = left(&world, id, "pending");
        damaged.insert("settings", "mine");
        insert(&world, "transactions", damaged).await;
    }
    world.clock.advance(Duration::from_secs(1));
    insert(&world, "transactions", left(&world, "x", "pending")).await;
    world.clock.advance(HOUR);
    let transfers = open(&world, "App2").await.unwrap();
    assert_eq!(transfers.recover(1).await.unwrap(), Round { done: 1, failed: 3, more: true });
    assert_eq!(balances(&world).await, [900, 1100]);
    assert_eq!(transfers.recover(1).await.unwrap(), Round { done: 0, failed: 3, more: false });
}
