//! Rules that other systems with this protocol document, where a case needs more than a script of [`golden`](crate::golden).

use bson::{DateTime, rawdoc};
use handfast_mql::Code;
use handfast_store::decorator::{Address, Fault, Faulty, Metered, Operation, Plan};
use handfast_store::{DocumentStore, Find, Insert, MemoryStore, Sources, StoreExt};
use handfast_txn::percolator::row::Timestamp;
use handfast_txn::{Database, Error, Outcome, Percolator, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::support::*;

/// A reader waits for the lock of a live transaction, and does not remove it.
#[tokio::test]
async fn a_reader_waits_for_a_lock_that_is_alive() {
    let bank = Bank::of_the_seed().await;
    let payment = Stepped::payment(&bank);
    payment.until(&bank, both_locked).await;
    let reader = bank.process();
    let read = tokio::spawn(async move { balances(&reader).await });
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!read.is_finished());
    payment.finish().await.unwrap();
    // The read began before the commit timestamp was fetched: it returns the earlier state.
    assert_eq!(read.await.unwrap(), (10, 2));
}

/// A snapshot does not wait for a lock that is younger than it.
#[tokio::test]
async fn a_snapshot_before_the_lock_is_not_held_up() {
    let bank = Bank::of_the_seed().await;
    let database = bank.process();
    let tx = database.begin().await.unwrap();
    let payment = Stepped::payment(&bank);
    payment.until(&bank, both_locked).await;
    let bob = tx.find_one(&accounts(), rawdoc! { "_id": "Bob" }).await.unwrap().unwrap();
    assert_eq!(bob.get_i32("balance").unwrap(), 10);
    payment.finish().await.unwrap();
}

/// An insert and a deletion of a document in one transaction are a write, as in MongoDB, whatever the transaction has read of it: another
/// writer of the same document gets a conflict. Programs use this to serialize transactions that have no document in common.
#[tokio::test]
async fn a_document_that_is_inserted_and_deleted_again_is_written() {
    for is_read in [false, true] {
        let bank = Bank::of_the_seed().await;
        let mark = || rawdoc! { "_id": "mark" };
        let late = bank.process().begin().await.unwrap();
        late.insert_one(&accounts(), mark()).await.unwrap();
        let first = bank.process().begin().await.unwrap();
        if is_read {
            assert_eq!(first.find_one(&accounts(), mark()).await.unwrap(), None);
        }
        first.insert_one(&accounts(), mark()).await.unwrap();
        assert!(first.delete_one(&accounts(), mark()).await.unwrap());
        first.commit().await.unwrap();
        let refused = late.commit().await;
        assert!(matches!(refused, Err(Error::Conflict(_))), "{is_read}: {refused:?}");
        assert_eq!(bank.process().find_one(&accounts(), mark()).await.unwrap(), None);
    }
}

/// A transaction with a rollback record cannot lock its rows any more, whichever way it tries.
#[tokio::test]
async fn a_prewrite_after_the_rollback_is_refused() {
    let (bank, faulty, payment) = late_primary(None).await;
    bank.clock.advance(LOCK_TIME);
    assert_eq!(bank.balances().await, (10, 2));
    faulty.release();
    let paid = payment.await.unwrap();
    assert!(is_conflict(&paid), "{paid:?}");
    assert_eq!(bank.balances().await, (10, 2));
}

/// The record is kept for as long as a request of the transaction can arrive; so the transaction sends no request that could arrive later.
/// Otherwise the primary would be locked again, and commit without the other row.
#[tokio::test]
async fn a_prewrite_is_not_tried_again_when_its_time_is_over() {
    let (bank, faulty, payment) = late_primary(None).await;
    bank.clock.advance(LOCK_TIME);
    assert_eq!(bank.balances().await, (10, 2));
    bank.let_pass(Duration::from_secs(1_300)).await;
    let cleaner = Percolator::new(bank.store.clone(), bank.sources.clone(), options()).unwrap();
    cleaner.clean().await.unwrap();
    assert!(!bank.hidden().await[0].contains_key("rb"));
    faulty.release();
    let paid = payment.await.unwrap();
    assert!(is_conflict(&paid), "{paid:?}");
    assert_eq!(bank.balances().await, (10, 2));
}

/// Starts a payment whose request to lock Bob, the primary, is delayed, while Joe's lock is written. The process has its own clocks if
/// these are given.
pub(crate) async fn late_primary(
    of_payer: Option<Sources>,
) -> (Bank, Arc<Faulty<MemoryStore>>, tokio::task::JoinHandle<Result<()>>) {
    let bank = Bank::of_the_seed().await;
    let primary_lock = Address::first(Operation::Update).of("accounts");
    let faulty = Arc::new(Faulty::new(bank.store.clone(), Plan::at_request(primary_lock, Fault::FreezeBefore)));
    let sources = of_payer.unwrap_or_else(|| bank.sources.clone());
    let database = Database::percolator(faulty.clone(), sources, options()).unwrap();
    let payment = tokio::spawn(async move { pay_once(&database).await });
    assert!(stopped(&faulty, || payment.is_finished()).await);
    let hidden = bank.hidden().await;
    assert!(!hidden[0].contains_key("lock") && hidden[1].contains_key("lock"), "{hidden:?}");
    (bank, faulty, payment)
}

/// The answer to the commit point is lost: the primary shows that the commit has happened.
#[tokio::test]
async fn a_lost_answer_to_the_commit_is_read_from_the_primary() {
    for (fault, expected) in [(Fault::LoseReply, (3, 9)), (Fault::LoseRequest, (3, 9))] {
        let bank = Bank::of_the_seed().await;
        let faulty = Arc::new(Faulty::new(bank.store.clone(), Plan::at_request(commit_point(), fault)));
        let database = bank.process_over(faulty.clone());
        pay_once(&database).await.unwrap();
        assert_eq!(bank.balances().await, expected, "{fault:?}");
    }
}

/// The store becomes unreachable after the commit point: the outcome is unknown until the store answers.
#[tokio::test]
async fn an_unknown_commit_is_resolved_by_asking() {
    for (fault, balances) in [(Fault::CrashAfter, (3, 9)), (Fault::CrashBefore, (10, 2))] {
        let bank = Bank::of_the_seed().await;
        let faulty = Arc::new(Faulty::new(bank.store.clone(), Plan::at_request(commit_point(), fault)));
        let database = bank.process_over(faulty.clone());
        let Err(Error::CommitUnknown { id, .. }) = pay_once(&database).await else { panic!("{fault:?}") };
        assert!(database.outcome(id).await.is_err());
        faulty.restart();
        let outcome = database.outcome(id).await.unwrap();
        assert_eq!(matches!(outcome, Outcome::Committed(_)), fault == Fault::CrashAfter, "{outcome:?}");
        // The answer stays true, even if the request arrives only now.
        faulty.deliver_late().await;
        assert_eq!(bank.balances().await, balances, "{fault:?}");
        assert_eq!(database.outcome(id).await.unwrap(), outcome);
    }
}

/// A commit whose requests were all lost is rolled back for good when its outcome is asked for. So it is run again, and applied once.
#[tokio::test]
async fn a_commit_that_is_undone_by_asking_is_run_again() {
    let bank = Bank::of_the_seed().await;
    // The request is sent three times.
    let lost = [0, 1, 2].map(|again| (commit_point().after(again), Fault::LoseRequest));
    let faulty = Arc::new(Faulty::new(bank.store.clone(), Plan::at_requests(lost)));
    let database = bank.process_over(faulty.clone());
    let runs = AtomicU32::new(0);
    let run = |tx| {
        runs.fetch_add(1, Ordering::Relaxed);
        async move { pay(&tx).await }
    };
    database.transaction(run).await.unwrap();
    let counts = database.counts();
    assert_eq!((runs.into_inner(), faulty.injected().len(), bank.balances().await), (2, 3, (3, 9)));
    assert_eq!((counts.committed, counts.conflicts, counts.retries, counts.unknown), (1, 1, 1, 0));
}

/// The record of the commit is kept for longer than the history: a committer without an answer finds it, however many transactions have
/// committed since. If it took a missing record for a rollback, it would pay twice.
#[tokio::test]
async fn an_unknown_commit_is_resolved_after_many_later_ones() {
    let bank = Bank::of_the_seed().await;
    let faulty = Arc::new(Faulty::new(bank.store.clone(), Plan::at_request(commit_point(), Fault::CrashAfter)));
    let database = bank.process_over(faulty.clone());
    let Err(Error::CommitUnknown { id, .. }) = pay_once(&database).await else { panic!() };
    for _ in 0..40 {
        let change = rawdoc! { "$inc": { "balance": 1 } };
        bank.process().update_one(&accounts(), rawdoc! { "_id": "Bob" }, change).await.unwrap();
    }
    faulty.restart();
    assert!(matches!(database.outcome(id).await.unwrap(), Outcome::Committed(_)));
    assert_eq!(bank.balances().await, (43, 9));
}

/// The outcome of a transaction that is older than the retention is an error, not a guess.
#[tokio::test]
async fn the_outcome_of_a_transaction_that_is_forgotten_is_not_guessed() {
    let bank = Bank::of_the_seed().await;
    let faulty = Arc::new(Faulty::new(bank.store.clone(), Plan::at_request(commit_point(), Fault::CrashAfter)));
    let database = bank.process_over(faulty.clone());
    let Err(Error::CommitUnknown { id, .. }) = pay_once(&database).await else { panic!() };
    bank.clock.advance(Duration::from_secs(1_300));
    let change = rawdoc! { "$inc": { "balance": 1 } };
    bank.process().update_one(&accounts(), rawdoc! { "_id": "Bob" }, change).await.unwrap();
    let cleaner = Percolator::new(bank.store.clone(), bank.sources.clone(), options()).unwrap();
    bank.let_pass(Duration::from_secs(1_300)).await;
    cleaner.clean().await.unwrap();
    faulty.restart();
    assert_eq!(database.outcome(id).await.unwrap_err().code(), Code::NoSuchTransaction);
    assert_eq!(bank.balances().await, (4, 9));
}

/// Returns the address of the commit point of a payment: the first update of the accounts after those that lock both.
fn commit_point() -> Address {
    Address::third(Operation::Update).of("accounts")
}

/// A query returns documents that no longer match, and omits those that match only now.
#[tokio::test]
async fn a_query_sees_the_snapshot_not_the_visible_versions() {
    let bank = Bank::of_the_seed().await;
    let (reader, writer) = (bank.process(), bank.process());
    let tx = reader.begin().await.unwrap();
    pay_once(&writer).await.unwrap();
    writer.flush().await.unwrap();
    writer.insert_one(&accounts(), rawdoc! { "_id": "Ann", "balance": 10 }).await.unwrap();
    let rich = || Find::new(accounts(), rawdoc! { "balance": { "$gte": 10 } });
    let found = tx.find_all(rich()).await.unwrap();
    assert_eq!(found, [rawdoc! { "_id": "Bob", "balance": 10 }]);
    assert_eq!(writer.find_all(rich()).await.unwrap(), [rawdoc! { "_id": "Ann", "balance": 10 }]);
}

/// A version that is not kept any more is not replaced by another version.
#[tokio::test]
async fn a_snapshot_that_is_too_old_is_an_error() {
    let bank = Bank::of_the_seed().await;
    let database = bank.process();
    let tx = database.begin().await.unwrap();
    for _ in 0..40 {
        let change = rawdoc! { "$inc": { "balance": 1 } };
        bank.process().update_one(&accounts(), rawdoc! { "_id": "Bob" }, change).await.unwrap();
    }
    let read = tx.find_one(&accounts(), rawdoc! { "_id": "Bob" }).await;
    assert_eq!(read.unwrap_err().code(), Code::SnapshotTooOld);
}

/// A machine whose clock is far ahead does not move the oracle to its time, which would let locks expire at once.
#[tokio::test]
async fn a_clock_that_is_far_ahead_counts_as_a_little_ahead() {
    let bank = Bank::of_the_seed().await;
    let (ahead, clock) = Sources::manual(2);
    clock.set(DateTime::from_millis(3_600_000));
    let database = Database::percolator(bank.store.clone(), ahead, options()).unwrap();
    let ahead = Timestamp::of_millis(2_000).0;
    for further in 0..3 {
        assert_eq!(database.begin().await.unwrap().read_at().unwrap().0, ahead + further);
    }
    assert_eq!(bank.process().begin().await.unwrap().read_at().unwrap().0, ahead + 3);
}

/// A lock does not expire because of a client's clock: only the oracle's time counts.
#[tokio::test]
async fn expiry_does_not_compare_the_clocks_of_two_clients() {
    let bank = Bank::of_the_seed().await;
    let payment = Stepped::payment(&bank);
    payment.until(&bank, both_locked).await;
    // A cleaner's own clock is a little ahead, and its monotonic clock has run for a day.
    let (ahead, clock) = Sources::manual(2);
    clock.advance(Duration::from_secs(86_400));
    clock.set(DateTime::from_millis(1_000));
    let cleaner = Percolator::new(bank.store.clone(), ahead, options()).unwrap();
    let cleaned = cleaner.clean().await.unwrap();
    assert_eq!((cleaned.resolved, cleaned.alive), (0, 2));
    payment.finish().await.unwrap();
    assert_eq!(bank.balances().await, (3, 9));
}

/// Timestamps continue to increase, also for a process that starts with an earlier clock.
#[tokio::test]
async fn the_oracle_does_not_repeat_after_a_restart() {
    let bank = Bank::of_the_seed().await;
    bank.clock.set(DateTime::from_millis(1_000_000));
    let mut last = 0;
    for millis in [1_000_000, 1_000_000, 5_000, 0, 2_000_000] {
        bank.clock.set(DateTime::from_millis(millis));
        let at = bank.process().begin().await.unwrap().read_at().unwrap().0;
        assert!(at > last, "{at} after {last}");
        last = at;
    }
}

/// After all transactions have ended, and time has gone by, documents have only their revision and timestamps.
#[tokio::test]
async fn nothing_is_left_behind() {
    let bank = Bank::of_the_seed().await;
    let database = bank.process();
    for _ in 0..12 {
        pay_once(&database).await.unwrap();
    }
    database.insert_one(&accounts(), rawdoc! { "_id": "Ann", "balance": 1 }).await.unwrap();
    database.delete_one(&accounts(), rawdoc! { "_id": "Ann" }).await.unwrap();
    let payment = Stepped::payment(&bank);
    payment.until(&bank, |hidden| hidden[1].contains_key("lock") && hidden[2].contains_key("lock")).await;
    // The process of the payment dies.
    payment.payment.abort();
    bank.clock.advance(Duration::from_secs(1_300));
    let cleaner = Percolator::new(bank.store.clone(), bank.sources.clone(), options()).unwrap();
    let cleaned = cleaner.clean().await.unwrap();
    assert_eq!((cleaned.resolved, cleaned.alive), (2, 0));
    bank.clock.advance(Duration::from_secs(1_300));
    cleaner.clean().await.unwrap();
    let hidden = bank.hidden().await;
    assert_eq!(hidden.len(), 2);
    for hidden in hidden {
        assert!(hidden.keys().all(|name| ["v", "c", "s", "p"].contains(&name.as_str())), "{hidden}");
    }
    assert_eq!(bank.balances().await, (10 - 12 * 7, 2 + 12 * 7));
}

/// The primary's lock names all other rows: a process that finds one lock of a dead process removes all of its locks without a scan of the
/// collection. This takes two requests for each row, and a timestamp.
#[tokio::test]
async fn giving_up_a_transaction_removes_all_its_locks() {
    const ROWS: i32 = 50;
    let bank = Bank::of_the_seed().await;
    let stopping = stepped(bank.store.clone());
    let dying = bank.process_over(stopping.clone());
    let inserting = tokio::spawn(async move {
        let rows = (0..ROWS).map(|number| rawdoc! { "_id": number, "balance": 0 }).collect();
        dying.insert(Insert::new(accounts(), rows)).await
    });
    let locked = async || bank.hidden().await.iter().filter(|hidden| hidden.contains_key("lock")).count();
    while locked().await < ROWS as usize {
        assert!(stopped(&stopping, || inserting.is_finished()).await);
        stopping.release();
    }
    inserting.abort();
    bank.clock.advance(LOCK_TIME);

    let metered = Arc::new(Metered::new(bank.store.clone(), bank.sources.clock.clone()));
    let reader = bank.process_over(metered.clone());
    let tx = reader.begin().await.unwrap();
    assert_eq!(tx.find_one(&accounts(), rawdoc! { "_id": ROWS / 2 }).await.unwrap(), None);
    tx.abort();
    reader.flush().await.unwrap();
    assert_eq!(locked().await, 0);
    let report = metered.report();
    let started = |operation| report.iter().find(|of| of.operation == operation).map_or(0, |of| of.started);
    let (finds, updates) = (started(Operation::Find), started(Operation::Update));
    // The row that is found first, and its primary, are read once before.
    assert!(finds <= ROWS as u64 + 2 && updates <= ROWS as u64 + 2, "{finds} finds, {updates} updates");
}

/// The hidden field is reserved for the protocol.
#[tokio::test]
async fn a_document_cannot_bring_its_own_hidden_field() {
    let bank = Bank::of_the_seed().await;
    let database = bank.process();
    let refused = database.insert_one(&accounts(), rawdoc! { "_id": "Eve", "_hf": { "v": 1 } }).await;
    assert_eq!(refused.unwrap_err().code(), Code::BadValue);
    assert_eq!(bank.rows().await.len(), 2);
    database.flush().await.unwrap();
}
