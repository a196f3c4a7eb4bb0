//! A database: a store whose requests can also be put into transactions.
//!
//! Outside of a transaction each request is one of its own: each document is changed in one atomic step, and a request of
//! several documents is a sequence of such steps, as the contract of a store says. So `Database` hands them to the engine's
//! store as they are; or, where that store cannot do it alone, runs each as a transaction.

mod backoff;
mod requests;

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use handfast_mql::Code;
use handfast_store::{
    AtomicStore, CommitTimestamp, Cursor, DocumentStore, Error as StoreError, Find, Result as StoreResult, Sources,
};

use crate::options::{LIFETIME_MAX, RETRY_TIME_MAX};
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
    /// The database, if somebody still has it open.
    pub fn upgrade(&self) -> Option<Database> {
        self.shared.upgrade().map(|shared| Database { shared })
    }
}

/// What all transactions of a database share.
pub(crate) struct Shared {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) sources: Sources,
    /// When this database was opened, as time since the clock's start.
    opened: Duration,
    pub(crate) write_budget: Arc<WriteBudget>,
    pub(crate) counts: Counters,
    /// Snapshots that are only read.
    pub(crate) reads: Counters,
    /// Sessions that no transaction uses, each with the number of its next one. A session's record of an outcome is
    /// replaced by that of the next transaction, so there are as many records as transactions were open at once, and one
    /// for each whose name somebody has asked for.
    sessions: Mutex<Vec<TransactionId>>,
}

/// What became of transactions so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Begun.
    pub begun: u64,
    /// Committed, those that wrote nothing included.
    pub committed: u64,
    /// Rolled back because of another one.
    pub conflicts: u64,
    /// Rolled back for any reason.
    pub rolled_back: u64,
    /// Dropped while they were open, and so rolled back.
    pub dropped: u64,
    /// Committed, as was found out by asking after the answer to the commit had got lost; some of them are counted as `unknown`.
    pub confirmed: u64,
    /// Whose commit was answered without its outcome being known, whatever was found out later.
    pub unknown: u64,
    /// Run again by [`Database::transaction`].
    pub retries: u64,
    /// Bytes that those have written that are open now.
    pub write_bytes: u64,
    /// Snapshots that are open now to be read, and are no transactions ([`Database::begin_reads`]).
    pub snapshots: u64,
}

impl Counts {
    /// Open now.
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
    /// A name that no other transaction has, for one whose snapshot is of this moment.
    pub(crate) fn take_id(&self, at: CommitTimestamp) -> TransactionId {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.pop().unwrap_or_else(|| self.new_id(at))
    }

    /// A name in a session that has no record. Chance alone does not make it so: whoever opens a store again with the seed of an
    /// earlier run draws what was drawn then, and a commit under a name that has a record is answered with that record and not
    /// done. But whatever left a record was committed later than its session was made, so that now is later.
    pub(crate) fn new_id(&self, at: CommitTimestamp) -> TransactionId {
        TransactionId::made(self.sources.random.next_u64(), at)
    }

    /// Whether a database is the users' to write to.
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

    /// A session can go on to its next transaction.
    pub(crate) fn release_session(&self, id: TransactionId) {
        let next = TransactionId { number: id.number + 1, ..id };
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).push(next);
    }
}

impl Database {
    /// Over any engine.
    pub fn new(engine: Arc<dyn Engine>, sources: Sources) -> Self {
        let opened = sources.clock.elapsed();
        let write_budget = Arc::default();
        let (counts, reads) = (Counters::default(), Counters::default());
        let shared = Shared { engine, sources, opened, write_budget, counts, reads, sessions: Mutex::default() };
        Database { shared: Arc::new(shared) }
    }

    /// Over a store that commits batches.
    pub fn local(store: impl AtomicStore, sources: Sources) -> Self {
        Database::new(Arc::new(Local::new(Arc::new(store), sources.clone())), sources)
    }

    /// Over a store that is atomic one document at a time; other processes may use it at the same time, in the same way.
    /// Called within a runtime, in which what dead processes left behind is looked for now and then.
    ///
    /// # Errors
    /// None yet.
    pub fn percolator(
        store: Arc<dyn DocumentStore>,
        sources: Sources,
        options: PercolatorOptions,
    ) -> StoreResult<Self> {
        let engine = Percolator::new(store, sources.clone(), options)?;
        Ok(Database::new(Arc::new(engine), sources))
    }

    /// Begins a transaction at snapshot isolation.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn begin(&self) -> Result<Transaction> {
        self.begin_with(TransactionOptions::default()).await
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn begin_with(&self, options: TransactionOptions) -> Result<Transaction> {
        Transaction::begin(Arc::clone(&self.shared), options).await
    }

    /// Holds a snapshot for reads outside of transactions: it takes no writes, is not counted as a transaction, and gets
    /// `SnapshotTooOld` (239) once it was held for longer than this. Whoever is done with it drops or aborts it.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn begin_reads(&self, lifetime: Duration) -> Result<Transaction> {
        Transaction::begin_reads(Arc::clone(&self.shared), lifetime).await
    }

    /// Runs a closure in a transaction and commits it; after a conflict, runs the closure again on a new snapshot. So it does
    /// where the network kept a transaction from being begun.
    ///
    /// What the closure does outside of the transaction, it may do several times.
    ///
    /// # Errors
    /// Those of the closure, and of the commit: [`Error::Conflict`] if others were first for longer than
    /// [`TransactionOptions::retry_time`], [`Error::CommitUnknown`] if the answer to the commit got lost.
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

    /// As [`Database::transaction`], with options.
    ///
    /// # Errors
    /// As [`Database::transaction`].
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

    /// Begins, the first time or after a conflict: whoever knows what to wait for need not guess how long.
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

    /// The pause before an attempt that comes after so many.
    fn backoff(&self, attempt: u32) -> Duration {
        backoff::pause(attempt, self.shared.sources.random.next_u64())
    }

    /// What became of a transaction that is no longer open, also after a restart. [`Outcome::Forgotten`] if it might have
    /// committed and been forgotten since ([`Database::forget_outcomes`]). A name that the library made tells whether that may be; of
    /// one that the caller made nothing is known but that outcomes were forgotten. (Over a store of single documents such a
    /// transaction counts as rolled back, and is, if it has not ended: ask before its outcome is forgotten.)
    ///
    /// # Errors
    /// Those of the store: then it is still unknown. `TransactionTooOld` (225) if the session has gone on: of a transaction
    /// whose name was not asked for ([`Transaction::id`]) before it ended.
    pub async fn outcome(&self, id: TransactionId) -> StoreResult<Outcome> {
        self.shared.engine.outcome(id).await
    }

    /// Forgets outcomes, of transactions and of requests with tickets, that are older than this; says how many records
    /// that were.
    ///
    /// Only time counts in which the database was open, since it was opened last, and the time of day does not: nothing is
    /// forgotten because somebody set a clock. Processes that share a store count together, over restarts: there each call of this, and
    /// each pass of a cleaner, adds what its process has counted since the one before.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn forget_outcomes(&self, age: Duration) -> StoreResult<u64> {
        if let Some(forgotten) = self.shared.engine.forget_outcomes(age).await? {
            return Ok(forgotten);
        }
        let sources = &self.shared.sources;
        if sources.clock.elapsed().saturating_sub(self.shared.opened) < age {
            // What is older than that is from an earlier run, whose clock nobody knows.
            return Ok(0);
        }
        let age_millis = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
        let now = sources.steady_now().timestamp_millis();
        let before = bson::DateTime::from_millis(now.saturating_sub(age_millis));
        self.shared.engine.forget_outcomes_before(before).await
    }

    /// What became of transactions so far.
    pub fn counts(&self) -> Counts {
        let write_bytes = self.shared.write_budget.bytes() as u64;
        Counts { write_bytes, snapshots: self.shared.reads.read().open(), ..self.shared.counts.read() }
    }

    /// A handle that does not keep the database open: for what runs beside it.
    pub fn downgrade(&self) -> WeakDatabase {
        WeakDatabase { shared: Arc::downgrade(&self.shared) }
    }

    /// Where time, chance and ids come from.
    pub fn sources(&self) -> &Sources {
        &self.shared.sources
    }

    /// What carries requests outside of transactions out: the engine's store, if they go there as they are, or the
    /// database. Who makes many may ask it itself.
    pub fn store(&self) -> &dyn DocumentStore {
        self.plain().unwrap_or(self)
    }

    /// Where collections and indexes are.
    fn catalog(&self) -> &dyn Catalog {
        self.shared.engine.catalog()
    }

    fn plain(&self) -> Option<&dyn DocumentStore> {
        self.shared.engine.plain().map(|store| &**store)
    }

    /// Opens a cursor over documents as they are now, or else over a snapshot of its own; over a newer one if a document has
    /// changed too often since.
    async fn find_outside_transaction(&self, request: Find) -> StoreResult<Box<dyn Cursor>> {
        if let Some(cursor) = self.shared.engine.find_newest(&request).await? {
            return Ok(cursor);
        }
        let clock = &self.shared.sources.clock;
        let give_up = clock.elapsed().saturating_add(RETRY_TIME_MAX);
        let mut attempt = 0;
        loop {
            let deadline = clock.elapsed().saturating_add(LIFETIME_MAX);
            let snapshot = self.shared.engine.begin(deadline).await?.snapshot;
            match snapshot.find(request.clone()).await {
                Err(error) if error.code() == Code::SnapshotTooOld && clock.elapsed() < give_up => {
                    tokio::time::sleep(self.backoff(attempt)).await;
                    attempt += 1;
                }
                result => return result,
            }
        }
    }

    /// Carries out a request as a transaction of its own.
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

/// Runs a closure in a transaction, and commits it. What may be run again comes back as the error that it ended with, and
/// why it was rolled back.
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
