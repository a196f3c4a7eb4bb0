//! The operations and round trips of a transaction are counted.

use std::sync::Arc;
use std::time::Duration;

use bson::{Document, rawdoc};
use handfast_store::decorator::{Fault, Faulty, Metered, Operation, Plan};
use handfast_store::{
    DocumentStore, Find, MemoryStore, RequestedDocument, StoreExt, Ticket, Update, UpdateSpec, UpdateStatement,
};
use handfast_txn::{Database, Result};

use crate::support::*;

/// The maximal number of round trips, as documented, from the start of a transfer to its answer.
const ROUND_TRIPS_MAX: usize = 5;

/// Makes a payment through a store that stops before each operation. Returns the operations that wait at the same time, round by round: up
/// to the commit point, and after it.
async fn rounds_of_a_transfer(bank: &Bank) -> (Vec<Vec<Operation>>, Vec<Vec<Operation>>) {
    let store = stepped(bank.store.clone());
    let database = bank.process_over(store.clone());
    let payment = tokio::spawn(async move {
        // A process reads some things once: the oracle, the indexes of the collection, and the engine's indexes that it creates there.
        let tx = database.begin().await?;
        tx.insert_one(&accounts(), rawdoc! { "_id": "Ann" }).await?;
        tx.abort();
        database.flush().await.unwrap();
        pay_once(&database).await?;
        database.flush().await.unwrap();
        Ok(())
    });
    let payment: Stepped = Stepped { store, payment };
    let (mut before, mut behind, mut begun, mut has_committed) = (Vec::new(), Vec::new(), None, false);
    while stopped(&payment.store, || payment.payment.is_finished()).await {
        let sent = payment.store.frozen_operations().into_iter().map(|(_, operation)| operation).collect();
        if has_committed {
            behind.push(sent);
        } else {
            before.push(sent);
        }
        payment.store.release();
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        if begun.is_none() && bank.clock_of_oracle().await > 7 {
            begun = Some(before.len() - 1);
        }
        has_committed |= half_committed(&bank.hidden().await);
    }
    payment.finish().await.unwrap();
    (before.split_off(begun.unwrap()), behind)
}

/// Each operation of the contract that has to wait for another is a round; a round of only the first page of a find is none on a server,
/// which sends that page with the answer to the find.
#[tokio::test]
async fn a_transfer_takes_five_round_trips() {
    use Operation::{Find, FindAndModify, Flush, NextPage, Update};
    let bank = Bank::of_the_seed().await;
    let (before, behind) = rounds_of_a_transfer(&bank).await;
    let (start, read, lock) = (vec![FindAndModify], [vec![Find], vec![NextPage]], vec![Update, Update]);
    let (timestamp, commit_point) = (vec![FindAndModify], vec![Update]);
    assert_eq!(before, [&[start], &read[..], &[lock, timestamp, commit_point]].concat());
    let round_trips = before.iter().filter(|round| **round != [NextPage]).count();
    assert_eq!(round_trips, ROUND_TRIPS_MAX);
    // The other row is written; then comes the flush of the test.
    assert_eq!(behind, [vec![Update], vec![Flush]]);
}

/// Returns the number of requests to the store, by operation.
fn counted(store: &Metered<Arc<MemoryStore>>) -> impl Fn(Operation) -> u64 {
    let report = store.report();
    move |operation| report.iter().find(|of| of.operation == operation).map_or(0, |of| of.started)
}

/// Updates the balances of `documents` documents that exist.
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
        // One takes the start timestamp, one the commit timestamp.
        assert_eq!(counted(Operation::FindAndModify) - before, 2);
        assert_eq!(counted(Operation::Find), 1);
    }
}

/// An update that a driver may send again has a record as its second row, which is read before the document.
#[tokio::test]
async fn an_update_with_a_ticket_takes_six_round_trips() {
    use Operation::{Find, FindAndModify, NextPage, Update as Write};
    let bank = Bank::of_the_seed().await;
    let store = stepped(bank.store.clone());
    let database = bank.process_over(store.clone());
    let updates = tokio::spawn(async move {
        for number in 1..=3 {
            let ticket = Some(Ticket { session: [3; 16], number, statement: 0, requested: RequestedDocument::Nothing });
            let bonus = UpdateSpec::Document(rawdoc! { "$inc": { "balance": 7 } });
            let statement = UpdateStatement::one(rawdoc! { "_id": "Bob" }, bonus);
            database.update(Update { ticket, ..Update::new(accounts(), vec![statement]) }).await?;
            database.flush().await.unwrap();
        }
        Ok(())
    });
    let updates: Stepped = Stepped { store, payment: updates };
    let mut rounds = Vec::new();
    while stopped(&updates.store, || updates.payment.is_finished()).await {
        rounds.push(updates.store.frozen_operations().into_iter().map(|(_, operation)| operation).collect::<Vec<_>>());
        updates.store.release();
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
    }
    updates.finish().await.unwrap();
    // The last two flushes enclose the last update; its record is written after its answer.
    let flushes: Vec<_> = (0..rounds.len()).filter(|place| rounds[*place] == [Operation::Flush]).collect();
    let [.., before, last] = flushes[..] else { panic!("{rounds:?}") };
    let (read, lock) = (vec![vec![Find], vec![NextPage]], vec![Write, Write]);
    let (start, timestamp) = (vec![FindAndModify], vec![FindAndModify]);
    let expected = [vec![start], read.clone(), read, vec![lock, timestamp, vec![Write], vec![Write]]].concat();
    assert_eq!(rounds[before + 1..last], expected);
}

/// N + 1 of the writes come before the answer: all locks, and the commit point.
#[tokio::test(start_paused = true)]
async fn n_plus_one_of_them_come_before_the_answer() {
    for documents in [1, 2, 5, 20] {
        let bank = Bank::of_the_seed().await;
        for id in 0..documents {
            bank.store.insert_one(&accounts(), rawdoc! { "_id": id, "balance": 0 }).await.unwrap();
        }
        let metered = Arc::new(Metered::new(bank.store.clone(), bank.sources.clock.clone()));
        let gate = Arc::new(Faulty::new(metered.clone(), Plan::always(Fault::FreezeBefore)));
        let database = bank.process_over(gate.clone());
        let setting = tokio::spawn(async move { set_all(&database, documents).await });
        let wait = async || tokio::time::sleep(Duration::from_millis(1)).await;
        while !setting.is_finished() {
            gate.release();
            wait().await;
        }
        setting.await.unwrap().unwrap();
        assert_eq!(counted(&metered)(Operation::Update), documents as u64 + 1);
        while gate.frozen() > 0 {
            gate.release();
            wait().await;
        }
        assert_eq!(counted(&metered)(Operation::Update), 2 * documents as u64);
    }
}

/// On a store that takes a millisecond for each request a transfer takes as many milliseconds as the protocol has round trips, and one for
/// the first page of the find, which a server sends with the answer to it.
#[tokio::test(start_paused = true)]
#[allow(clippy::disallowed_methods, reason = "the runtime's time, which stands still but for the pauses")]
async fn a_transfer_takes_as_long_as_its_round_trips() {
    let bank = Bank::of_the_seed().await;
    let round_trip = Duration::from_millis(1);
    let slow = Arc::new(Faulty::new(bank.store.clone(), Plan::always(Fault::Delay(round_trip))));
    let database = bank.process_over(slow);
    pay_once(&database).await.unwrap();
    database.flush().await.unwrap();
    for _ in 0..3 {
        let begun = tokio::time::Instant::now();
        pay_once(&database).await.unwrap();
        let (round_trips, first_page) = (ROUND_TRIPS_MAX as u32, 1);
        assert_eq!(begun.elapsed(), (round_trips + first_page) * round_trip);
        database.flush().await.unwrap();
    }
}

/// The writes to the other rows follow without a request.
#[tokio::test]
async fn the_other_rows_are_written_behind_the_answer() {
    let bank = Bank::of_the_seed().await;
    let payment = Stepped::payment_without_flush(&bank);
    payment.until(&bank, half_committed).await;
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    // The payment is answered, while the write to Joe's row has not been sent yet.
    assert!(payment.payment.is_finished());
    assert!(half_committed(&bank.hidden().await));
    payment.finish().await.unwrap();
}

/// Transactions that ask for timestamps at the same time share a round trip.
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
    // The oracle is read once, and moved once for the first and once for all the others.
    assert!(rounds <= 3, "{rounds}");
    let mut timestamps = Vec::new();
    for one in waiting {
        timestamps.push(one.await.unwrap());
    }
    timestamps.sort_unstable();
    timestamps.dedup();
    assert_eq!(timestamps.len(), 64);
}

/// A plain reader sees the hidden field besides a document's own fields.
#[tokio::test]
async fn a_plain_reader_sees_ordinary_documents() {
    let bank = Bank::of_the_seed().await;
    pay_once(&bank.process()).await.unwrap();
    let names = |row: &Document| row.keys().cloned().collect::<Vec<_>>();
    for row in bank.rows().await {
        assert_eq!(names(&row), ["_id", "balance", "_hf"]);
    }
}
