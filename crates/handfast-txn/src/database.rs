//! A database: a store with transactions.
//!
//! A request outside of a transaction changes each document in one atomic step, as the contract of a store says. `Database` passes it to
//! the engine's store; or, where that store cannot do it alone, runs it as a transaction.

mod backoff;
mod requests;
mod restarting_cursor;

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use handfast_mql::Code;
use handfast_store::{
    Aggregate, AtomicStore, CommitTimestamp, Cursor, DocumentStore, Error as StoreError, Find, Result as StoreResult,
    Sources, aggregation,
};

use self::restarting_cursor::Read;
use crate::options::LIFETIME_MAX;
use crate::transaction::write_budget::WriteBudget;
use crate::{
    Catalog, DocumentKey, Engine, Error, Local, Outcome, Percolator, PercolatorOptions, Result, Transaction,
    TransactionId, TransactionOptions,
};

/// A store with transactions. Clones are the same database.
#[derive(Clone)]
pub struct Database {
    shared: Arc<Shared>,
}

/// A handle on a database that does not keep it open.
#[derive(Clone)]
pub struct WeakDatabase {
    shared: Weak<Shared>,
}

impl WeakDatabase {
    /// Returns the database if it is still open.
    pub fn upgrade(&self) -> Option<Database> {
        self.shared.upgrade().map(|shared| Database { shared })
    }
}

/// The state that all transactions of a database share.
pub(crate) struct Shared {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) sources: Sources,
    /// The moment when this database was opened, as time since the clock's start.
    opened: Duration,
    pub(crate) write_budget: Arc<WriteBudget>,
    pub(crate) counts: Counters,
    /// Counts snapshots that are only read.
    pub(crate) reads: Counters,
    /// Sessions that no transaction uses, each with the number of its next one. A transaction replaces its session's record of an outcome, so
    /// there are as many records as transactions were open at once, and one for each name that was asked for.
    sessions: Mutex<Vec<TransactionId>>,
}

/// Counts of transactions by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Transactions that were begun.
    pub begun: u64,
    /// Transactions that committed, including those that wrote nothing.
    pub committed: u64,
    /// Transactions that were rolled back by a conflict.
    pub conflicts: u64,
    /// Transactions that were rolled back for any reason.
    pub rolled_back: u64,
    /// Transactions that were rolled back because they were dropped while open.
    pub dropped: u64,
    /// Transactions whose commit was confirmed by asking for the outcome after its answer got lost. Some are counted as `unknown` too.
    pub confirmed: u64,
    /// Transactions whose commit returned an unknown outcome, whatever was learned later.
    pub unknown: u64,
    /// Transactions that [`Database::transaction`] ran again.
    pub retries: u64,
    /// Bytes that open transactions have written.
    pub write_bytes: u64,
    /// Open snapshots that are only read ([`Database::begin_reads`]).
    pub snapshots: u64,
}

impl Counts {
    /// Returns the number of open transactions.
    pub fn open(&self) -> u64 {
        self.begun.saturating_sub(self.committed + self.rolled_back + self.unknown)
    }
}

#[derive(Default)]
pub(crate) struct Counters {
    begun: AtomicU64,
    committed: AtomicU64,
    conflicts: AtomicU64,
    rolled_back: AtomicU64,
    dropped: AtomicU64,
    confirmed: AtomicU64,
    unknown: AtomicU64,
    retries: AtomicU64,
}

impl Counters {
    fn read(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            begun: read(&self.begun),
            committed: read(&self.committed),
            conflicts: read(&self.conflicts),
            rolled_back: read(&self.rolled_back),
            dropped: read(&self.dropped),
            confirmed: read(&self.confirmed),
            unknown: read(&self.unknown),
            retries: read(&self.retries),
            ..Counts::default()
        }
    }

    pub(crate) fn begun(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn committed(&self) {
        self.committed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn rolled_back(&self, by_conflict: bool) {
        self.rolled_back.fetch_add(1, Ordering::Relaxed);
        self.conflicts.fetch_add(u64::from(by_conflict), Ordering::Relaxed);
    }

    pub(crate) fn dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn confirmed(&self) {
        self.confirmed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn unknown(&self) {
        self.unknown.fetch_add(1, Ordering::Relaxed);
    }
}

impl Shared {
    /// Returns a name that no other transaction has, for a transaction with this snapshot.
    pub(crate) fn take_id(&self, at: CommitTimestamp) -> TransactionId {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.pop().unwrap_or_else(|| self.new_id(at))
    }

    /// Returns a name in a session that has no record. Randomness alone does not ensure that: a store that is opened with the seed of an earlier
    /// run draws the same numbers, and a commit under a recorded name is not done but answered with the record. The timestamp in the name is
    /// larger now, since every record was committed after its session was made.
    pub(crate) fn new_id(&self, at: CommitTimestamp) -> TransactionId {
        TransactionId::made(self.sources.random.next_u64(), at)
    }

    /// Refuses writes to the engine's own database.
    ///
    /// # Errors
    /// `IllegalOperation` (20) for the engine's own.
    pub(crate) fn check_not_own(&self, database: &str) -> StoreResult<()> {
        if self.engine.traits().own_database != Some(database) {
            return Ok(());
        }
        let text = format!("the database '{database}' is kept for transactions: use another name");
        Err(StoreError::command(Code::IllegalOperation, text))
    }

    /// Returns a session to the pool for its next transaction.
    pub(crate) fn release_session(&self, id: TransactionId) {
        let next = TransactionId { number: id.number + 1, ..id };
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).push(next);
    }
}

impl Database {
    /// Returns a database over any engine.
    pub fn new(engine: Arc<dyn Engine>, sources: Sources) -> Self {
        let opened = sources.clock.elapsed();
        let write_budget = Arc::default();
        let (counts, reads) = (Counters::default(), Counters::default());
        let shared = Shared { engine, sources, opened, write_budget, counts, reads, sessions: Mutex::default() };
        Database { shared: Arc::new(shared) }
    }

    /// Returns a database over a store that commits batches.
    pub fn local(store: impl AtomicStore, sources: Sources) -> Self {
        Database::new(Arc::new(Local::new(Arc::new(store), sources.clone())), sources)
    }

    /// Returns a database over a store that is atomic one document at a time, which other processes may use in the same way. It has to be called
    /// within a runtime, which then runs a periodic cleaner.
    pub fn percolator(
        store: Arc<dyn DocumentStore>,
        sources: Sources,
        options: PercolatorOptions,
    ) -> StoreResult<Self> {
        let engine = Percolator::new(store, sources.clone(), options)?;
        Ok(Database::new(Arc::new(engine), sources))
    }

    /// Begins a transaction at snapshot isolation.
    pub async fn begin(&self) -> Result<Transaction> {
        self.begin_with(TransactionOptions::default()).await
    }

    /// Begins a transaction.
    pub async fn begin_with(&self, options: TransactionOptions) -> Result<Transaction> {
        Transaction::begin(Arc::clone(&self.shared), options).await
    }

    /// Holds a snapshot for reads outside of transactions. It takes no writes, is not counted as a transaction, and fails with `SnapshotTooOld`
    /// (239) after `lifetime`. Drop or abort it when done.
    pub async fn begin_reads(&self, lifetime: Duration) -> Result<Transaction> {
        Transaction::begin_reads(Arc::clone(&self.shared), lifetime).await
    }

    /// Runs a closure in a transaction and commits it. After a conflict, or a network error at the beginning, it runs the closure again on a new
    /// snapshot.
    ///
    /// Effects of the closure outside of the transaction may happen several times.
    ///
    /// # Errors
    /// Errors of the closure; [`Error::Conflict`] if conflicts went on for longer than [`TransactionOptions::retry_time`];
    /// [`Error::CommitUnknown`] if the answer to the commit got lost.
    ///
    /// # Cancellation
    /// The transaction is rolled back, unless it was just being committed.
    pub async fn transaction<T, E, F, R>(&self, run: F) -> Result<T, E>
    where
        E: From<Error>,
        F: FnMut(Transaction) -> R,
        R: Future<Output = Result<T, E>>,
    {
        self.transaction_with(TransactionOptions::default(), run).await
    }

    /// Runs a closure as [`Database::transaction`] does, with options.
    pub async fn transaction_with<T, E, F, R>(&self, options: TransactionOptions, mut run: F) -> Result<T, E>
    where
        E: From<Error>,
        F: FnMut(Transaction) -> R,
        R: Future<Output = Result<T, E>>,
    {
        let clock = &self.shared.sources.clock;
        let give_up = clock.elapsed().saturating_add(options.retry_time);
        let (mut attempt, mut wanted) = (0, Vec::new());
        loop {
            let (error, conflict) = match self.begin_attempt(&options, attempt, std::mem::take(&mut wanted)).await {
                Ok(transaction) => {
                    let done = run_once(&transaction, &mut run).await?;
                    wanted = transaction.wanted();
                    match done {
                        Ok(value) => return Ok(value),
                        Err(conflict) => conflict,
                    }
                }
                Err(Error::Conflict(conflict)) => (Error::Conflict(conflict.clone()).into(), conflict),
                Err(error) => return Err(error.into()),
            };
            if clock.elapsed() >= give_up {
                return Err(error);
            }
            self.shared.counts.retries.fetch_add(1, Ordering::Relaxed);
            options.on_retry.call(&conflict);
            attempt += 1;
        }
    }

    /// Begins an attempt: with claims on `wanted` documents, or else after a random pause if it is not the first.
    async fn begin_attempt(
        &self,
        options: &TransactionOptions,
        attempt: u32,
        wanted: Vec<DocumentKey>,
    ) -> Result<Transaction> {
        if !wanted.is_empty() {
            let shared = Arc::clone(&self.shared);
            let transaction = Transaction::begin_with_claims(shared, options.clone(), wanted).await?;
            if let Some(transaction) = transaction {
                return Ok(transaction);
            }
        }
        if attempt > 0 {
            tokio::time::sleep(self.backoff(attempt - 1)).await;
        }
        Transaction::begin_repeatable(Arc::clone(&self.shared), options.clone()).await
    }

    /// Returns the pause after this many attempts.
    fn backoff(&self, attempt: u32) -> Duration {
        backoff::pause(attempt, self.shared.sources.random.next_u64())
    }

    /// Returns the outcome of a transaction that is no longer open, also after a restart. It is [`Outcome::Forgotten`] if the transaction may have
    /// committed and been forgotten since ([`Database::forget_outcomes`]). A name that the library made tells whether that is possible; for a
    /// name of the caller any forgotten outcome makes it so. (Over a store of single documents a transaction with a name of the caller counts as
    /// rolled back, and is rolled back if it has not ended: ask before its outcome is forgotten.)
    ///
    /// # Errors
    /// `TransactionTooOld` (225) if a later transaction has used the session: the name was not asked for ([`Transaction::id`]) before the
    /// transaction ended. After an error of the store the outcome is still unknown.
    pub async fn outcome(&self, id: TransactionId) -> StoreResult<Outcome> {
        self.shared.engine.outcome(id).await
    }

    /// Forgets the outcomes of transactions and of requests with tickets that are older than `age`, and returns how many records that were.
    ///
    /// Age counts only the time since the database was opened last, by a monotonic clock: setting the time of day forgets nothing. Processes that
    /// share a store of single documents add up their times over restarts, at each call of this and each pass of a cleaner.
    pub async fn forget_outcomes(&self, age: Duration) -> StoreResult<u64> {
        if let Some(forgotten) = self.shared.engine.forget_outcomes(age).await? {
            return Ok(forgotten);
        }
        let sources = &self.shared.sources;
        if sources.clock.elapsed().saturating_sub(self.shared.opened) < age {
            // Older records are of an earlier run, whose clock is unknown.
            return Ok(0);
        }
        let age_millis = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
        let now = sources.steady_now().timestamp_millis();
        let before = bson::DateTime::from_millis(now.saturating_sub(age_millis));
        self.shared.engine.forget_outcomes_before(before).await
    }

    /// Returns the counts of transactions so far.
    pub fn counts(&self) -> Counts {
        let write_bytes = self.shared.write_budget.bytes() as u64;
        Counts { write_bytes, snapshots: self.shared.reads.read().open(), ..self.shared.counts.read() }
    }

    /// Returns a handle that does not keep the database open.
    pub fn downgrade(&self) -> WeakDatabase {
        WeakDatabase { shared: Arc::downgrade(&self.shared) }
    }

    /// Returns the sources of time, randomness and ids.
    pub fn sources(&self) -> &Sources {
        &self.shared.sources
    }

    /// Returns the store that carries out requests outside of transactions: the engine's store, or else the database itself.
    pub fn store(&self) -> &dyn DocumentStore {
        self.plain().unwrap_or(self)
    }

    /// Returns the catalog of collections and indexes.
    fn catalog(&self) -> &dyn Catalog {
        self.shared.engine.catalog()
    }

    fn plain(&self) -> Option<&dyn DocumentStore> {
        self.shared.engine.plain().map(|store| &**store)
    }

    /// Opens a cursor over the newest version of one document, or else over a new snapshot.
    async fn find_outside_transaction(&self, request: Find) -> StoreResult<Box<dyn Cursor>> {
        match self.shared.engine.find_newest(&request).await? {
            Some(cursor) => Ok(cursor),
            None => restarting_cursor::open(self.clone(), Read::Find(request)).await,
        }
    }

    async fn find_at_new_snapshot(&self, request: Find) -> StoreResult<Box<dyn Cursor>> {
        let deadline = self.shared.sources.clock.elapsed().saturating_add(LIFETIME_MAX);
        self.shared.engine.begin(deadline).await?.snapshot.find(request).await
    }

    /// Runs an aggregation. One that writes is not begun again.
    async fn aggregate_outside_transaction(&self, request: Aggregate) -> StoreResult<Box<dyn Cursor>> {
        if request.writes() {
            return aggregation::open(Arc::new(self.clone()), &self.shared.sources, request).await;
        }
        restarting_cursor::open(self.clone(), Read::Aggregate(request)).await
    }

    /// Runs a request as a transaction of its own.
    async fn run_alone<Q, T, F, R>(&self, request: &Q, run: F) -> StoreResult<T>
    where
        Q: Clone,
        F: Fn(Transaction, Q) -> R,
        R: Future<Output = StoreResult<T>>,
    {
        let run = |tx| {
            let work = Box::pin(run(tx, request.clone()));
            async move { work.await.map_err(Error::of_store) }
        };
        self.transaction(run).await.map_err(StoreError::from)
    }
}

/// Runs a closure in a transaction, and commits it. If it may be run again, returns the error that it ended with, and the conflict that rolled
/// it back.
async fn run_once<T, E, F, R>(transaction: &Transaction, run: &mut F) -> Result<Result<T, (E, StoreError)>, E>
where
    E: From<Error>,
    F: FnMut(Transaction) -> R,
    R: Future<Output = Result<T, E>>,
{
    match run(transaction.clone()).await {
        Ok(value) => match transaction.clone().commit().await {
            Ok(_) => Ok(Ok(value)),
            Err(Error::Conflict(conflict)) => Ok(Err((Error::Conflict(conflict.clone()).into(), conflict))),
            Err(error) => Err(error.into()),
        },
        Err(error) => {
            let conflict = transaction.conflict();
            transaction.clone().abort();
            match conflict {
                Some(conflict) => Ok(Err((error, conflict))),
                None => Err(error),
            }
        }
    }
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").field("engine", &self.shared.engine.traits().name).finish_non_exhaustive()
    }
}
