//! Transactions of many documents: with few requests, beside readers, over a store with a bounded number of connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bson::{Document, RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_store::decorator::{DelegatingStore, Fault, Faulty, Plan};
use handfast_store::{
    Applied, Count, Cursor, DocumentStore, ErrorClass, Find, FindAndModify, FindAndModifyOutcome, Insert,
    InsertOutcome, MemoryStore, Result as StoreResult, StoreExt, Update, UpdateOutcome, UpdateSpec, UpdateStatement,
    WriteError,
};
use handfast_txn::{Database, Error, Percolator, PercolatorOptions};
use tokio::sync::{Notify, Semaphore};

use crate::crash_points::answer_holds;
use crate::support::*;

/// The number of documents: more than fit into a few batches.
const MANY: i32 = 5_000;
/// The step by which the clocks move.
const TICK: Duration = Duration::from_millis(50);

/// Returns a bank whose clock follows that of the runtime, which moves only during pauses.
async fn bank() -> Bank {
    let bank = Bank::of_the_seed().await;
    let clock = bank.clock.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(TICK).await;
            clock.advance(TICK);
        }
    });
    bank
}

/// A store behind a pool of connections, each of which carries one request at a time.
struct Pool {
    store: Arc<MemoryStore>,
    connections: Semaphore,
    round_trip: Duration,
    /// Whether inserts wait, except that of the document with `_id` 0.
    holds_inserts: AtomicBool,
    released: Notify,
    /// Whether updates get lost, except those of the first of many documents.
    loses_updates: AtomicBool,
    /// Whether heartbeats get lost.
    loses_signs: AtomicBool,
    requests: AtomicU64,
}

impl Pool {
    fn of(store: Arc<MemoryStore>, connections: usize, round_trip: Duration) -> Arc<Pool> {
        Arc::new(Pool {
            store,
            connections: Semaphore::new(connections),
            round_trip,
            holds_inserts: AtomicBool::new(false),
            released: Notify::new(),
            loses_updates: AtomicBool::new(false),
            loses_signs: AtomicBool::new(false),
            requests: AtomicU64::new(0),
        })
    }

    async fn request(&self) -> tokio::sync::SemaphorePermit<'_> {
        let connection = self.connections.acquire().await.unwrap();
        self.requests.fetch_add(1, Ordering::SeqCst);
        if !self.round_trip.is_zero() {
            tokio::time::sleep(self.round_trip).await;
        }
        connection
    }

    /// Returns the number of requests since the last call.
    fn take_requests(&self) -> u64 {
        self.requests.swap(0, Ordering::SeqCst)
    }

    fn release(&self) {
        self.holds_inserts.store(false, Ordering::SeqCst);
        self.released.notify_waiters();
    }
}

fn is_first(document: &RawDocumentBuf) -> bool {
    document.get_i32("_id").is_ok_and(|id| id == 0)
}

#[async_trait]
impl DelegatingStore for Pool {
    type Inner = MemoryStore;

    fn inner(&self) -> &MemoryStore {
        &self.store
    }

    async fn insert(&self, request: Insert) -> StoreResult<InsertOutcome> {
        let _connection = self.request().await;
        if !request.documents.iter().any(is_first) {
            let released = self.released.notified();
            if self.holds_inserts.load(Ordering::SeqCst) {
                released.await;
            }
        }
        self.store.insert(request).await
    }

    async fn find(&self, request: Find) -> StoreResult<Box<dyn Cursor>> {
        let _connection = self.request().await;
        self.store.find(request).await
    }

    async fn update(&self, request: Update) -> StoreResult<UpdateOutcome> {
        let _connection = self.request().await;
        // The first document of each large transaction is its primary.
        let of_first = |filter: &RawDocumentBuf| {
            let id = filter.get_document("_id").ok().and_then(|id| id.get_i32("$eq").ok());
            id.is_some_and(|id| id % MANY == 0)
        };
        if self.loses_updates.load(Ordering::SeqCst)
            && !request.statements.iter().any(|statement| of_first(&statement.filter))
        {
            std::future::pending::<()>().await;
        }
        let is_sign = |statement: &UpdateStatement| match &statement.update {
            UpdateSpec::Document(change) => change.get("$max").unwrap().is_some(),
            UpdateSpec::Pipeline(_) => false,
        };
        if self.loses_signs.load(Ordering::SeqCst) && request.statements.iter().any(is_sign) {
            std::future::pending::<()>().await;
        }
        self.store.update(request).await
    }
}

fn documents(count: i32) -> Vec<RawDocumentBuf> {
    (0..count).map(|id| rawdoc! { "_id": id, "balance": 1 }).collect()
}

async fn count(database: &Database) -> u64 {
    database.count(Count::new(accounts(), rawdoc! { "balance": 1 })).await.unwrap()
}

/// Asks for the first document again and again, in a transaction each time: outside of a transaction, a read of one document does not
/// wait for a lock and rolls no transaction back.
async fn read_first(reader: Database, pause: Duration) {
    loop {
        if let Ok(tx) = reader.begin().await {
            let _ = tx.find_one(&accounts(), rawdoc! { "_id": 0 }).await;
            tx.abort();
        }
        tokio::time::sleep(pause).await;
    }
}

/// Each request takes some time; a reader asks for the first document all the time.
#[tokio::test(start_paused = true)]
async fn many_inserts_commit_beside_a_reader() {
    let bank = bank().await;
    let pool = Pool::of(bank.store.clone(), 100, Duration::from_millis(2));
    let database = bank.process_over(pool.clone());
    let reading = tokio::spawn(read_first(bank.process(), Duration::from_millis(20)));
    let outcome = database.insert(Insert::new(accounts(), documents(MANY))).await.unwrap();
    assert_eq!(outcome.inserted, MANY as u64);
    database.flush().await.unwrap();
    reading.abort();
    // Each thousand rows take a read, a lock and a commit, and the transaction a few requests more. Other processes may have resolved
    // some rows.
    let requests = pool.take_requests();
    assert!(requests <= 100, "{requests} requests");
    assert_eq!(count(&bank.process()).await, MANY as u64);
}

/// Commits a transaction of many documents over a store with `connections` connections. Its data may take three of them, and keeps them
/// for longer than a lock lives. A reader asks for the first document meanwhile. Returns the result of the commit, and the number of
/// documents afterwards.
async fn commit_while_data_waits(connections: usize) -> (Result<(), Error>, u64) {
    let bank = bank().await;
    let pool = Pool::of(bank.store.clone(), connections, Duration::ZERO);
    let options = PercolatorOptions { requests_max: 3, ..options() };
    let database = Database::percolator(pool.clone(), bank.sources.clone(), options).unwrap();
    let tx = database.begin().await.unwrap();
    tx.insert(Insert::new(accounts(), documents(MANY))).await.unwrap();
    pool.holds_inserts.store(true, Ordering::SeqCst);
    let committing = tokio::spawn(tx.commit());
    let reading = tokio::spawn(read_first(bank.process(), Duration::from_millis(500)));
    tokio::time::sleep(Duration::from_secs(20)).await;
    pool.release();
    let committed = committing.await.unwrap().map(drop);
    reading.abort();
    (committed, count(&bank.process()).await)
}

/// The transaction's data takes all connections that it may use, for longer than a lock lives.
#[tokio::test(start_paused = true)]
async fn heartbeats_are_not_queued_behind_data() {
    let (committed, count) = commit_while_data_waits(4).await;
    committed.unwrap();
    assert_eq!(count, MANY as u64);
}

/// If the store itself queues heartbeats behind data, because it has no connection besides those for data, the transaction counts as
/// abandoned.
#[tokio::test(start_paused = true)]
async fn heartbeats_that_are_queued_behind_data_are_caught() {
    let (committed, count) = commit_while_data_waits(3).await;
    assert!(matches!(committed, Err(Error::Conflict(_))), "{committed:?}");
    assert_eq!(count, 0);
}

/// Other processes roll a transaction back between its batches. Its later requests have no effect.
#[tokio::test(start_paused = true)]
async fn a_transaction_that_is_given_up_between_its_batches_leaves_nothing() {
    let bank = bank().await;
    let pool = Pool::of(bank.store.clone(), 100, Duration::ZERO);
    let database = bank.process_over(pool.clone());
    let tx = database.begin().await.unwrap();
    tx.insert(Insert::new(accounts(), documents(MANY))).await.unwrap();
    pool.holds_inserts.store(true, Ordering::SeqCst);
    pool.loses_signs.store(true, Ordering::SeqCst);
    let committing = tokio::spawn(tx.commit());
    tokio::time::sleep(LOCK_TIME).await;
    assert_eq!(count(&bank.process()).await, 0);
    pool.release();
    let committed = committing.await.unwrap();
    assert!(matches!(committed, Err(Error::Conflict(_))), "{committed:?}");
    tokio::time::sleep(LOCK_TIME).await;
    assert_eq!(count(&bank.process()).await, 0);
    nothing_is_left(&bank).await;
}

/// Checks that nothing is left after the retention and two passes of the cleaner.
async fn nothing_is_left(bank: &Bank) {
    let cleaner = Percolator::new(bank.store.clone(), bank.sources.clone(), options()).unwrap();
    for _ in 0..2 {
        bank.clock.advance(Duration::from_secs(1_300));
        assert_eq!(cleaner.clean().await.unwrap().failed, 0);
    }
    let is_left = |hidden: &Document| hidden.keys().any(|name| !["v", "c", "s", "p"].contains(&name.as_str()));
    assert!(!bank.hidden().await.iter().any(is_left));
}

/// The event after half of a batch is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// The connection breaks.
    Lost,
    /// The connection breaks, and the whole batch arrives nevertheless, at the end.
    Late,
    /// The store reports that the rest failed.
    Refused,
    /// The store reports how much is done, without a reason.
    Short,
    /// The process dies.
    Crash,
}

/// A store that applies half of the batch of this number.
struct Half {
    store: Arc<MemoryStore>,
    at: u64,
    then: Then,
    batches: AtomicU64,
    has_crashed: AtomicBool,
    late: std::sync::Mutex<Vec<Update>>,
}

impl Half {
    fn broken(class: ErrorClass, applied: Applied) -> handfast_store::Error {
        handfast_store::Error::new(class, applied, Code::HostUnreachable, "broken")
    }

    fn check(&self) -> StoreResult<()> {
        match self.has_crashed.load(Ordering::SeqCst) {
            true => Err(Half::broken(ErrorClass::Outage, Applied::No)),
            false => Ok(()),
        }
    }

    /// Returns whether this is the batch to apply in part.
    fn is_hit(&self, rows: usize) -> bool {
        rows > 1 && self.batches.fetch_add(1, Ordering::SeqCst) == self.at
    }

    /// Returns the answer to a batch of `rows` rows, of which `done` have been written.
    fn said(&self, rows: usize, done: u64) -> StoreResult<(u64, Vec<WriteError>)> {
        match self.then {
            Then::Lost | Then::Late => Err(Half::broken(ErrorClass::TransientNetwork, Applied::Maybe)),
            Then::Crash => {
                self.has_crashed.store(true, Ordering::SeqCst);
                Err(Half::broken(ErrorClass::TransientNetwork, Applied::Maybe))
            }
            Then::Short => Ok((done, Vec::new())),
            Then::Refused => {
                let error = Half::broken(ErrorClass::TransientNetwork, Applied::Maybe);
                Ok((done, (rows / 2..rows).map(|index| WriteError { index, error: error.clone() }).collect()))
            }
        }
    }
}

#[async_trait]
impl DelegatingStore for Half {
    type Inner = MemoryStore;

    fn inner(&self) -> &MemoryStore {
        &self.store
    }

    async fn insert(&self, mut request: Insert) -> StoreResult<InsertOutcome> {
        self.check()?;
        let rows = request.documents.len();
        if !self.is_hit(rows) {
            return self.store.insert(request).await;
        }
        request.documents.truncate(rows / 2);
        let done = self.store.insert(request).await?.inserted;
        self.said(rows, done).map(|(inserted, errors)| InsertOutcome { inserted, errors })
    }

    async fn find(&self, request: Find) -> StoreResult<Box<dyn Cursor>> {
        self.check()?;
        self.store.find(request).await
    }

    async fn find_and_modify(&self, request: FindAndModify) -> StoreResult<FindAndModifyOutcome> {
        self.check()?;
        self.store.find_and_modify(request).await
    }

    async fn update(&self, mut request: Update) -> StoreResult<UpdateOutcome> {
        self.check()?;
        let rows = request.statements.len();
        if !self.is_hit(rows) {
            return self.store.update(request).await;
        }
        if self.then == Then::Late {
            self.late.lock().unwrap().push(request.clone());
        }
        request.statements.truncate(rows / 2);
        let outcome = self.store.update(request).await?;
        let (matched, errors) = self.said(rows, outcome.matched)?;
        Ok(UpdateOutcome { matched, errors, ..outcome })
    }
}

/// Changes 40 documents and makes 40 others.
async fn change_many(database: &Database) -> Result<(), Error> {
    let tx = database.begin().await?;
    tx.update_many(&accounts(), rawdoc! { "is": "one" }, rawdoc! { "$set": { "of": "many" } }).await?;
    let made = (1000..1040).map(|id| rawdoc! { "_id": id, "of": "many" }).collect();
    tx.insert(Insert::new(accounts(), made)).await?;
    tx.commit().await.map(drop)
}

/// Each batch of a transaction is applied in part, with each following event; the rest arrives late, or never.
#[tokio::test(start_paused = true)]
async fn every_batch_that_is_done_in_part_leaves_all_or_nothing() {
    let mut cases = std::collections::BTreeMap::new();
    for then in [Then::Lost, Then::Late, Then::Refused, Then::Short, Then::Crash] {
        for at in 0.. {
            let bank = bank().await;
            let rows = (0..40).map(|id| rawdoc! { "_id": id, "is": "one" }).collect();
            bank.store.insert(Insert::new(accounts(), rows)).await.unwrap();
            let (batches, has_crashed, late) = Default::default();
            let half = Arc::new(Half { store: bank.store.clone(), at, then, batches, has_crashed, late });
            let database = bank.process_over(half.clone());
            let changed = change_many(&database).await;
            database.flush().await.ok();
            let is_over = half.batches.load(Ordering::SeqCst) <= at;
            half.has_crashed.store(false, Ordering::SeqCst);
            let case = format!("{then:?} at {at}: {changed:?}");
            let of_many = async || bank.process().count_matching(&accounts(), rawdoc! { "of": "many" }).await.unwrap();
            if changed.is_ok() {
                assert_eq!(of_many().await, 80, "{case}");
            }
            tokio::time::sleep(LOCK_TIME).await;
            let seen = of_many().await;
            assert!(seen == 0 || seen == 80, "{case}: {seen}");
            let late = std::mem::take(&mut *half.late.lock().unwrap());
            for late in late {
                bank.store.update(late).await.unwrap();
            }
            assert_eq!(of_many().await, seen, "{case}");
            let answer = answer_holds(&database, &changed, seen == 80, &case).await;
            *cases.entry(answer).or_insert(0) += 1;
            nothing_is_left(&bank).await;
            assert_eq!(of_many().await, seen, "{case}");
            if is_over {
                break;
            }
        }
    }
    println!("{cases:?}");
    assert!(cases.get("committed").is_some_and(|cases| *cases >= 10), "{cases:?}");
    assert!(cases.get("not committed").is_some_and(|cases| *cases >= 2), "{cases:?}");
}

/// Every operation of a transaction with batches meets every fault.
#[tokio::test(start_paused = true)]
async fn every_operation_of_batches_meets_every_fault() {
    let mut cases = 0;
    for fault in Fault::ALL_OUTCOMES {
        for number in 0..OPERATIONS_MAX {
            let bank = bank().await;
            let rows = (0..40).map(|id| rawdoc! { "_id": id, "is": "one" }).collect();
            bank.store.insert(Insert::new(accounts(), rows)).await.unwrap();
            let faulty = Arc::new(Faulty::new(bank.store.clone(), Plan::at(number, fault)));
            let database = bank.process_over(faulty.clone());
            let changed = change_many(&database).await;
            database.flush().await.ok();
            let is_over = faulty.operations() <= number;
            faulty.restart();
            let case = format!("{fault:?} at {number}: {changed:?}");
            let of_many = async || bank.process().count_matching(&accounts(), rawdoc! { "of": "many" }).await.unwrap();
            if changed.is_ok() {
                assert_eq!(of_many().await, 80, "{case}");
            }
            tokio::time::sleep(LOCK_TIME).await;
            let seen = of_many().await;
            assert!(seen == 0 || seen == 80, "{case}: {seen}");
            faulty.deliver_late().await;
            tokio::time::sleep(LOCK_TIME).await;
            assert_eq!(of_many().await, seen, "{case}");
            answer_holds(&database, &changed, seen == 80, &case).await;
            nothing_is_left(&bank).await;
            cases += 1;
            if is_over {
                break;
            }
        }
    }
    println!("{cases} cases");
    assert!(cases > 70, "{cases}");
}

/// The other rows of the commit are not rolled forward yet, and never will be.
#[tokio::test(start_paused = true)]
async fn a_count_after_a_large_commit_takes_three_times_the_requests_of_a_quiet_one_at_most() {
    let bank = bank().await;
    let pool = Pool::of(bank.store.clone(), 100, Duration::ZERO);
    let database = bank.process_over(pool.clone());
    database.insert(Insert::new(accounts(), documents(MANY))).await.unwrap();
    database.flush().await.unwrap();
    let counting = Pool::of(bank.store.clone(), 100, Duration::ZERO);
    let other = bank.process_over(counting.clone());
    count(&other).await;
    counting.take_requests();
    assert_eq!(count(&other).await, MANY as u64);
    let quiet = counting.take_requests();

    pool.loses_updates.store(true, Ordering::SeqCst);
    database
        .insert(Insert::new(accounts(), (MANY..2 * MANY).map(|id| rawdoc! { "_id": id, "balance": 1 }).collect()))
        .await
        .unwrap();
    counting.take_requests();
    assert_eq!(count(&other).await, 2 * MANY as u64);
    let after = counting.take_requests();
    assert!(after <= 3 * quiet.max(10), "{after} requests, {quiet} when quiet");
}

/// A process dies with many locks: the next process asks once and removes them in batches.
#[tokio::test(start_paused = true)]
async fn a_dead_transaction_of_many_is_cleared_in_batches() {
    let bank = bank().await;
    let pool = Pool::of(bank.store.clone(), 100, Duration::ZERO);
    let database = bank.process_over(pool.clone());
    let tx = database.begin().await.unwrap();
    tx.insert(Insert::new(accounts(), documents(MANY))).await.unwrap();
    pool.loses_signs.store(true, Ordering::SeqCst);
    pool.holds_inserts.store(true, Ordering::SeqCst);
    tokio::spawn(tx.commit());
    tokio::time::sleep(Duration::from_secs(30)).await;
    for comer in ["reader", "cleaner"] {
        let counting = Pool::of(bank.store.clone(), 100, Duration::ZERO);
        match comer {
            "reader" => assert_eq!(count(&bank.process_over(counting.clone())).await, 0),
            _ => {
                let cleaner = Percolator::new(counting.clone(), bank.sources.clone(), options()).unwrap();
                assert_eq!(cleaner.clean().await.unwrap().failed, 0);
            }
        }
        let requests = counting.take_requests();
        assert!(requests <= 200, "{requests} requests of the {comer}");
    }
}

/// The primary's lock names all rows: if they do not fit, nothing is written.
#[tokio::test]
async fn a_transaction_that_its_primary_cannot_name_is_refused_before_anything_is_written() {
    let bank = Bank::of_the_seed().await;
    let before = bank.rows().await;
    let database = bank.process();
    let tx = database.begin().await.unwrap();
    for id in 0..20_000 {
        let id = format!("{id:0900}");
        tx.insert_one(&accounts(), rawdoc! { "_id": id }).await.unwrap();
    }
    let Err(Error::Store(error)) = tx.commit().await else { panic!("it cannot be stored") };
    assert_eq!(error.code(), Code::TransactionTooLarge, "{error}");
    assert_eq!(bank.rows().await, before);
}

/// Another process changes one row of a batch in the meantime, so the total is too small by one.
#[tokio::test]
async fn a_batch_that_is_short_by_one_is_a_conflict() {
    let bank = Bank::of_the_seed().await;
    let rows = (0..100).map(|id| rawdoc! { "_id": id, "balance": 1, "is": "one" }).collect();
    bank.store.insert(Insert::new(accounts(), rows)).await.unwrap();
    for (changed, expected) in [(None, 100), (Some(0), 0), (Some(57), 0)] {
        let tx = bank.process().begin().await.unwrap();
        tx.update_many(&accounts(), rawdoc! { "is": "one" }, rawdoc! { "$set": { "of": "many" } }).await.unwrap();
        if let Some(changed) = changed {
            let set = rawdoc! { "$inc": { "balance": 1 } };
            bank.process().update_one(&accounts(), rawdoc! { "_id": changed }, set).await.unwrap();
        }
        let committed = tx.commit().await;
        assert_eq!(matches!(committed, Err(Error::Conflict(_))), changed.is_some(), "{committed:?}");
        let of_many = rawdoc! { "of": "many" };
        let found = bank.process().count_matching(&accounts(), of_many.clone()).await.unwrap();
        assert_eq!(found, expected);
        bank.process().update_many(&accounts(), of_many, rawdoc! { "$unset": { "of": 1 } }).await.unwrap();
    }
}
