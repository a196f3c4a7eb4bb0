//! Accounts with a sequence: gaps, late posters, and many posters at once.

use std::sync::Arc;
use std::time::Duration;

use bson::rawdoc;
use handfast_patterns::Error;
use handfast_patterns::ledger::{Change, EntryState, Ledger, NewAccount, NewEntry, Page, Posting};
use handfast_store::decorator::{Fault, Faulty, Operation};
use handfast_store::{DocumentStore, StoreExt};
use tokio::task::JoinHandle;

use super::{HOUR, all, balance, books, commit_all, open, posted, posters};
use crate::crash::World;
use crate::fault::{first, wait_until_frozen};

async fn prepared() -> (World, Ledger) {
    let world = World::in_memory();
    let ledger = open(&world).await.unwrap();
    ledger.open_account(NewAccount::new("fees", "EUR").with_sequence()).await.unwrap();
    for payer in [1, 2] {
        posted(&ledger, NewEntry::transfer(payer, "fees", 1, "EUR")).await;
    }
    (world, ledger)
}

/// Returns a ledger of which one poster has drawn place 3 and is slow to insert its entry; others have 4 and 5.
async fn with_a_gap() -> (World, Ledger, Arc<Faulty<dyn DocumentStore>>, JoinHandle<Posting>) {
    let (world, ledger) = prepared().await;
    let slow = world.fault_at(first(Operation::Insert, "tx"), Fault::FreezeBefore);
    let poster = open(&world.process(3).on(slow.clone())).await.unwrap();
    let late = tokio::spawn(async move { poster.post(NewEntry::transfer(3, "fees", 100, "EUR")).await.unwrap() });
    wait_until_frozen(&slow, &late).await;
    for payer in [4, 5] {
        posted(&ledger, NewEntry::transfer(payer, "fees", 1, "EUR")).await;
    }
    (world, ledger, slow, late)
}

async fn fees(ledger: &Ledger) -> Vec<String> {
    let lines = ledger.statement("fees", Page::After(0), 100).await.unwrap().lines;
    let shown = lines.iter().map(|line| format!("{} {} {}", line.change.seq_id, line.status.state, line.balance));
    shown.collect()
}

/// The committer waits for a place that was drawn, and commits in order once its entry has come.
#[tokio::test]
async fn a_place_that_was_drawn_is_waited_for() {
    let (world, ledger, slow, late) = with_a_gap().await;
    assert_eq!(ledger.commit(50).await.unwrap().done, 2);
    let seen = ledger.balance("fees").await.unwrap().unwrap();
    assert_eq!((seen.balance, seen.anchor_seq_id, seen.seq_id, seen.missing), (4, 2, 5, 1));
    let verified = ledger.verify("fees").await.unwrap();
    assert!(verified.is_clean() && verified.in_flight == 1, "{verified:?}");
    slow.release();
    assert!(matches!(late.await.unwrap(), Posting::Posted(entry) if entry.changes[1].seq_id == 3));
    assert_eq!(commit_all(&ledger).await, 3);
    assert_eq!(fees(&ledger).await, ["1 VALID 1", "2 VALID 2", "3 VALID 102", "4 VALID 103", "5 VALID 104"]);
    books::check(&world).await.unwrap();
}

/// After a while an entry that counts for nothing takes the place, and the late poster draws another one.
#[tokio::test]
async fn a_late_poster_draws_another_place() {
    let (world, ledger, slow, late) = with_a_gap().await;
    world.clock.advance(Duration::from_secs(59));
    assert_eq!(commit_all(&ledger).await, 2);
    world.clock.advance(Duration::from_secs(2));
    assert_eq!(commit_all(&ledger).await, 3, "the abandoned place, and the two behind it");
    slow.release();
    assert!(matches!(late.await.unwrap(), Posting::Posted(entry) if entry.changes[1].seq_id == 6));
    assert_eq!(commit_all(&ledger).await, 1);
    let expected = ["1 VALID 1", "2 VALID 2", "3 ABANDONED 2", "4 VALID 3", "5 VALID 4", "6 VALID 104"];
    assert_eq!(fees(&ledger).await, expected);
    books::check(&world).await.unwrap();
    let verified = ledger.verify_all().await.unwrap();
    assert!(verified.is_clean() && verified.in_flight == 0, "{verified:?}");
}

/// A poster that loses the race for another account gives up the place that it has drawn, and draws again.
#[tokio::test]
async fn a_lost_race_leaves_an_abandoned_place() {
    let (world, ledger) = prepared().await;
    let slow = world.fault_at(first(Operation::Insert, "tx"), Fault::FreezeBefore);
    let poster = open(&world.on(slow.clone())).await.unwrap();
    let losing = tokio::spawn(async move { poster.post(NewEntry::transfer(1, "fees", 10, "EUR")).await.unwrap() });
    wait_until_frozen(&slow, &losing).await;
    posted(&ledger, NewEntry::transfer(1, "fees", 1, "EUR")).await;
    slow.release();
    // Otherwise it would be before the other entry in the fees (3, 4), and after it in the payer's account.
    assert!(matches!(losing.await.unwrap(), Posting::Posted(entry) if entry.changes[1].seq_id == 5));
    assert_eq!(commit_all(&ledger).await, 5, "at once: nobody has to wait for the place that was given up");
    assert_eq!(fees(&ledger).await[2], "3 ABANDONED 2");
    books::check(&world).await.unwrap();
}

/// An account with entries gets a sequence; a sequence that is behind the existing entries continues after them.
#[tokio::test]
async fn a_sequence_goes_on_behind_what_is_there() {
    let world = World::in_memory();
    let ledger = open(&world).await.unwrap();
    posted(&ledger, NewEntry::transfer("A", "B", 1, "EUR")).await;
    let opened = ledger.open_account(NewAccount::new("B", "EUR").with_sequence()).await;
    assert!(matches!(opened, Err(Error::Invalid { .. })), "it is open without one");
    // Its document is lost, and the account is opened anew; then a number is lost, too.
    world.store.delete_one(&world.namespace("account"), rawdoc! { "_id": "B" }).await.unwrap();
    ledger.open_account(NewAccount::new("B", "EUR").with_sequence()).await.unwrap();
    for last in [1_i64, 0] {
        let set = rawdoc! { "$set": { "lastSeqId": last } };
        world.store.update_one(&world.namespace("account"), rawdoc! { "_id": "B" }, set).await.unwrap();
        posted(&ledger, NewEntry::transfer("A", "B", 1, "EUR")).await;
    }
    assert_eq!(commit_all(&ledger).await, 3);
    assert_eq!(ledger.account("B").await.unwrap().unwrap().last_seq_id, Some(3));
    ledger.open_account(NewAccount::new("C", "EUR").with_sequence()).await.unwrap();
    let error = ledger.post(NewEntry::transfer("B", "C", 1, "EUR")).await.unwrap_err();
    assert!(error.to_string().contains("one account with a sequence at most"), "{error}");
    books::check(&world).await.unwrap();
}

/// A clock that is ahead makes entries look young that others wait for: they are found through those that wait.
#[tokio::test]
async fn entries_are_committed_in_the_order_of_places_whatever_the_clocks_say() {
    let world = World::in_memory();
    let ledger = open(&world).await.unwrap();
    for number in 0..30 {
        let ts = bson::DateTime::from_millis(world.sources.clock.now().timestamp_millis() - number * 1000);
        posted(
            &ledger,
            NewEntry::transfer(format!("a{}", number % 3), format!("a{}", number % 2 + 3), 1, "EUR").at(ts),
        )
        .await;
    }
    let mut rounds = 0;
    while ledger.commit(1).await.unwrap().done > 0 {
        rounds += 1;
        books::check(&world).await.unwrap();
    }
    assert!((1..=30).contains(&rounds), "{rounds}");
    assert!(ledger.uncommitted(1).await.unwrap().is_empty());
}

/// Sixteen posters use one account with a sequence and a few shared accounts, while two committers work.
#[tokio::test(flavor = "multi_thread")]
async fn many_posters_share_an_account_with_a_sequence() {
    let world = World::in_memory();
    let ledger = open(&world).await.unwrap();
    ledger.open_account(NewAccount::new("fees", "EUR").with_sequence()).await.unwrap();
    let tasks: Vec<_> = (0..16_u32)
        .map(|poster| {
            let world = posters::lossy(&world.process(poster + 10), poster);
            tokio::spawn(async move {
                let ledger = posters::opened(&world).await;
                for number in 0..10 {
                    let payer = format!("user {}", world.sources.random.next_u64() % 5);
                    let entry = NewEntry::new([
                        Change::new(payer, -3, "EUR"),
                        Change::new("fees", 1, "EUR").called("fee"),
                        Change::new(format!("shop {poster}"), 2, "EUR"),
                    ]);
                    assert!(posters::insist(&ledger, &entry.with_id(format!("{poster}/{number}"))).await);
                    if poster < 2 {
                        let _ = ledger.commit(10).await;
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(balance(&ledger, "fees").await, 160);
    // A place that was drawn twice, because an answer was lost, is a gap until the committer has waited long enough.
    posted(&ledger, NewEntry::transfer("user 0", "fees", 1, "EUR")).await;
    world.clock.advance(HOUR);
    commit_all(&ledger).await;
    assert!(ledger.uncommitted(1).await.unwrap().is_empty());
    books::check(&world).await.unwrap();
    let verified = ledger.verify_all().await.unwrap();
    assert!(verified.is_clean() && verified.in_flight == 0, "{verified:?}");
    let valid = all(&world, "tx").await.iter().filter(|entry| entry.get("state") == Some(&"VALID".into())).count();
    assert_eq!(valid, 161);
    assert!(
        all(&world, "tx").await.iter().any(|entry| entry.get("state") == Some(&EntryState::Abandoned.name().into()))
    );
}
