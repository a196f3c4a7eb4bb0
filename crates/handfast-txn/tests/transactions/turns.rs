//! Transactions that want a document which another transaction is about to write: some wait, others get a conflict.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use handfast_store::{MemoryStore, Sources};
use handfast_txn::{Database, Error, OnRetry, Transaction, TransactionOptions};

use super::{balance, on_each, opened, pay};

/// The most attempts to have a closure reach its write while another transaction is open.
const ATTEMPTS_MAX: usize = 100;

/// Runs a transfer in the closure form beside an open transaction that has taken 3 from Bob and committed that later. Returns how often
/// the closure ran.
async fn runs_beside_a_writer_of_bob(database: Database, reads_first: bool) -> usize {
    let writer = database.begin().await.unwrap();
    pay(&writer, "Bob", -3).await.unwrap();
    pay(&writer, "Joe", 3).await.unwrap();
    let runs = Arc::new(AtomicUsize::new(0));
    let (of_task, counted) = (database.clone(), Arc::clone(&runs));
    let (began, mut begins) = tokio::sync::mpsc::unbounded_channel();
    let transfer = tokio::spawn(async move {
        of_task
            .transaction(|tx| {
                let (counted, began) = (Arc::clone(&counted), began.clone());
                async move {
                    counted.fetch_add(1, Ordering::SeqCst);
                    let before = if reads_first { balance(&tx, "Joe").await } else { None };
                    began.send(()).unwrap();
                    pay(&tx, "Bob", -1).await?;
                    let sum = balance(&tx, "Bob").await.unwrap() + balance(&tx, "Joe").await.unwrap();
                    assert!(
                        before.is_none_or(|before| before == 5),
                        "Joe was read before the other commit: {before:?}"
                    );
                    assert_eq!(sum, 11, "both are of one snapshot");
                    pay(&tx, "Joe", 1).await
                }
            })
            .await
    });
    begins.recv().await.unwrap();
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert!(!transfer.is_finished());
    writer.commit().await.unwrap();
    transfer.await.unwrap().unwrap();
    assert_eq!((balance(&database, "Bob").await, balance(&database, "Joe").await), (Some(6), Some(6)));
    assert_eq!(database.counts().open(), 0);
    pay(&database, "Bob", 4).await.unwrap();
    pay(&database, "Joe", -4).await.unwrap();
    runs.load(Ordering::SeqCst)
}

#[tokio::test]
async fn a_closure_that_writes_first_waits_for_its_document_and_runs_once() {
    on_each(|database| async move {
        // If the other transaction commits before the closure has reached its write, the closure has the older snapshot.
        for _ in 0..ATTEMPTS_MAX {
            let before = database.counts().retries;
            if runs_beside_a_writer_of_bob(database.clone(), false).await == 1 {
                assert_eq!(database.counts().retries, before);
                return;
            }
        }
        panic!("it ran again at each of {ATTEMPTS_MAX} attempts");
    })
    .await;
}

#[tokio::test]
async fn a_closure_that_has_read_keeps_its_snapshot_and_runs_again() {
    on_each(|database| async move {
        assert_eq!(runs_beside_a_writer_of_bob(database.clone(), true).await, 2);
        assert_eq!(database.counts().retries, 1);
    })
    .await;
}

/// A transaction that was refused Bob claims him when it is run again. If it then waited for Joe, no other transaction could claim Bob
/// meanwhile.
#[tokio::test(start_paused = true)]
async fn a_transaction_with_a_claim_waits_for_no_other_document() {
    let database = opened(MemoryStore::new(Sources::seeded(1))).await;
    let (of_bob, of_joe) = (database.begin().await.unwrap(), database.begin().await.unwrap());
    pay(&of_bob, "Bob", 1).await.unwrap();
    pay(&of_joe, "Joe", 1).await.unwrap();
    let (retried, mut retries) = tokio::sync::mpsc::unbounded_channel();
    let on_retry = OnRetry::new(move |_| retried.send(()).unwrap());
    let (of_task, runs) = (database.clone(), Arc::new(AtomicUsize::new(0)));
    let task = tokio::spawn(async move {
        let options = TransactionOptions { on_retry, ..TransactionOptions::default() };
        let run = |tx: Transaction| {
            let is_first = runs.fetch_add(1, Ordering::SeqCst) == 0;
            async move {
                if is_first {
                    balance(&tx, "Joe").await;
                } else {
                    pay(&tx, "Joe", 1).await?;
                }
                pay(&tx, "Bob", 1).await.map_err(Error::from)
            }
        };
        of_task.transaction_with(options, run).await
    });
    retries.recv().await.unwrap();
    of_bob.commit().await.unwrap();
    let refused = tokio::time::timeout(Duration::from_secs(1), retries.recv()).await;
    refused.expect("it waits for Joe while it has Bob").unwrap();
    let other = database.begin().await.unwrap();
    pay(&other, "Bob", 1).await.unwrap();
    other.commit().await.unwrap();
    of_joe.commit().await.unwrap();
    task.await.unwrap().unwrap();
    assert_eq!((balance(&database, "Bob").await, balance(&database, "Joe").await), (Some(13), Some(4)));
}

/// Eight transactions find the document claimed for longer than they would sleep. Each is run again when its turn comes, not before.
#[tokio::test(start_paused = true)]
async fn a_transaction_that_finds_a_claimed_document_waits_for_its_turn() {
    let database = opened(MemoryStore::new(Sources::seeded(1))).await;
    let holder = database.begin().await.unwrap();
    pay(&holder, "Bob", 1).await.unwrap();
    let others = (0..8).map(|_| {
        let database = database.clone();
        tokio::spawn(async move {
            let run = |tx: Transaction| async move {
                balance(&tx, "Joe").await;
                pay(&tx, "Bob", 1).await.map_err(Error::from)
            };
            database.transaction(run).await
        })
    });
    let others: Vec<_> = others.collect();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(database.counts().retries, 8);
    holder.commit().await.unwrap();
    for other in others {
        other.await.unwrap().unwrap();
    }
    assert_eq!(balance(&database, "Bob").await, Some(19));
    assert_eq!(database.counts().retries, 8, "nobody was refused twice");
}
