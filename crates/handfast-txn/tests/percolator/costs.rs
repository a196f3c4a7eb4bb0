//! What a transaction costs, counted.

use std::sync::Arc;

use bson::{Document, rawdoc};
use handfast_store::decorator::{Faulty, Metered, Operation, Plan};
use handfast_store::{DocumentStore, Find, MemoryStore, StoreExt};
use handfast_txn::{Database, Result};

use crate::support::*;

/// Bob pays Joe 7 through a store that stops before each operation: those that stand there at the same time are one round
/// trip. Returns those up to the commit point, and all.
async fn round_trips(bank: &Bank) -> (u64, u64) {
    let store = stepped(bank.store.clone());
    let database = bank.process_over(store.clone());
    let payment = tokio::spawn(async move {
        // What a process looks at once: the oracle, the indexes of the collection.
        let tx = database.begin().await?;
        tx.insert_one(&accounts(), rawdoc! { "_id": "Ann" }).await?;
        tx.abort();
        pay_once(&database).await?;
        database.flush().await.unwrap();
        Ok(())
    });
    let payment: Stepped = Stepped { store, payment };
    let (mut rounds, mut begun, mut committed) = (0, None, None);
    while stopped(&payment.store, || payment.payment.is_finished()).await {
        rounds += 1;
        payment.store.release();
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        let hidden = bank.hidden().await;
        if begun.is_none() && bank.clock_of_oracle().await > 7 {
            begun = Some(rounds - 1);
        }
        if committed.is_none() && half_committed(&hidden) {
            committed = Some(rounds);
        }
    }
    payment.finish().await.unwrap();
    let (begun, committed) = (begun.unwrap(), committed.unwrap());
    (committed - begun, rounds - begun)
}

/// Start, both documents, both locks, commit timestamp, commit point: five, and then the answer. Behind it, one more, and
/// the flush of the test.
#[tokio::test]
async fn a_transfer_takes_five_round_trips() {
    let bank = Bank::of_the_seed().await;
    let (to_the_answer, all) = round_trips(&bank).await;
    // The contract asks for the first page by itself; a server sends it with the answer to the find.
    let first_page = 1;
    assert_eq!((to_the_answer - first_page, all - first_page), (5, 7));
}

/// What was asked of the store, by operation.
fn counted(store: &Metered<Arc<MemoryStore>>) -> impl Fn(Operation) -> u64 {
    let report = store.report();
    move |operation| report.iter().find(|of| of.operation == operation).map_or(0, |of| of.started)
}

/// Sets the balances of so many documents, which are there.
async fn set_all(database: &Database, documents: i32) -> Result<()> {
    let tx = database.begin().await?;
    let ids: Vec<i32> = (0..documents).collect();
    let array: bson::RawArrayBuf = ids.iter().map(|id| bson::RawBson::Int32(*id)).collect();
    tx.find_all(Find::new(accounts(), rawdoc! { "_id": { "$in": array } })).await?;
    for id in ids {
        tx.update_one(&accounts(), rawdoc! { "_id": id }, rawdoc! { "$inc": { "balance": 1 } }).await?;
    }
    tx.commit().await.map(drop)
}

#[tokio::test]
async fn n_updated_documents_cost_two_n_writes() {
    for documents in [1, 2, 5, 20] {
        let bank = Bank::of_the_seed().await;
        for id in 0..documents {
            bank.store.insert_one(&accounts(), rawdoc! { "_id": id, "balance": 0 }).await.unwrap();
        }
        let metered = Arc::new(Metered::new(bank.store.clone(), bank.sources.clock.clone()));
        let database = bank.process_over(metered.clone());
        database.begin().await.unwrap().abort();
        let before = counted(&metered)(Operation::FindAndModify);
        set_all(&database, documents).await.unwrap();
        database.flush().await.unwrap();
        let counted = counted(&metered);
        assert_eq!(counted(Operation::Update), 2 * documents as u64);
        assert_eq!(counted(Operation::Insert) + counted(Operation::Delete), 0);
        // Start and commit.
        assert_eq!(counted(Operation::FindAndModify) - before, 2);
        assert_eq!(counted(Operation::Find), 1);
    }
}

/// N + 1 of them before the answer.
#[tokio::test]
async fn the_other_rows_are_written_behind_the_answer() {
    let bank = Bank::of_the_seed().await;
    let payment = Stepped::payment_without_flush(&bank);
    payment.until(&bank, half_committed).await;
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    // Answered, while the write to Joe's row has not left yet.
    assert!(payment.payment.is_finished());
    assert!(half_committed(&bank.hidden().await));
    payment.finish().await.unwrap();
}

/// Those who ask for timestamps at the same time share a round trip.
#[tokio::test]
async fn timestamps_are_fetched_together() {
    let bank = Bank::of_the_seed().await;
    let counting = Arc::new(Faulty::new(bank.store.clone(), Plan::none()));
    let database = bank.process_over(counting.clone());
    database.begin().await.unwrap().abort();
    let slow = stepped(bank.store.clone());
    let database = bank.process_over(slow.clone());
    let mut waiting = Vec::new();
    for _ in 0..64 {
        let database = database.clone();
        waiting.push(tokio::spawn(async move { database.begin().await.unwrap().read_at().unwrap().0 }));
    }
    let mut rounds = 0;
    while stopped(&slow, || waiting.iter().all(tokio::task::JoinHandle::is_finished)).await {
        rounds += 1;
        slow.release();
    }
    // A look at the oracle, one move for the first, one for all the others.
    assert!(rounds <= 3, "{rounds}");
    let mut timestamps = Vec::new();
    for one in waiting {
        timestamps.push(one.await.unwrap());
    }
    timestamps.sort_unstable();
    timestamps.dedup();
    assert_eq!(timestamps.len(), 64);
}

/// The fields that a document has besides its own.
#[tokio::test]
async fn a_plain_reader_sees_ordinary_documents() {
    let bank = Bank::of_the_seed().await;
    pay_once(&bank.process()).await.unwrap();
    let names = |row: &Document| row.keys().cloned().collect::<Vec<_>>();
    for row in bank.rows().await {
        assert_eq!(names(&row), ["_id", "balance", "_hf"]);
    }
}
