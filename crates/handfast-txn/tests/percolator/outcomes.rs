//! Each process that has the name of a transaction can ask the store for its outcome.

use std::sync::Arc;
use std::time::Duration;

use bson::rawdoc;
use handfast_mql::Code;
use handfast_store::decorator::{Fault, Faulty, Metered, Operation, Plan};
use handfast_store::{DocumentStore, StoreExt};
use handfast_txn::{Database, Error, Outcome, Percolator, Result, TransactionId, TransactionOptions};

use crate::support::*;

fn name(number: i64) -> TransactionId {
    TransactionId { session: [9; 16], number }
}

/// Moves 7 from Bob to Joe, in a transaction with a name.
async fn pay_as(database: &Database, id: TransactionId) -> Result<()> {
    let tx = database.begin_with(TransactionOptions { id: Some(id), ..TransactionOptions::default() }).await?;
    pay(&tx).await?;
    tx.commit().await.map(drop)
}

async fn is_committed(bank: &Bank, id: TransactionId) -> bool {
    matches!(bank.process().outcome(id).await.unwrap(), Outcome::Committed(_))
}

#[tokio::test]
async fn another_process_knows_the_outcome() {
    let bank = Bank::of_the_seed().await;
    let process = bank.process();
    let tx = process.begin().await.unwrap();
    let committed = tx.id();
    pay(&tx).await.unwrap();
    let at = tx.commit().await.unwrap();
    let tx = process.begin().await.unwrap();
    let rolled_back = tx.id();
    pay(&tx).await.unwrap();
    tx.abort();
    process.flush().await.unwrap();
    for _ in 0..2 {
        assert_eq!(process.outcome(committed).await.unwrap(), Outcome::Committed(at));
        assert_eq!(bank.process().outcome(committed).await.unwrap(), Outcome::Committed(at));
        assert_eq!(bank.process().outcome(rolled_back).await.unwrap(), Outcome::RolledBack);
        assert_eq!(bank.process().outcome(name(1)).await.unwrap(), Outcome::RolledBack);
    }
    assert_eq!(bank.balances().await, (3, 9));
}

/// A transaction whose name was not asked for leaves no record. Its id shows that, so that no process concludes that it was
/// rolled back.
#[tokio::test]
async fn without_a_name_there_is_no_record() {
    let bank = Bank::of_the_seed().await;
    let process = bank.process();
    let tx = process.begin().await.unwrap();
    pay(&tx).await.unwrap();
    let late = tx.clone();
    tx.commit().await.unwrap();
    assert_eq!(bank.records().await, 0);
    let id = late.id();
    assert!(!id.is_named());
    assert!(matches!(process.outcome(id).await.unwrap(), Outcome::Committed(_)));
    assert_eq!(bank.process().outcome(id).await.unwrap_err().code(), Code::NoSuchTransaction);
    let options = TransactionOptions { id: Some(id), ..TransactionOptions::default() };
    assert!(matches!(process.begin_with(options).await, Err(Error::Store(error)) if error.code() == Code::BadValue));
}

/// The record is the primary: one more row, and so two more writes.
#[tokio::test]
async fn a_name_costs_two_writes_and_a_read() {
    let count = async |id| {
        let bank = Bank::of_the_seed().await;
        let metered = Arc::new(Metered::new(bank.store.clone(), bank.sources.clock.clone()));
        let database = bank.process_over(metered.clone());
        let tx = database.begin_with(TransactionOptions { id, ..TransactionOptions::default() }).await.unwrap();
        pay(&tx).await.unwrap();
        tx.commit().await.unwrap();
        database.flush().await.unwrap();
        let report = metered.report();
        let of = |operation| report.iter().find(|of| of.operation == operation).map_or(0, |of| of.started);
        (of(Operation::Insert) + of(Operation::Update), of(Operation::Find))
    };
    assert_eq!(count(None).await, (4, 1));
    assert_eq!(count(Some(name(1))).await, (6, 2));
}

/// A process that asks during the commit waits for its end.
#[tokio::test]
async fn a_commit_under_way_is_waited_for() {
    let bank = Bank::of_the_seed().await;
    let store = stepped(bank.store.clone());
    let database = bank.process_over(store.clone());
    let payment = tokio::spawn(async move { pay_as(&database, name(1)).await });
    let payment = Stepped { store, payment };
    payment.until(&bank, both_locked).await;
    let asking = bank.process();
    let asked = tokio::spawn(async move { asking.outcome(name(1)).await.unwrap() });
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!asked.is_finished());
    payment.finish().await.unwrap();
    assert!(matches!(asked.await.unwrap(), Outcome::Committed(_)));
}

/// A commit that is frozen at any operation cannot commit after it was reported as rolled back.
#[tokio::test]
async fn a_reported_outcome_does_not_change() {
    let (mut committed, mut rolled_back) = (0, 0);
    // The loop begins with the operation after the start: a transaction that begins later is another attempt.
    for number in 2..OPERATIONS_MAX {
        let bank = Bank::of_the_seed().await;
        let faulty = Arc::new(Faulty::new(bank.store.clone(), Plan::at(number, Fault::FreezeBefore)));
        let database = bank.process_over(faulty.clone());
        let tx = database.begin().await.unwrap();
        let id = tx.id();
        assert_eq!(faulty.operations(), 2);
        let payment = tokio::spawn(async move {
            pay(&tx).await?;
            let paid = tx.commit().await.map(drop);
            database.flush().await.unwrap();
            paid
        });
        if !stopped(&faulty, || payment.is_finished()).await {
            payment.await.unwrap().unwrap();
            break;
        }
        bank.clock.advance(LOCK_TIME);
        let said = is_committed(&bank, id).await;
        faulty.release();
        let paid = payment.await.unwrap();
        assert_eq!(is_committed(&bank, id).await, said, "frozen at {number}: {paid:?}");
        assert_eq!(paid.is_ok(), said, "frozen at {number}: {paid:?}");
        assert_eq!(bank.balances().await, if said { (3, 9) } else { (10, 2) }, "frozen at {number}");
        *(if said { &mut committed } else { &mut rolled_back }) += 1;
    }
    // These operations come before the commit point: both documents with their page, the record, three locks, the commit
    // timestamp.
    assert!(rolled_back >= 6 && committed >= 1, "{rolled_back} rolled back, {committed} committed");
}

/// A name that was used gets its first answer again, and the writes that come with it are not applied.
#[tokio::test]
async fn a_name_commits_once() {
    let bank = Bank::of_the_seed().await;
    let process = bank.process();
    pay_as(&process, name(1)).await.unwrap();
    let Outcome::Committed(at) = process.outcome(name(1)).await.unwrap() else { panic!() };
    for database in [process, bank.process()] {
        let options = TransactionOptions { id: Some(name(1)), ..TransactionOptions::default() };
        let tx = database.begin_with(options).await.unwrap();
        pay(&tx).await.unwrap();
        assert_eq!(tx.commit().await.unwrap(), at);
    }
    assert_eq!(bank.balances().await, (3, 9));
    // Of two transactions at the same time, whatever they write, one is applied.
    let (one, other) = (bank.process(), bank.process());
    let write = async |database: &Database, id: &str| {
        let options = TransactionOptions { id: Some(name(2)), ..TransactionOptions::default() };
        let tx = database.begin_with(options).await.unwrap();
        tx.insert_one(&accounts(), rawdoc! { "_id": id }).await.unwrap();
        tx
    };
    let (one, other) = (write(&one, "one").await, write(&other, "other").await);
    one.commit().await.unwrap();
    assert!(is_conflict(&other.commit().await.map(drop)));
    // The session has a later transaction.
    assert_eq!(bank.process().outcome(name(1)).await.unwrap_err().code(), Code::TransactionTooOld);
    let again = pay_as(&bank.process(), name(1)).await;
    assert!(matches!(again, Err(Error::Store(error)) if error.code() == Code::TransactionTooOld));
    assert_eq!(bank.balances().await, (3, 9));
    assert_eq!(bank.records().await, 1);
}

/// A transaction that was reported as rolled back can be run again under its name, which is another attempt.
#[tokio::test]
async fn a_name_can_be_tried_again() {
    let bank = Bank::of_the_seed().await;
    for _ in 0..3 {
        assert!(!is_committed(&bank, name(4)).await);
    }
    pay_as(&bank.process(), name(4)).await.unwrap();
    assert!(is_committed(&bank, name(4)).await);
    assert_eq!(bank.balances().await, (3, 9));
}

/// Records are removed after the retention, which all cleaning processes measure together; but never while a lock may need
/// them.
#[tokio::test]
async fn records_are_kept_for_their_time() {
    let bank = Bank::of_the_seed().await;
    let process = bank.process();
    pay_as(&process, name(1)).await.unwrap();
    let cleaner = Percolator::new(bank.store.clone(), bank.sources.clone(), options()).unwrap();
    bank.clock.advance(Duration::from_secs(1));
    assert_eq!(cleaner.clean().await.unwrap().forgotten, 0);
    bank.clock.advance(options().outcome_retention - Duration::from_secs(1));
    assert_eq!(cleaner.clean().await.unwrap().forgotten, 0);
    assert!(is_committed(&bank, name(1)).await);
    bank.clock.advance(Duration::from_secs(1));
    assert_eq!(cleaner.clean().await.unwrap().forgotten, 1);
    assert_eq!(bank.records().await, 0);
    // A shorter retention in the call removes them sooner, but not while requests may still be under way.
    pay_as(&process, name(2)).await.unwrap();
    bank.clock.advance(Duration::from_secs(1));
    assert_eq!(process.forget_outcomes(Duration::ZERO).await.unwrap(), 0);
    bank.clock.advance(Duration::from_secs(500));
    assert_eq!(process.forget_outcomes(Duration::ZERO).await.unwrap(), 0);
    bank.clock.advance(Duration::from_secs(101));
    assert_eq!(process.forget_outcomes(Duration::from_secs(3_600)).await.unwrap(), 0);
    assert_eq!(process.forget_outcomes(Duration::ZERO).await.unwrap(), 1);
    assert_eq!(bank.records().await, 0);
    assert_eq!(bank.balances().await, (-4, 16));
}

/// A transaction that has left no record was rolled back, or is so old that its record may have been removed: these are two
/// results.
#[tokio::test]
async fn a_forgotten_outcome_is_not_reported_as_rolled_back() {
    let bank = Bank::of_the_seed().await;
    let process = bank.process();
    let begun = async |pays| {
        let tx = process.begin().await.unwrap();
        let id = tx.id();
        pay(&tx).await.unwrap();
        if pays {
            tx.commit().await.unwrap();
        } else {
            tx.abort();
        }
        id
    };
    let (before, old) = (begun(false).await, begun(true).await);
    pay_as(&process, name(1)).await.unwrap();
    assert_eq!(bank.records().await, 2);
    bank.clock.advance(Duration::from_secs(1));
    let cleaner = Percolator::new(bank.store.clone(), bank.sources.clone(), options()).unwrap();
    assert_eq!(cleaner.clean().await.unwrap().forgotten, 0);
    bank.clock.advance(options().outcome_retention);
    let (between, young) = (begun(false).await, begun(true).await);
    bank.clock.advance(Duration::from_secs(1));
    assert_eq!(cleaner.clean().await.unwrap().forgotten, 2);
    for _ in 0..2 {
        // Another process asks each time: the one that ran the transactions remembers their outcomes for a while.
        let outcome = async |id| bank.process().outcome(id).await.unwrap();
        assert_eq!((outcome(before).await, outcome(old).await), (Outcome::Forgotten, Outcome::Forgotten));
        assert_eq!(outcome(between).await, Outcome::RolledBack);
        assert!(matches!(outcome(young).await, Outcome::Committed(_)));
        // The name that a driver chose does not show its age, and its transaction might still be under way: it is rolled back
        // for good.
        assert_eq!(outcome(name(1)).await, Outcome::RolledBack);
    }
    // Each sweep forgets later transactions than the one before, including the one that was rolled back then.
    bank.let_pass(Duration::from_secs(601)).await;
    assert_eq!(process.forget_outcomes(Duration::ZERO).await.unwrap(), 3);
    let outcome = async |id| bank.process().outcome(id).await.unwrap();
    assert_eq!((outcome(between).await, outcome(young).await), (Outcome::Forgotten, Outcome::Forgotten));
    // Nothing is left to forget: the mark is not counted as a record, and stays.
    bank.let_pass(2 * options().outcome_retention).await;
    assert_eq!(process.forget_outcomes(Duration::ZERO).await.unwrap(), 0);
    assert_eq!(cleaner.clean().await.unwrap().forgotten, 0);
    assert_eq!(outcome(young).await, Outcome::Forgotten);
    assert_eq!(bank.balances().await, (-11, 23));
}

/// The lock of another row refers to the record, which is therefore removed after the lock.
#[tokio::test]
async fn a_record_outlives_the_locks_that_it_decided() {
    let bank = Bank::of_the_seed().await;
    let store = stepped(bank.store.clone());
    let database = bank.process_over(store.clone());
    let payment = Stepped { payment: tokio::spawn(async move { pay_as(&database, name(1)).await }), store };
    payment.until(&bank, both_locked).await;
    // The commit timestamp is taken and the commit point is written; then the process dies.
    payment.step().await;
    payment.store.release();
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    assert!(bank.hidden().await.iter().all(|hidden| hidden.contains_key("lock")));
    payment.payment.abort();
    bank.let_pass(2 * options().outcome_retention).await;
    assert_eq!(bank.process().forget_outcomes(Duration::ZERO).await.unwrap(), 1);
    assert_eq!(bank.balances().await, (3, 9));
}
