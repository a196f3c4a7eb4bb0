//! Collections that are dropped and renamed beside those who commit in them: nothing is half lost.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bson::rawdoc;
use handfast_mql::Code;
use handfast_store::decorator::{Fault, Faulty, Plan};
use handfast_store::{DocumentStore, MemoryStore, Namespace, RenameCollection, Result as StoreResult, StoreExt};
use handfast_txn::{Database, Error, Percolator, Result};
use tokio::task::JoinHandle;

use crate::stubborn::locked;
use crate::support::*;

/// Round trips in which something has to come to its end.
const ROUNDS_MAX: u32 = 10_000;

/// Round trips of a departure before the payment goes on: more than it has up to its end, unless it waits for the payment.
const BESIDE_MAX: u32 = 30;

/// What becomes of the accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Departure {
    Drop,
    DropDatabase,
    Rename,
    /// Another collection takes their name.
    Replace,
}

pub(crate) const DEPARTURES: [Departure; 4] =
    [Departure::Drop, Departure::DropDatabase, Departure::Rename, Departure::Replace];

fn other() -> Namespace {
    Namespace::new("other", "people").unwrap()
}

/// Collections that stay. Of the rows of a transaction the first by name is the primary: an account beside the one, the receipt in the
/// other.
pub(crate) fn kept() -> [Namespace; 2] {
    [Namespace::new("kept", "receipts").unwrap(), Namespace::new("a", "receipts").unwrap()]
}

#[async_trait]
trait Departs {
    async fn depart(&self, departure: Departure) -> StoreResult<bool>;
}

#[async_trait]
impl Departs for Database {
    async fn depart(&self, departure: Departure) -> StoreResult<bool> {
        let rename = |from, to, drop_target| self.rename_collection(RenameCollection { from, to, drop_target });
        match departure {
            Departure::Drop => self.drop_collection(&accounts()).await,
            Departure::DropDatabase => self.drop_database("bank").await,
            Departure::Rename => rename(accounts(), other(), false).await.map(|()| true),
            Departure::Replace => rename(other(), accounts(), true).await.map(|()| true),
        }
    }
}

/// A bank, with other people for who takes the place of the accounts.
pub(crate) async fn bank_before(departure: Departure) -> Bank {
    let bank = Bank::of_the_seed().await;
    if departure == Departure::Replace {
        bank.store.insert_one(&other(), rawdoc! { "_id": "Zoe" }).await.unwrap();
    }
    bank
}

/// Bob pays 7, and gets a receipt in another collection; says whether he is there.
async fn pay_for(database: &Database, receipts: &Namespace) -> Result<bool> {
    let tx = database.begin().await?;
    let change = rawdoc! { "$inc": { "balance": -7 } };
    if tx.update_one(&accounts(), rawdoc! { "_id": "Bob" }, change).await?.matched == 0 {
        tx.abort();
        return Ok(false);
    }
    tx.insert_one(receipts, rawdoc! { "_id": "receipt", "of": 7 }).await?;
    tx.commit().await.map(|_| true)
}

/// Something that goes on by round trips.
struct Stepping<T> {
    gate: Arc<Faulty<MemoryStore>>,
    task: JoinHandle<T>,
}

impl<T: Send + 'static> Stepping<T> {
    fn of<R: Future<Output = T> + Send + 'static>(bank: &Bank, run: impl FnOnce(Database) -> R) -> Self {
        let gate = Arc::new(Faulty::new(bank.store.clone(), Plan::always(Fault::FreezeBefore)));
        let task = tokio::spawn(run(bank.process_over(gate.clone())));
        Stepping { gate, task }
    }

    /// So many round trips; whether there were.
    async fn step(&self, rounds: u32) -> bool {
        for _ in 0..rounds {
            settle().await;
            if self.task.is_finished() {
                return false;
            }
            self.gate.release();
        }
        settle().await;
        !self.task.is_finished()
    }

    /// Up to the answer. What is left to do behind it is not done.
    async fn finish(self) -> T {
        for _ in 0..ROUNDS_MAX {
            if self.task.is_finished() {
                return self.task.await.unwrap();
            }
            self.gate.release();
            settle().await;
        }
        panic!("it never ends");
    }
}

/// The test's time: whatever does not wait for the store, or a pause, goes on as far as it can.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// What is seen of a payment: by Bob, under whatever name he is found, and in the other collection.
pub(crate) async fn seen(bank: &Bank, receipts: &Namespace) -> (Option<i32>, bool) {
    let reader = bank.process();
    let mut bob = None;
    for namespace in [accounts(), other()] {
        let found = reader.find_one(&namespace, rawdoc! { "_id": "Bob" }).await.unwrap();
        bob = bob.or(found.map(|bob| bob.get_i32("balance").unwrap()));
    }
    let receipt = reader.find_one(receipts, rawdoc! { "_id": "receipt" }).await.unwrap();
    reader.flush().await.unwrap();
    (bob, receipt.is_some())
}

/// A payment stops before any of its round trips, the departure goes on to any of its own, then the payment goes on to its answer, and
/// its process dies; then the departure ends. What was acknowledged is there, and nothing of what was not.
#[tokio::test(start_paused = true)]
async fn a_commit_beside_a_departure_is_not_half_lost() {
    for departure in DEPARTURES {
        // One way of going away stands for all where the primary stays.
        for receipts in kept().into_iter().take(if departure == Departure::Drop { 2 } else { 1 }) {
            let (mut committed, mut conflicts) = (0, 0);
            'payment: for before in 0.. {
                for beside in 0..BESIDE_MAX {
                    let bank = bank_before(departure).await;
                    let case = format!("{departure:?}, {receipts}, payment stops at {before}, departure at {beside}");
                    if departure == Departure::Replace {
                        // No transaction has written to either of them.
                        let plain = rawdoc! { "$unset": { "_hf": 1 } };
                        bank.store.update_one(&accounts(), rawdoc! { "_id": "Bob" }, plain).await.unwrap();
                        bank.store.insert_one(&other(), rawdoc! { "_id": "Bob", "balance": 100 }).await.unwrap();
                    }
                    let to = receipts.clone();
                    let payment = Stepping::of(&bank, |database| async move { pay_for(&database, &to).await });
                    if !payment.step(before).await {
                        break 'payment;
                    }
                    let going = Stepping::of(&bank, |database| async move { database.depart(departure).await });
                    let is_on_its_way = going.step(beside).await;
                    let paid = payment.finish().await;
                    going.finish().await.expect(&case);
                    bank.clock.advance(LOCK_TIME);
                    let (bob, receipt) = seen(&bank, &receipts).await;
                    match &paid {
                        Ok(true) => committed += 1,
                        Ok(false) => {}
                        Err(Error::Conflict(_)) => conflicts += 1,
                        Err(error) => panic!("{case}: {error}"),
                    }
                    let is_paid = matches!(paid, Ok(true));
                    assert_eq!(receipt, is_paid, "{case}: {paid:?}");
                    if departure == Departure::Rename {
                        assert_eq!(bob, Some(if is_paid { 3 } else { 10 }), "{case}");
                    }
                    if departure == Departure::Replace {
                        assert!(bob == Some(100) || is_paid && bob == Some(93), "{case}: {bob:?}");
                    }
                    if !is_on_its_way {
                        break;
                    }
                }
            }
            println!("{departure:?} beside {receipts}: {committed} committed, {conflicts} conflicts");
            assert!(committed > 10 && conflicts > 10, "{departure:?}: {committed} committed, {conflicts} conflicts");
        }
    }
}

/// Who is refused runs again, and finds the collection as it is then.
#[tokio::test(start_paused = true)]
async fn who_is_refused_by_a_drop_runs_again() {
    let bank = Bank::of_the_seed().await;
    let inserting = Stepping::of(&bank, |database| async move {
        database.insert_one(&accounts(), rawdoc! { "_id": "Ann", "balance": 1 }).await
    });
    inserting.step(3).await;
    assert!(bank.process().drop_collection(&accounts()).await.unwrap());
    inserting.finish().await.unwrap();
    let left = bank.process().count_matching(&accounts(), rawdoc! {}).await.unwrap();
    assert_eq!(left, 1);
}

/// It would be in the catalog, which everybody reads.
#[tokio::test(start_paused = true)]
async fn a_database_that_cannot_be_is_not_closed() {
    let bank = Bank::of_the_seed().await;
    for name in ["", "bank.", "bank.accounts", "a b"] {
        let error = bank.process().drop_database(name).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidNamespace, "{name}");
    }
    assert_eq!(bank.process().count_matching(&accounts(), rawdoc! {}).await.unwrap(), 2);
}

/// What was decided in a collection that is gone cannot be told any more, and is not guessed.
#[tokio::test(start_paused = true)]
async fn the_outcome_of_a_commit_in_a_dropped_collection_is_not_guessed() {
    let receipts = &kept()[0];
    let mut unknown = 0;
    for number in 0..OPERATIONS_MAX {
        let bank = Bank::of_the_seed().await;
        let faulty = Arc::new(Faulty::new(bank.store.clone(), Plan::at(number, Fault::CrashAfter)));
        let database = bank.process_over(faulty.clone());
        let paid = pay_for(&database, receipts).await;
        if faulty.operations() <= number {
            break;
        }
        faulty.restart();
        bank.clock.advance(LOCK_TIME);
        bank.process().drop_collection(&accounts()).await.unwrap();
        if let Err(Error::CommitUnknown { id, .. }) = paid {
            assert!(seen(&bank, receipts).await.1);
            assert_eq!(database.outcome(id).await.unwrap_err().code(), Code::NoSuchTransaction);
            unknown += 1;
        }
    }
    assert!(unknown > 0);
}

/// With every fault at every operation of a drop, beside a payment that died at its commit point: what was acknowledged is not lost.
/// Afterwards the collection can be used, sooner or later, and dropped.
#[tokio::test(start_paused = true)]
async fn every_operation_of_a_departure_meets_every_fault() {
    use crate::crash_points::{FAULTS, Late};
    let (mut cases, mut gone) = (0, 0);
    for departure in DEPARTURES {
        for fault in FAULTS {
            for late in [Late::Soon, Late::PastRecovery] {
                let is_late = matches!(fault, Fault::DeliverLate | Fault::RepeatLater);
                for number in 0..if late == Late::Soon || is_late { OPERATIONS_MAX } else { 0 } {
                    let bank = bank_before(departure).await;
                    let receipts = &kept()[0];
                    let to = receipts.clone();
                    let payment = Stepping::of(&bank, |database| async move { pay_for(&database, &to).await });
                    assert!(payment.finish().await.unwrap());
                    let faulty = Arc::new(Faulty::new(bank.store.clone(), Plan::at(number, fault)));
                    let went = bank.process_over(faulty.clone()).depart(departure).await;
                    let case = format!("{departure:?}, {fault:?} at {number}, late {late:?}: {went:?}");
                    let is_over = faulty.operations() <= number;
                    if late == Late::Soon {
                        faulty.deliver_late().await;
                    }
                    faulty.restart();
                    bank.clock.advance(LOCK_TIME);
                    let (bob, receipt) = seen(&bank, receipts).await;
                    assert!(receipt, "{case}");
                    assert!(departure != Departure::Rename || bob == Some(3), "{case}: {bob:?}");
                    if went.is_ok() {
                        let is_there = accounts_are_there(&bank).await;
                        assert_eq!(is_there, departure == Departure::Replace, "{case}");
                        gone += 1;
                    }
                    // A request that is late finds nobody who commits there.
                    if late == Late::PastRecovery {
                        faulty.deliver_late().await;
                        assert!(seen(&bank, receipts).await.1, "{case}");
                    }
                    bank.clock.advance(CLOSED_TIME);
                    let cleaner = Percolator::new(bank.store.clone(), bank.sources.clone(), options()).unwrap();
                    assert_eq!(cleaner.clean().await.unwrap().failed, 0, "{case}");
                    let database = bank.process();
                    database
                        .upsert_one(&accounts(), rawdoc! { "_id": "Ann" }, rawdoc! { "$set": { "a": 1 } })
                        .await
                        .expect(&case);
                    assert!(database.drop_collection(&accounts()).await.expect(&case), "{case}");
                    database.flush().await.unwrap();
                    assert!(!accounts_are_there(&bank).await, "{case}");
                    cases += 1;
                    if is_over {
                        break;
                    }
                }
            }
        }
    }
    println!("{cases} cases, {gone} times it was done");
    assert!(gone > 20 && cases - gone > 20, "{gone} of {cases}");
}

async fn accounts_are_there(bank: &Bank) -> bool {
    let collections = bank.store.list_collections("bank").await.unwrap();
    collections.iter().any(|collection| collection.name == accounts().collection())
}

/// A document of the accounts that somebody else has written into.
async fn damaged(bank: &Bank) {
    let damaged = rawdoc! { "_id": "Damaged", "_hf": { "v": "x", "lock": { "s": 7_i64 } } };
    bank.store.insert_one(&accounts(), damaged).await.unwrap();
}

/// Nobody outside asks what goes with its collection.
#[tokio::test(start_paused = true)]
async fn a_damaged_row_does_not_keep_its_collection() {
    for departure in [Departure::Drop, Departure::DropDatabase] {
        let bank = Bank::of_the_seed().await;
        damaged(&bank).await;
        bank.store.insert_one(&accounts(), locked("Eve", 7, "Damaged")).await.unwrap();
        assert!(bank.process().depart(departure).await.unwrap());
        assert!(!accounts_are_there(&bank).await);
    }
}

/// What is decided in the collection, and cannot be read there, would be lost: it is said whose it is, and everything stays as it is.
#[tokio::test(start_paused = true)]
async fn a_lock_elsewhere_that_nobody_can_decide_is_named() {
    for departure in [Departure::Drop, Departure::DropDatabase, Departure::Rename] {
        let (bank, receipts) = (Bank::of_the_seed().await, &kept()[0]);
        damaged(&bank).await;
        bank.store.insert_one(receipts, locked("receipt", 7, "Damaged")).await.unwrap();
        bank.clock.advance(LOCK_TIME);
        let database = bank.process();
        let refused = database.depart(departure).await.unwrap_err();
        assert_eq!(refused.code(), Code::OperationFailed);
        // A row that stays with the renamed collection has to be right itself.
        let locked: &[&str] = if departure == Departure::Rename { &[] } else { &["kept.receipts", "\"receipt\""] };
        for named in locked.iter().chain(&["bank", "\"Damaged\"", "'_hf.lock'"]) {
            assert!(refused.message().contains(named), "{named}: {refused}");
        }
        assert!(accounts_are_there(&bank).await);
        pay_once(&database).await.unwrap();
        database.flush().await.unwrap();
        // The operator decides.
        for namespace in [receipts, &accounts()] {
            let away = rawdoc! { "$unset": { "_hf.lock": 1 } };
            bank.store.update_one(namespace, rawdoc! { "_hf.lock": { "$exists": true } }, away).await.unwrap();
        }
        assert!(database.depart(departure).await.unwrap());
        assert!(!accounts_are_there(&bank).await);
    }
}
