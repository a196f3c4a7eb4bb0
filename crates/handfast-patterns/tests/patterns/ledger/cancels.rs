//! Canceling entries, beside committers and posters.

use bson::{Bson, Document, doc, rawdoc};
use handfast_patterns::ledger::{Cancel, EntryState, Ledger, Link, NewEntry, Posting, Proc};
use handfast_store::StoreExt;
use handfast_store::decorator::{Address, Fault, Operation};

use super::{all, balance, books, commit_all, funded, open, posted};
use crate::crash::World;
use crate::fault::{first, wait_until_frozen};

/// Cancels an entry that is not committed, and one that is, of an account `A` with a minimum of 0 and 98 or more.
pub(super) async fn walk_through(ledger: &Ledger) {
    let before = balance(ledger, "A").await;
    posted(ledger, NewEntry::transfer("A", "B", 50, "EUR").with_id("fresh")).await;
    assert_eq!(ledger.cancel("fresh", "a mistake").await.unwrap(), Cancel::Canceled);
    assert_eq!(balance(ledger, "A").await, before);
    posted(ledger, NewEntry::transfer("A", "B", 20, "EUR").with_id("old")).await;
    commit_all(ledger).await;
    let Cancel::Reversed(reversal) = ledger.cancel("old", "regretted").await.unwrap() else {
        panic!("it was committed")
    };
    assert_eq!(reversal.link, Some(Link::Reverses("old".into())));
    assert_eq!(balance(ledger, "A").await, before);
    // Canceling again does nothing.
    assert_eq!(ledger.cancel("fresh", "again").await.unwrap(), Cancel::Canceled);
    let Cancel::Reversed(again) = ledger.cancel("old", "again").await.unwrap() else { panic!("reversed") };
    assert_eq!(again.id, reversal.id);
    assert_eq!(balance(ledger, "A").await, before);
    assert_eq!(ledger.cancel("unheard of", "").await.unwrap(), Cancel::Missing);
}

#[tokio::test]
async fn a_cancel_marks_an_uncommitted_entry_and_reverses_a_committed_one() {
    let world = World::in_memory();
    let ledger = open(&world).await.unwrap();
    funded(&ledger, &[("A", 100), ("B", 0)]).await;
    walk_through(&ledger).await;
    books::check(&world).await.unwrap();
    commit_all(&ledger).await;
    books::check(&world).await.unwrap();
    assert!(ledger.verify_all().await.unwrap().is_clean());
    let fresh = ledger.show("fresh").await.unwrap().unwrap();
    assert_eq!((fresh.status.proc, fresh.status.state), (Proc::Committed, EntryState::Canceled));
    assert_eq!(fresh.reason.as_deref(), Some("a mistake"));
    assert_eq!(fresh.changes[0].cached_balance, Some(100), "it is committed, and counts for nothing");
}

/// An amount that a payee has spent cannot be taken back, committed or not.
#[tokio::test]
async fn a_cancel_that_would_break_a_minimum_is_refused() {
    let world = World::in_memory();
    let ledger = open(&world).await.unwrap();
    funded(&ledger, &[("A", 100), ("B", 0)]).await;
    posted(&ledger, NewEntry::transfer("A", "B", 60, "EUR").with_id(1)).await;
    posted(&ledger, NewEntry::transfer("B", "C", 30, "EUR").with_id(2)).await;
    for _ in 0..2 {
        let Cancel::Refused(refusal) = ledger.cancel(1, "too late").await.unwrap() else { panic!("B has 30") };
        assert_eq!((refusal.available, refusal.change, refusal.minimum), (30, -60, 0));
        commit_all(&ledger).await;
    }
    assert!(matches!(ledger.cancel(2, "in time").await.unwrap(), Cancel::Reversed(_)));
    assert!(matches!(ledger.cancel(1, "now").await.unwrap(), Cancel::Reversed(_)));
    assert_eq!((balance(&ledger, "A").await, balance(&ledger, "B").await), (100, 0));
    // A reversal is an entry like others.
    assert!(matches!(ledger.cancel(doc! { "reverses": 1 }, "after all").await.unwrap(), Cancel::Reversed(_)));
    assert_eq!((balance(&ledger, "A").await, balance(&ledger, "B").await), (40, 60));
    books::check(&world).await.unwrap();
}

/// Gives B 100 by an entry that is not committed.
pub(super) async fn paid() -> (World, Ledger) {
    let world = World::in_memory();
    let ledger = open(&world).await.unwrap();
    funded(&ledger, &[("A", 100), ("B", 0)]).await;
    posted(&ledger, NewEntry::transfer("A", "B", 100, "EUR").with_id(1)).await;
    (world, ledger)
}

/// Addresses the request that cancels the entry, after the cancel has taken its places.
pub(super) fn cancellation() -> Address {
    first(Operation::Update, "tx")
}

/// Between the place that a cancel takes and the mark in the entry, the gains from the entry cannot be spent.
#[tokio::test]
async fn entries_being_canceled_cannot_be_spent() {
    let (world, ledger) = paid().await;
    let slow = world.fault_at(cancellation(), Fault::FreezeBefore);
    let canceller = open(&world.on(slow.clone())).await.unwrap();
    let canceling = tokio::spawn(async move { canceller.cancel(1, "a mistake").await.unwrap() });
    wait_until_frozen(&slow, &canceling).await;
    let seen = ledger.balance("B").await.unwrap().unwrap();
    assert_eq!((seen.balance, seen.available), (100, 0));
    let spent = ledger.post(NewEntry::transfer("B", "C", 1, "EUR")).await.unwrap();
    assert!(matches!(spent, Posting::Refused(_)), "{spent:?}");
    slow.release();
    assert_eq!(canceling.await.unwrap(), Cancel::Canceled);
    assert_eq!(balance(&ledger, "B").await, 0);
    books::check(&world).await.unwrap();
}

/// A poster that read the account before the cancel loses its place.
#[tokio::test]
async fn a_poster_that_read_before_a_cancel_reads_again() {
    let spend = NewEntry::transfer("B", "C", 100, "EUR");
    let (world, ledger) = paid().await;
    let slow = world.fault_at(first(Operation::Insert, "tx"), Fault::FreezeBefore);
    let spender = open(&world.on(slow.clone())).await.unwrap();
    let spending = tokio::spawn(async move { spender.post(spend).await.unwrap() });
    wait_until_frozen(&slow, &spending).await;
    assert_eq!(ledger.cancel(1, "a mistake").await.unwrap(), Cancel::Canceled);
    slow.release();
    let spent = spending.await.unwrap();
    assert!(matches!(spent, Posting::Refused(_)), "{spent:?}");
    assert_eq!(balance(&ledger, "B").await, 0);
    books::check(&world).await.unwrap();
}

/// The process dies after it took its place: the entry is committed, and can be reversed.
#[tokio::test]
async fn a_cancel_whose_process_died_blocks_nothing() {
    let (world, ledger) = paid().await;
    let dying = open(&world.on(world.fault_at(cancellation(), Fault::CrashBefore))).await.unwrap();
    dying.cancel(1, "a mistake").await.unwrap_err();
    assert_eq!(ledger.balance("B").await.unwrap().unwrap().available, 0);
    commit_all(&ledger).await;
    assert_eq!(ledger.balance("B").await.unwrap().unwrap().available, 100);
    assert!(matches!(ledger.cancel(1, "a mistake").await.unwrap(), Cancel::Reversed(_)));
    books::check(&world).await.unwrap();
}

/// Caches that another program has written after a canceled entry are reset.
#[tokio::test]
async fn caches_behind_a_canceled_entry_are_reset() {
    let world = World::in_memory();
    let ledger = open(&world).await.unwrap();
    for id in 1..=3 {
        posted(&ledger, NewEntry::transfer("A", "B", 10, "EUR").with_id(id)).await;
    }
    let set = |id: i32| {
        (rawdoc! { "_id": id }, rawdoc! { "$set": { "changes.0.cachedBal": -20_i64, "changes.1.cachedBal": 20_i64 } })
    };
    for id in 1..=3 {
        let (filter, update) = set(id);
        world.store.update_one(&world.namespace("tx"), filter, update).await.unwrap();
    }
    let cache = rawdoc! { "$set": { "cache": { "balance": 20_i64, "seqId": 2_i64 } } };
    world.store.update_one(&world.namespace("account"), rawdoc! { "_id": "B" }, cache).await.unwrap();
    assert_eq!(ledger.cancel(2, "a mistake").await.unwrap(), Cancel::Canceled);
    let cached = |entry: &Document| {
        entry
            .get_array("changes")
            .unwrap()
            .iter()
            .map(|change| change.as_document().unwrap().get("cachedBal").cloned().unwrap())
            .collect::<Vec<_>>()
    };
    let entries = all(&world, "tx").await;
    let before = entries.iter().find(|entry| entry.get("_id") == Some(&1.into())).unwrap();
    let behind = entries.iter().find(|entry| entry.get("_id") == Some(&3.into())).unwrap();
    assert_eq!(cached(before), [Bson::Int64(-20), Bson::Int64(20)]);
    assert_eq!(cached(behind), [Bson::Null, Bson::Null]);
    assert_eq!(ledger.account("B").await.unwrap().unwrap().cache, None);
    assert_eq!(balance(&ledger, "B").await, 20);
    commit_all(&ledger).await;
    books::check(&world).await.unwrap();
}
