//! Several committers at once, beside cancels: each entry becomes final once, in its last state.

use std::time::Duration;

use bson::rawdoc;
use handfast_patterns::Round;
use handfast_patterns::ledger::{Cancel, EntryState, NewEntry, Proc};
use handfast_store::StoreExt;
use handfast_store::decorator::{Fault, Operation};

use super::{all, balance, books, cancels, commit_all, open, posted, posters};
use crate::crash::World;
use crate::fault::{second, third, wait_until_frozen};

/// The committer is about to commit an entry as valid when it is canceled: it is committed as canceled.
#[tokio::test]
async fn an_entry_canceled_during_its_commit_is_committed_as_canceled() {
    let (world, ledger) = cancels::paid().await;
    // The deposit is committed first, then the payment.
    let slow = world.fault_at(second(Operation::Update, "tx"), Fault::FreezeBefore);
    let committer = open(&world.on(slow.clone())).await.unwrap();
    let committing = tokio::spawn(async move { committer.commit(50).await.unwrap() });
    wait_until_frozen(&slow, &committing).await;
    assert_eq!(ledger.cancel(1, "a mistake").await.unwrap(), Cancel::Canceled);
    slow.release();
    assert_eq!(committing.await.unwrap().done, 2);
    let payment = ledger.show(1).await.unwrap().unwrap();
    assert_eq!((payment.status.proc, payment.status.state), (Proc::Committed, EntryState::Canceled));
    assert_eq!(payment.changes[1].cached_balance, Some(0));
    commit_all(&ledger).await;
    books::check(&world).await.unwrap();
}

/// A cancel is about to mark an entry when it is committed: an entry of its own reverses it.
#[tokio::test]
async fn an_entry_committed_during_its_cancel_is_reversed() {
    let (world, ledger) = cancels::paid().await;
    let slow = world.fault_at(cancels::cancellation(), Fault::FreezeBefore);
    let canceller = open(&world.on(slow.clone())).await.unwrap();
    let canceling = tokio::spawn(async move { canceller.cancel(1, "a mistake").await.unwrap() });
    wait_until_frozen(&slow, &canceling).await;
    assert!(ledger.commit(50).await.unwrap().done > 1);
    slow.release();
    assert!(matches!(canceling.await.unwrap(), Cancel::Reversed(_)));
    assert_eq!((balance(&ledger, "A").await, balance(&ledger, "B").await), (100, 0));
    commit_all(&ledger).await;
    books::check(&world).await.unwrap();
}

/// A slow committer does not set an account's cache back.
#[tokio::test]
async fn a_cache_only_goes_forward() {
    let (world, ledger) = cancels::paid().await;
    // The documents of three accounts get a new cache.
    let slow = world.fault_at(third(Operation::Update, "account"), Fault::FreezeBefore);
    let committer = open(&world.on(slow.clone())).await.unwrap();
    let committing = tokio::spawn(async move { committer.commit(50).await.unwrap() });
    wait_until_frozen(&slow, &committing).await;
    for _ in 0..3 {
        for account in ["A", "B"] {
            posted(&ledger, NewEntry::transfer("cash", account, 1, "EUR")).await;
        }
    }
    commit_all(&ledger).await;
    let before = all(&world, "account").await;
    slow.release();
    assert_eq!(committing.await.unwrap().done, 2);
    assert_eq!(all(&world, "account").await, before);
    books::check(&world).await.unwrap();
}

/// Four committers work at once while entries are posted.
#[tokio::test(flavor = "multi_thread")]
async fn many_committers_commit_each_entry_once() {
    let world = World::in_memory();
    let ledger = open(&world).await.unwrap();
    for number in 0..100 {
        posted(&ledger, NewEntry::transfer(number % 7, number % 5 + 7, 1, "EUR")).await;
    }
    let tasks: Vec<_> = (0..4_u32)
        .map(|number| {
            let world = posters::lossy(&world.process(number + 10), number);
            tokio::spawn(async move {
                let ledger = posters::opened(&world).await;
                while !ledger.uncommitted(1).await.unwrap().is_empty() {
                    let _ = ledger.commit(7).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    books::check(&world).await.unwrap();
    assert!(ledger.verify_all().await.unwrap().is_clean());
}

/// An entry is lost, and more entries wait after it than fit into a page: those of other accounts are still committed.
#[tokio::test]
async fn many_entries_that_wait_keep_no_others_waiting() {
    let world = World::in_memory();
    let ledger = open(&world).await.unwrap();
    let pay = async |id: i32, from: &str, to: &str| {
        posted(&ledger, NewEntry::transfer(from, to, 1, "EUR").with_id(id)).await;
        world.clock.advance(Duration::from_millis(1));
    };
    for id in 1..=12 {
        pay(id, "A", "B").await;
    }
    world.store.delete_one(&world.namespace("tx"), rawdoc! { "_id": 2 }).await.unwrap();
    // These entries wait for B, and for one another.
    for (from, to) in [("B", "C"), ("C", "D"), ("D", "G"), ("C", "G"), ("D", "B"), ("G", "C")] {
        pay(20 + all(&world, "tx").await.len() as i32, from, to).await;
    }
    for id in 41..=43 {
        pay(id, "E", "F").await;
    }
    let round = ledger.commit(5).await.unwrap();
    assert_eq!((round.done, round.more), (4, false), "{round:?}");
    assert_eq!((balance(&ledger, "E").await, balance(&ledger, "F").await), (-3, 3));
    let committed =
        all(&world, "tx").await.into_iter().filter(|entry| entry.get_str("proc").is_ok_and(|proc| proc == "COMMITTED"));
    let committed: Vec<_> = committed.filter_map(|entry| entry.get_i32("_id").ok()).collect();
    assert_eq!(committed, [1, 41, 42, 43]);
    assert_eq!(ledger.commit(5).await.unwrap().done, 0);
    // The waiting entries are committed when the gap is closed.
    for account in ["A", "B"] {
        assert_eq!(ledger.abandon(account, 2..=2, "lost").await.unwrap(), 1);
    }
    let mut done = 0;
    while let round @ Round { done: 1.., .. } = ledger.commit(5).await.unwrap() {
        assert_eq!(round.failed, 0);
        done += round.done;
    }
    assert_eq!(done, 10 + 2 + 6);
    books::check(&world).await.unwrap();
}
