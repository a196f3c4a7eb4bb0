//! A bank of two accounts, processes that share its store, and a store that stops before each operation.

use std::sync::Arc;
use std::time::Duration;

use bson::{DateTime, Document, RawDocumentBuf, rawdoc};
use handfast_store::decorator::{Fault, Faulty, Plan};
use handfast_store::{
    DocumentStore, Find, IndexSpec, ManualClock, MemoryStore, Namespace, Sources, StoreExt, Ticket, ticket,
};
use handfast_txn::percolator::RETENTION;
use handfast_txn::{Database, Error, Percolator, PercolatorOptions, Result, Transaction, TransactionOptions};

/// A time that exceeds a lock's lifetime.
pub(crate) const LOCK_TIME: Duration = Duration::from_secs(6);
/// The most operations of a scenario.
pub(crate) const OPERATIONS_MAX: u64 = 400;

pub(crate) fn accounts() -> Namespace {
    Namespace::new("bank", "accounts").unwrap()
}

/// A store with accounts, and its clock.
pub(crate) struct Bank {
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) sources: Sources,
    pub(crate) clock: Arc<ManualClock>,
}

impl Bank {
    /// Returns the bank at the start of the seed: Bob has 10 and Joe 2 since timestamp 6, by a transaction that began at 5. The next
    /// timestamp is 7.
    pub(crate) async fn of_the_seed() -> Bank {
        let (sources, clock) = Sources::manual(1);
        clock.set(DateTime::from_millis(0));
        let store = Arc::new(MemoryStore::new(sources.clone()));
        for (name, balance) in [("Bob", 10), ("Joe", 2)] {
            let hidden = rawdoc! { "v": 1_i64, "c": 6_i64, "s": 5_i64 };
            let row = rawdoc! { "_id": name, "balance": balance, "_hf": hidden };
            store.insert_one(&accounts(), row).await.unwrap();
        }
        let oracle = Namespace::new("handfast", "oracle").unwrap();
        store
            .insert_one(&oracle, rawdoc! { "_id": "oracle", "ts": 6_i64, "at": DateTime::from_millis(0) })
            .await
            .unwrap();
        Bank { store, sources, clock }
    }

    /// Returns a process that uses the store.
    pub(crate) fn process(&self) -> Database {
        self.process_over(self.store.clone())
    }

    /// Returns a process that uses the store through a decorator.
    pub(crate) fn process_over(&self, store: Arc<dyn DocumentStore>) -> Database {
        Database::percolator(store, self.sources.clone(), options()).unwrap()
    }

    /// Returns the indexes in a collection of the store that users created, or the engine for them; `_id_` comes first.
    pub(crate) async fn indexes_of_users(&self, namespace: &Namespace) -> Vec<IndexSpec> {
        let stored = self.store.list_indexes(namespace).await.unwrap();
        stored.into_iter().map(|info| info.spec).filter(|spec| !spec.name.starts_with("_hf.")).collect()
    }

    /// Returns the stored rows, by `_id`.
    pub(crate) async fn rows(&self) -> Vec<Document> {
        let find = Find { sort: rawdoc! { "_id": 1 }, ..Find::new(accounts(), rawdoc! {}) };
        let found = self.store.find_all(find).await.unwrap();
        found.iter().map(|row| Document::try_from(row).unwrap()).collect()
    }

    /// Returns the balances of Bob and Joe as a new process sees them.
    pub(crate) async fn balances(&self) -> (i32, i32) {
        let process = self.process();
        let balances = balances(&process).await;
        // The process rolls rows of other transactions forward after its answer.
        process.flush().await.unwrap();
        balances
    }

    /// Moves the clock on, and records the ages of timestamps before and after, so that every cleaner knows that earlier timestamps are
    /// that old.
    pub(crate) async fn let_pass(&self, time: Duration) {
        let process = self.process();
        // This call forgets nothing, and records the ages of timestamps.
        process.forget_outcomes(Duration::MAX).await.unwrap();
        self.clock.advance(time);
        process.forget_outcomes(Duration::MAX).await.unwrap();
    }

    /// Returns the last timestamp that the oracle gave out.
    pub(crate) async fn clock_of_oracle(&self) -> i64 {
        let oracle = Namespace::new("handfast", "oracle").unwrap();
        let document = self.store.find_one(&oracle, rawdoc! {}).await.unwrap().unwrap();
        document.get_i64("ts").unwrap()
    }

    /// Returns the number of stored records of outcomes, without the record of the forgotten ones.
    pub(crate) async fn records(&self) -> u64 {
        let of_sessions = rawdoc! { "_id": { "$ne": ticket::forgotten_id() } };
        self.store.count_matching(&Ticket::namespace().unwrap(), of_sessions).await.unwrap()
    }

    /// Returns the hidden fields of the rows.
    pub(crate) async fn hidden(&self) -> Vec<Document> {
        self.rows().await.into_iter().map(|row| row.get_document("_hf").cloned().unwrap_or_default()).collect()
    }
}

pub(crate) fn options() -> PercolatorOptions {
    PercolatorOptions { cleaning_interval: None, ..PercolatorOptions::default() }
}

/// Returns the balances of Bob and Joe.
pub(crate) async fn balances(database: &Database) -> (i32, i32) {
    let find = Find { sort: rawdoc! { "_id": 1 }, ..Find::new(accounts(), rawdoc! { "balance": { "$exists": true } }) };
    let found = database.find_all(find).await.unwrap();
    let balance = |document: &RawDocumentBuf| document.get_i32("balance").unwrap();
    (balance(&found[0]), balance(&found[1]))
}

/// Moves 7 from Bob to Joe, in an open transaction.
pub(crate) async fn pay(tx: &Transaction) -> Result<()> {
    // Both are read at once, in one round trip.
    let both = Find::new(accounts(), rawdoc! { "_id": { "$in": ["Bob", "Joe"] } });
    let found = tx.find_all(both).await?;
    assert_eq!(found.len(), 2);
    tx.update_one(&accounts(), rawdoc! { "_id": "Bob" }, rawdoc! { "$inc": { "balance": -7 } }).await?;
    tx.update_one(&accounts(), rawdoc! { "_id": "Joe" }, rawdoc! { "$inc": { "balance": 7 } }).await?;
    Ok(())
}

/// Moves 7 from Bob to Joe, in a transaction.
pub(crate) async fn pay_once(database: &Database) -> Result<()> {
    let tx = database.begin_with(TransactionOptions::default()).await?;
    pay(&tx).await?;
    tx.commit().await.map(drop)
}

/// Returns a store that freezes each operation until it is released.
pub(crate) fn stepped(store: Arc<MemoryStore>) -> Arc<Faulty<MemoryStore>> {
    Arc::new(Faulty::new(store, Plan::explicit((0..OPERATIONS_MAX).map(|number| (number, Fault::FreezeBefore)))))
}

/// The number of checks whether a task is frozen or done: they take two minutes or more, on a busy machine.
const LOOKS_MAX: usize = 120_000;
/// The number of the first checks, after which the tasks of this thread run. After later checks those of other threads run.
const YIELDS_MAX: usize = 10_000;

/// Waits until an operation is frozen, or the work is done. Returns whether an operation is frozen.
pub(crate) async fn stopped(store: &Faulty<MemoryStore>, is_done: impl Fn() -> bool) -> bool {
    // Concurrent tasks continue up to their own operations.
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    for look in 0..LOOKS_MAX {
        if store.frozen() > 0 {
            return true;
        }
        if is_done() {
            return false;
        }
        match look < YIELDS_MAX {
            true => tokio::task::yield_now().await,
            false => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
    panic!("neither is an operation frozen, nor is the work done");
}

/// A payment that continues one operation at a time.
pub(crate) struct Stepped<E = Error> {
    pub(crate) store: Arc<Faulty<MemoryStore>>,
    pub(crate) payment: tokio::task::JoinHandle<Result<(), E>>,
}

impl Stepped {
    pub(crate) fn payment(bank: &Bank) -> Stepped {
        let store = stepped(bank.store.clone());
        let database = bank.process_over(store.clone());
        let payment = tokio::spawn(async move {
            let paid = pay_once(&database).await;
            database.flush().await.unwrap();
            paid
        });
        Stepped { store, payment }
    }

    /// Starts a payment whose task ends with its answer, before the writes that follow.
    pub(crate) fn payment_without_flush(bank: &Bank) -> Stepped {
        let store = stepped(bank.store.clone());
        let database = bank.process_over(store.clone());
        let payment = tokio::spawn(async move { pay_once(&database).await });
        Stepped { store, payment }
    }
}

impl<E: std::fmt::Debug> Stepped<E> {
    /// Continues until the rows fulfil a condition, and stops before the next operation.
    pub(crate) async fn until(&self, bank: &Bank, is_so: impl Fn(&[Document]) -> bool) {
        for _ in 0..OPERATIONS_MAX {
            assert!(stopped(&self.store, || self.payment.is_finished()).await, "it ended: {:?}", bank.rows().await);
            if is_so(&bank.hidden().await) {
                return;
            }
            self.store.release();
        }
        panic!("it never was so: {:?}", bank.rows().await);
    }

    /// Continues to the operation after the next one.
    pub(crate) async fn step(&self) {
        self.store.release();
        assert!(stopped(&self.store, || self.payment.is_finished()).await);
    }

    /// Continues to the end.
    pub(crate) async fn finish(self) -> Result<(), E> {
        while stopped(&self.store, || self.payment.is_finished()).await {
            self.store.release();
        }
        self.payment.await.unwrap()
    }
}

pub(crate) fn both_locked(hidden: &[Document]) -> bool {
    hidden.iter().all(|hidden| hidden.contains_key("lock"))
}

/// Returns whether the primary has committed and the other row has not.
pub(crate) fn half_committed(hidden: &[Document]) -> bool {
    !hidden[0].contains_key("lock") && hidden[1].contains_key("lock")
}

pub(crate) fn is_conflict(result: &Result<()>) -> bool {
    matches!(result, Err(Error::Conflict(_)))
}

/// Moves the clock on until a cleaner has removed all that is no longer needed.
pub(crate) async fn forget_all(bank: &Bank) {
    let cleaner = Percolator::new(bank.store.clone(), bank.sources.clone(), options()).unwrap();
    for _ in 0..8 {
        assert_eq!(cleaner.clean().await.unwrap().failed, 0);
        bank.clock.advance(RETENTION / 2 + LOCK_TIME);
    }
}
