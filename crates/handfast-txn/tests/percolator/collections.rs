//! Collections are created, dropped and renamed beside transactions that use them: no commit loses a part of its writes, and a
//! snapshot stays readable.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bson::{RawBsonRef, rawdoc};
use handfast_mql::Code;
use handfast_store::decorator::{Fault, Faulty, Plan};
use handfast_store::{DocumentStore, MemoryStore, Namespace, RenameCollection, Result as StoreResult, StoreExt};
use handfast_txn::percolator::RETENTION;
use handfast_txn::{Database, Engine, Error, Isolation, Outcome, Percolator, Result, TransactionOptions};
use tokio::task::JoinHandle;

use crate::stubborn::locked;
use crate::support::*;

/// The most round trips of a task.
const ROUNDS_MAX: u32 = 10_000;

/// The round trips of a removal before the payment continues: more than it needs, unless it waits for the payment.
const CONCURRENT_MAX: u32 = 30;

/// A change of the collection of the accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    Drop,
    DropDatabase,
    Rename,
    /// Gives their name to another collection.
    Replace,
}

pub(crate) const REMOVALS: [Removal; 4] = [Removal::Drop, Removal::DropDatabase, Removal::Rename, Removal::Replace];

fn other() -> Namespace {
    Namespace::new("other", "people").unwrap()
}

/// Returns the collections of the receipts, which stay. The primary is a transaction's first row by name: with one collection it is an
/// account, with the other a receipt.
pub(crate) fn kept() -> [Namespace; 2] {
    [Namespace::new("kept", "receipts").unwrap(), Namespace::new("a", "receipts").unwrap()]
}

#[async_trait]
trait Removes {
    async fn remove(&self, removal: Removal) -> StoreResult<bool>;
}

#[async_trait]
impl Removes for Database {
    async fn remove(&self, removal: Removal) -> StoreResult<bool> {
        let rename = |from, to, drop_target| self.rename_collection(RenameCollection { from, to, drop_target });
        match removal {
            Removal::Drop => self.drop_collection(&accounts()).await,
            Removal::DropDatabase => self.drop_database("bank").await,
            Removal::Rename => rename(accounts(), other(), false).await.map(|()| true),
            Removal::Replace => rename(other(), accounts(), true).await.map(|()| true),
        }
    }
}

/// Returns a bank, with the collection that replaces the accounts if one does.
pub(crate) async fn bank_before(removal: Removal) -> Bank {
    let bank = Bank::of_the_seed().await;
    if removal == Removal::Replace {
        bank.store.insert_one(&other(), rawdoc! { "_id": "Zoe" }).await.unwrap();
    }
    bank
}

/// Moves 7 from Bob to Joe, with a receipt in another collection; returns whether Bob's account exists.
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

/// A task whose requests a test releases one by one.
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

    /// Lets this number of round trips happen; returns whether there were as many.
    async fn step(&self, rounds: u32) -> bool {
        for _ in 0..rounds {
            let_tasks_run().await;
            if self.task.is_finished() {
                return false;
            }
            self.gate.release();
        }
        let_tasks_run().await;
        !self.task.is_finished()
    }

    /// Continues to the answer, and drops the work that is left after it.
    async fn finish(self) -> T {
        for _ in 0..ROUNDS_MAX {
            if self.task.is_finished() {
                return self.task.await.unwrap();
            }
            self.gate.release();
            let_tasks_run().await;
        }
        panic!("it never ends");
    }
}

/// Runs all tasks until each waits for the store or for a pause.
async fn let_tasks_run() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// Returns what a reader sees of a payment: in Bob's account, under whichever name it is found, and in the other collection.
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

/// A payment stops before each of its round trips, the removal goes on to each of its own, then the payment goes on to its answer and its
/// process dies; then the removal ends. An acknowledged payment is there wholly, any other one not at all.
#[tokio::test(start_paused = true)]
async fn a_commit_beside_a_drop_or_rename_is_not_half_lost() {
    for removal in REMOVALS {
        // Where the primary stays, one kind of removal stands for all.
        for receipts in kept().into_iter().take(if removal == Removal::Drop { 2 } else { 1 }) {
            let (mut committed, mut conflicts) = (0, 0);
            'payment: for before in 0.. {
                for beside in 0..CONCURRENT_MAX {
                    let bank = bank_before(removal).await;
                    let case = format!("{removal:?}, {receipts}, payment stops at {before}, removal at {beside}");
                    if removal == Removal::Replace {
                        // No transaction has written to either of the two collections.
                        let plain = rawdoc! { "$unset": { "_hf": 1 } };
                        bank.store.update_one(&accounts(), rawdoc! { "_id": "Bob" }, plain).await.unwrap();
                        bank.store.insert_one(&other(), rawdoc! { "_id": "Bob", "balance": 100 }).await.unwrap();
                    }
                    let to = receipts.clone();
                    let payment = Stepping::of(&bank, |database| async move { pay_for(&database, &to).await });
                    if !payment.step(before).await {
                        break 'payment;
                    }
                    let going = Stepping::of(&bank, |database| async move { database.remove(removal).await });
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
                    if removal == Removal::Rename {
                        assert_eq!(bob, Some(if is_paid { 3 } else { 10 }), "{case}");
                    }
                    if removal == Removal::Replace {
                        assert!(bob == Some(100) || is_paid && bob == Some(93), "{case}: {bob:?}");
                    }
                    if !is_on_its_way {
                        break;
                    }
                }
            }
            println!("{removal:?} beside {receipts}: {committed} committed, {conflicts} conflicts");
            assert!(committed > 10 && conflicts > 10, "{removal:?}: {committed} committed, {conflicts} conflicts");
        }
    }
}

/// A transaction that is refused runs again, and finds the collection as it is then.
#[tokio::test(start_paused = true)]
async fn a_transaction_that_a_drop_refuses_runs_again() {
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

/// A drop of a database with an invalid name is refused: otherwise it would be in the catalog, which each process reads.
#[tokio::test(start_paused = true)]
async fn a_database_that_cannot_be_is_not_closed() {
    let bank = Bank::of_the_seed().await;
    for name in ["", "bank.", "bank.accounts", "a b"] {
        let error = bank.process().drop_database(name).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidNamespace, "{name}");
    }
    assert_eq!(bank.process().count_matching(&accounts(), rawdoc! {}).await.unwrap(), 2);
}

/// The outcome of a transaction is known although its primary was in a collection that has been dropped.
#[tokio::test(start_paused = true)]
async fn the_outcome_of_a_commit_in_a_dropped_collection_is_known() {
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
            assert!(matches!(database.outcome(id).await.unwrap(), Outcome::Committed(_)));
            unknown += 1;
        }
    }
    assert!(unknown > 0);
}

/// Every operation of a drop meets every fault, beside a payment that died at its commit point: no acknowledged write is lost. Afterwards
/// the collection can be used, at once or later, and be dropped.
#[tokio::test(start_paused = true)]
async fn every_operation_of_a_drop_meets_every_fault() {
    use crate::crash_points::Late;
    let (mut cases, mut gone) = (0, 0);
    for removal in REMOVALS {
        for fault in Fault::ALL_OUTCOMES {
            for late in [Late::Soon, Late::PastRecovery] {
                let is_late = matches!(fault, Fault::DeliverLate | Fault::Duplicate);
                for number in 0..if late == Late::Soon || is_late { OPERATIONS_MAX } else { 0 } {
                    let bank = bank_before(removal).await;
                    let receipts = &kept()[0];
                    let to = receipts.clone();
                    let payment = Stepping::of(&bank, |database| async move { pay_for(&database, &to).await });
                    assert!(payment.finish().await.unwrap());
                    let faulty = Arc::new(Faulty::new(bank.store.clone(), Plan::at(number, fault)));
                    let went = bank.process_over(faulty.clone()).remove(removal).await;
                    let case = format!("{removal:?}, {fault:?} at {number}, late {late:?}: {went:?}");
                    let is_over = faulty.operations() <= number;
                    if late == Late::Soon {
                        faulty.deliver_late().await;
                    }
                    faulty.restart();
                    bank.clock.advance(LOCK_TIME);
                    let (bob, receipt) = seen(&bank, receipts).await;
                    assert!(receipt, "{case}");
                    assert!(removal != Removal::Rename || bob == Some(3), "{case}: {bob:?}");
                    if went.is_ok() {
                        let is_there = accounts_are_there(&bank).await;
                        assert_eq!(is_there, removal == Removal::Replace, "{case}");
                        gone += 1;
                    }
                    // A late request finds no transaction that commits there.
                    if late == Late::PastRecovery {
                        faulty.deliver_late().await;
                        assert!(seen(&bank, receipts).await.1, "{case}");
                    }
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

/// Returns whether users can see the accounts.
async fn accounts_are_there(bank: &Bank) -> bool {
    let collections = bank.process().list_collections("bank").await.unwrap();
    collections.iter().any(|collection| collection.name == accounts().collection())
}

/// Inserts a document into the accounts whose hidden field another program has written.
async fn damaged(bank: &Bank) {
    let damaged = rawdoc! { "_id": "Damaged", "_hf": { "v": "x", "lock": { "s": 7_i64 } } };
    bank.store.insert_one(&accounts(), damaged).await.unwrap();
}

/// No row outside of the dropped collection needs an outcome from its rows.
#[tokio::test(start_paused = true)]
async fn a_damaged_row_does_not_keep_its_collection() {
    for removal in [Removal::Drop, Removal::DropDatabase] {
        let bank = Bank::of_the_seed().await;
        damaged(&bank).await;
        bank.store.insert_one(&accounts(), locked("Eve", 7, "Damaged")).await.unwrap();
        assert!(bank.process().remove(removal).await.unwrap());
        assert!(!accounts_are_there(&bank).await);
    }
}

/// Returns the names of the collections that the store has.
async fn stored(bank: &Bank, database: &str) -> Vec<String> {
    bank.store.list_collections(database).await.unwrap().into_iter().map(|info| info.name).collect()
}

fn cleaner(bank: &Bank) -> Percolator {
    Percolator::new(bank.store.clone(), bank.sources.clone(), options()).unwrap()
}

/// After any removal of the accounts, a transaction that began before reads Bob and Joe repeatedly, also by a query; a commit of what it
/// computes from them is refused.
#[tokio::test(start_paused = true)]
async fn a_snapshot_reads_what_was_dropped_or_renamed_since() {
    for removal in REMOVALS {
        for isolation in [Isolation::Snapshot, Isolation::Serializable] {
            let bank = bank_before(removal).await;
            let begin = async |database: &Database| {
                database.begin_with(TransactionOptions { isolation, ..TransactionOptions::default() }).await.unwrap()
            };
            let database = bank.process();
            let (looks, writes) = (begin(&database).await, begin(&database).await);
            bank.process().remove(removal).await.unwrap();
            for tx in [&looks, &writes] {
                for _ in 0..2 {
                    let rich = rawdoc! { "balance": { "$gt": 5 } };
                    assert_eq!(tx.count_matching(&accounts(), rich).await.unwrap(), 1, "{removal:?}");
                    let joe = tx.find_one(&accounts(), rawdoc! { "_id": "Joe" }).await.unwrap().unwrap();
                    assert_eq!(joe.get_i32("balance").unwrap(), 2, "{removal:?}");
                    // The snapshot does not see documents that came later.
                    if removal == Removal::Rename {
                        assert_eq!(tx.count_matching(&other(), rawdoc! {}).await.unwrap(), 0);
                    }
                }
            }
            looks.commit().await.unwrap();
            writes.insert_one(&kept()[0], rawdoc! { "_id": "sum", "balance": 12 }).await.unwrap();
            assert!(is_conflict(&writes.commit().await.map(drop)), "{removal:?}");
            assert_eq!(bank.process().count_matching(&kept()[0], rawdoc! {}).await.unwrap(), 0);
        }
    }
}

/// A dropped collection stays in the store for the snapshots that may read it, and is removed after them; its name is free at once for a
/// collection that has another name in the store.
#[tokio::test(start_paused = true)]
async fn a_dropped_collection_is_removed_when_no_snapshot_reads_it() {
    let bank = Bank::of_the_seed().await;
    let database = bank.process();
    assert!(database.drop_collection(&accounts()).await.unwrap());
    assert!(!database.drop_collection(&accounts()).await.unwrap());
    assert_eq!(database.list_databases().await.unwrap(), Vec::<String>::new());
    assert_eq!(database.list_indexes(&accounts()).await.unwrap_err().code(), Code::NamespaceNotFound);
    database.insert_one(&accounts(), rawdoc! { "_id": "Bob", "balance": 1 }).await.unwrap();
    database.flush().await.unwrap();
    let names = stored(&bank, "bank").await;
    assert_eq!(names.len(), 2, "{names:?}");
    assert_eq!(names[0], "accounts");
    assert!(names[1].starts_with("accounts~hf"), "{names:?}");
    let listed = database.list_collections("bank").await.unwrap();
    assert_eq!(listed.iter().map(|info| &info.name[..]).collect::<Vec<_>>(), ["accounts"]);

    forget_all(&bank).await;
    assert_eq!(stored(&bank, "bank").await, names[1..], "what was dropped is gone");
    let bob = bank.process().find_one(&accounts(), rawdoc! { "_id": "Bob" }).await.unwrap().unwrap();
    assert_eq!(bob.get_i32("balance").unwrap(), 1);
    // When that collection is also dropped and removed, the catalog has no entry left.
    assert!(database.drop_collection(&accounts()).await.unwrap());
    forget_all(&bank).await;
    assert!(stored(&bank, "bank").await.is_empty());
    let catalog = Namespace::new("handfast", "catalog").unwrap();
    let catalog = bank.store.find_one(&catalog, rawdoc! {}).await.unwrap().unwrap();
    assert!(catalog.get("names").unwrap().is_none(), "{catalog:?}");
}

/// A snapshot that a lease protects reads the dropped collection for as long as the lease lives.
#[tokio::test(start_paused = true)]
async fn a_lease_keeps_a_dropped_collection() {
    let bank = Bank::of_the_seed().await;
    let (reader, cleaner) = (cleaner(&bank), cleaner(&bank));
    let snapshot = reader.begin(Duration::MAX).await.unwrap().snapshot;
    bank.process().drop_collection(&accounts()).await.unwrap();
    for _ in 0..100 {
        bank.clock.advance(handfast_txn::percolator::LEASE_TTL / 3);
        reader.keep_history().await.unwrap();
        cleaner.clean().await.unwrap();
    }
    assert!(snapshot.get(&accounts(), RawBsonRef::String("Bob")).await.unwrap().is_some());
    drop(snapshot);
    reader.keep_history().await.unwrap();
    for _ in 0..8 {
        bank.clock.advance(RETENTION / 2 + LOCK_TIME);
        cleaner.clean().await.unwrap();
    }
    assert!(stored(&bank, "bank").await.is_empty());
}

/// A process that dies during a drop leaves a collection that exists or not, and that can be used at once; a process that repeats the
/// drop completes it.
#[tokio::test(start_paused = true)]
async fn an_interrupted_drop_delays_no_transaction() {
    for number in 0..OPERATIONS_MAX {
        for fault in [Fault::CrashBefore, Fault::CrashAfter] {
            let bank = Bank::of_the_seed().await;
            let faulty = Arc::new(Faulty::new(bank.store.clone(), Plan::at(number, fault)));
            let _ = bank.process_over(faulty.clone()).drop_collection(&accounts()).await;
            if faulty.operations() <= number {
                assert!(number > 3, "{number} operations");
                return;
            }
            // The clock stands still.
            let case = format!("{fault:?} at {number}");
            let database = bank.process();
            database.insert_one(&accounts(), rawdoc! { "_id": "Ann" }).await.expect(&case);
            // The first drop may arrive only now, and may be the one that drops the documents just written.
            database.drop_collection(&accounts()).await.unwrap();
            assert_eq!(database.count_matching(&accounts(), rawdoc! {}).await.unwrap(), 0, "{case}");
            database.insert_one(&accounts(), rawdoc! { "_id": "Ann" }).await.expect(&case);
            assert_eq!(bank.process().count_matching(&accounts(), rawdoc! {}).await.unwrap(), 1, "{case}");
        }
    }
    panic!("it never ends");
}

/// Two transactions create a name that another one is renamed to: one of the two is refused, and no document is lost.
#[tokio::test(start_paused = true)]
async fn a_collection_that_is_created_beside_a_rename_is_not_lost() {
    let (mut refused, mut renamed) = (0, 0);
    for before in 0..OPERATIONS_MAX as u32 {
        let bank = Bank::of_the_seed().await;
        let renaming = Stepping::of(&bank, |database| async move { database.remove(Removal::Rename).await });
        let is_on_its_way = renaming.step(before).await;
        bank.process().insert_one(&other(), rawdoc! { "_id": "Zoe" }).await.unwrap();
        let answer = renaming.finish().await;
        let reader = bank.process();
        let zoe = reader.find_one(&other(), rawdoc! { "_id": "Zoe" }).await.unwrap();
        assert!(zoe.is_some(), "renamed at {before}: {answer:?}");
        match answer {
            Ok(_) => renamed += 1,
            Err(error) => {
                assert_eq!(error.code(), Code::NamespaceExists, "{error}");
                refused += 1;
            }
        }
        let left = reader.count_matching(&accounts(), rawdoc! {}).await.unwrap();
        assert_eq!(left, if zoe.is_some() && refused + renamed == before + 1 && renamed > 0 { 0 } else { 2 });
        if !is_on_its_way {
            break;
        }
    }
    assert!(refused > 1 && renamed > 0, "{refused} refused, {renamed} renamed");
}

/// A transaction is not delayed by drops of collections that it does not use, however many there are.
#[tokio::test(start_paused = true)]
async fn endless_drops_of_another_collection_delay_no_transaction() {
    let bank = Bank::of_the_seed().await;
    let (database, dropper) = (bank.process(), bank.process());
    let tx = database.begin().await.unwrap();
    pay(&tx).await.unwrap();
    for number in 0..300 {
        dropper.insert_one(&other(), rawdoc! { "_id": number }).await.unwrap();
        assert!(dropper.drop_collection(&other()).await.unwrap());
    }
    tx.commit().await.unwrap();
    assert_eq!(bank.balances().await, (3, 9));
}

/// A user cannot use the names of the engine's own collections.
#[tokio::test(start_paused = true)]
async fn names_of_the_engine_are_refused() {
    let bank = Bank::of_the_seed().await;
    let database = bank.process();
    let taken = Namespace::new("bank", "accounts~hf7").unwrap();
    let error = database.insert_one(&taken, rawdoc! { "_id": 1 }).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidNamespace, "{error}");
    assert_eq!(
        database.create_collection(&taken, Default::default()).await.unwrap_err().code(),
        Code::InvalidNamespace
    );
    let rename = RenameCollection { from: accounts(), to: taken, drop_target: false };
    assert_eq!(database.rename_collection(rename).await.unwrap_err().code(), Code::InvalidNamespace);
    let records = handfast_store::Ticket::namespace().unwrap();
    assert_eq!(database.drop_collection(&records).await.unwrap_err().code(), Code::IllegalOperation);
    assert_eq!(bank.balances().await, (10, 2));
}
