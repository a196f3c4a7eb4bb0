//! A transaction: a snapshot to read from, and writes that other transactions do not see before the commit.
//!
//! ```text
//!             Bob: 10, Joe: 2                     time ->
//! t1  begin ── read Bob 10 ── write Bob 3 ── read Bob 3 ── write Joe 9 ── commit: both, or none
//! t2                begin ── read Bob 10 ────────────────────────────────────── read Bob 10 (its snapshot)
//! t3                             write Bob ── write conflict at once: t1 has a claim on it
//! ```
//!
//! A transaction is a `DocumentStore`: each request of the contract works in it, on the snapshot with the transaction's own
//! writes laid over it ([`write_buffer`], [`merged`]). Changes to existing collections (indexes on a collection with documents,
//! renames, drops, `$out`, `$merge`) are refused with 263 `OperationNotSupportedInTransaction`, as in MongoDB.
//!
//! A request that meets a conflict ends the transaction. A request that is refused for another reason (a duplicate key, a bad filter)
//! does not: as in a store, its first writes stay, and so do the writes of a request whose future was dropped. The caller can roll
//! back. The durability of a request has no meaning in a transaction: that of the commit counts.
//!
//! The handle can be cloned; all clones are the same transaction. When the last one is dropped while the transaction is
//! open, it is rolled back, and that is reported.
//!
//! Source: Percolator, section 2.2 (snapshot isolation, write conflicts); spec: transactions.

mod catalog;
mod merged;
mod read_set;
mod requests;
mod statements;
mod write;
pub(crate) mod write_budget;
mod write_buffer;

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bson::RawDocument;
use handfast_mql::Code;
use handfast_store::selection::named_id;
use handfast_store::{
    AtomicBatch, CommitTimestamp, Error as StoreError, ErrorClass, Namespace, Read, Result as StoreResult, Snapshot,
};

use self::read_set::ReadSet;
use self::write_budget::Reservation;
use self::write_buffer::WriteBuffer;
use crate::claims::claimed;
use crate::database::{Counters, Shared};
use crate::error::is_transient;
use crate::{Claims, DocumentKey, Error, Isolation, Result, Start, TransactionId, TransactionOptions};

/// The longest time that a transaction waits in the queues of documents. A longer claim is not one of many short ones.
const QUEUE_TIME_MAX: Duration = Duration::from_secs(5);

/// A handle on a transaction.
#[derive(Clone)]
pub struct Transaction {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    id: TransactionId,
    options: TransactionOptions,
    purpose: Purpose,
    /// The name that a caller may ask for the outcome by: no other transaction may replace its record.
    name: OnceLock<TransactionId>,
    /// The end of its lifetime on the clock of the database's sources.
    deadline: Duration,
    /// After a refused claim: the documents to claim before the transaction is run again.
    wanted: Mutex<Vec<DocumentKey>>,
    /// Held by the one request that writes.
    write_turn: tokio::sync::Mutex<()>,
    phase: Mutex<Phase>,
}

/// The use that a transaction was begun for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// A transaction that its caller commits.
    Transaction,
    /// A transaction that is run again after a conflict, and may take a later snapshot than at its beginning.
    Repeatable,
    /// Reads of one snapshot, without writes.
    Reads,
}

enum Phase {
    Open(Box<Open>),
    /// The commit is under way. If the last handle is dropped in this phase, no caller learned the result.
    Committing,
    Ended(Ended),
}

#[derive(Clone)]
enum Ended {
    Committed(CommitTimestamp),
    RolledBack(Option<StoreError>),
    /// Rolled back by an error that would recur.
    Refused(StoreError),
    Unknown(StoreError),
}

/// The state of an open transaction.
struct Open {
    snapshot: Arc<dyn Snapshot>,
    /// Whether nothing was read from the snapshot and nothing is claimed: then a later snapshot can replace it, and the transaction can wait
    /// for a document without holding others.
    is_fresh: bool,
    claims: Arc<dyn Claims>,
    writes: WriteBuffer,
    reads: ReadSet,
}

impl Open {
    /// Returns the snapshot for a read.
    fn snapshot(&mut self) -> Arc<dyn Snapshot> {
        self.is_fresh = false;
        Arc::clone(&self.snapshot)
    }

    /// Returns whether a later snapshot and other claims can replace the present ones.
    fn can_restart(&self) -> bool {
        self.is_fresh && self.writes.is_empty()
    }

    /// Replaces the snapshot and the claims. Returns `false` and does nothing if that is no longer possible.
    fn restart(&mut self, start: Start) -> bool {
        if !self.can_restart() {
            return false;
        }
        (self.snapshot, self.claims, self.is_fresh) = (start.snapshot, Arc::from(start.claims), false);
        true
    }
}

/// The resources that a transaction holds until its commit is answered.
struct CommitGuards {
    /// While a snapshot is held, the store remembers later changes and deletions; without that memory it reports needless conflicts.
    _snapshot: Arc<dyn Snapshot>,
    _claims: Arc<dyn Claims>,
    _reservation: Reservation,
}

impl Transaction {
    pub(crate) async fn begin(shared: Arc<Shared>, options: TransactionOptions) -> Result<Self> {
        Transaction::begin_as(shared, options, Purpose::Transaction).await
    }

    /// Begins a transaction of the closure form, which runs it again after a conflict.
    pub(crate) async fn begin_repeatable(shared: Arc<Shared>, options: TransactionOptions) -> Result<Self> {
        Transaction::begin_as(shared, options, Purpose::Repeatable).await
    }

    /// Begins a transaction that only reads. It is counted separately.
    pub(crate) async fn begin_reads(shared: Arc<Shared>, lifetime: Duration) -> Result<Self> {
        let options = TransactionOptions { lifetime, ..TransactionOptions::default() };
        Transaction::begin_as(shared, options, Purpose::Reads).await
    }

    async fn begin_as(shared: Arc<Shared>, options: TransactionOptions, purpose: Purpose) -> Result<Self> {
        if options.id.is_some_and(|id| !id.is_named()) {
            let text = "the number of a transaction's name is not negative";
            return Err(Error::Store(StoreError::command(Code::BadValue, text)));
        }
        let deadline = shared.sources.clock.elapsed().saturating_add(options.lifetime);
        let start = match purpose {
            Purpose::Transaction | Purpose::Repeatable => shared.engine.begin(deadline).await?,
            Purpose::Reads => shared.engine.begin_reads(deadline).await?,
        };
        Ok(Transaction::open(shared, options, purpose, deadline, start, true))
    }

    /// Begins a transaction with claims on these documents, once no other transaction has them. Returns `None` if that takes longer than
    /// [`QUEUE_TIME_MAX`], or if the engine has no queues.
    pub(crate) async fn begin_with_claims(
        shared: Arc<Shared>,
        options: TransactionOptions,
        wanted: Vec<DocumentKey>,
    ) -> Result<Option<Self>> {
        let deadline = shared.sources.clock.elapsed().saturating_add(options.lifetime);
        let start = shared.engine.begin_with_claims(deadline, wanted);
        let Ok(start) = tokio::time::timeout(queue_timeout(&options), start).await else { return Ok(None) };
        Ok(start?.map(|start| Transaction::open(shared, options, Purpose::Repeatable, deadline, start, false)))
    }

    fn open(
        shared: Arc<Shared>,
        options: TransactionOptions,
        purpose: Purpose,
        deadline: Duration,
        start: Start,
        is_fresh: bool,
    ) -> Self {
        let id = options.id.unwrap_or_else(|| shared.take_id(start.snapshot.timestamp()));
        let open = Open {
            snapshot: start.snapshot,
            is_fresh,
            claims: Arc::from(start.claims),
            writes: WriteBuffer::new(Arc::clone(&shared.write_budget), shared.engine.traits().uses_before),
            reads: ReadSet::default(),
        };
        let phase = Mutex::new(Phase::Open(Box::new(open)));
        let name = options.id.map(OnceLock::from).unwrap_or_default();
        let (wanted, write_turn) = (Mutex::default(), Default::default());
        let inner = Inner { shared, id, options, purpose, name, deadline, wanted, write_turn, phase };
        inner.counts().begun();
        Transaction { inner: Arc::new(inner) }
    }

    /// Returns its name, by which its outcome can be asked for. If called before the commit, the transaction leaves a record that is kept
    /// as long as outcomes are ([`Database::forget_outcomes`](crate::Database::forget_outcomes)). If called later, the name may be known to this
    /// process only ([`TransactionId::unnamed`]).
    pub fn id(&self) -> TransactionId {
        if let Phase::Open(open) = &*self.inner.phase() {
            self.inner.name.get_or_init(|| self.inner.shared.new_id(open.snapshot.timestamp()));
        }
        self.inner.name()
    }

    /// Returns the newest commit in its snapshot, or `None` once the transaction has ended.
    pub fn read_at(&self) -> Option<CommitTimestamp> {
        match &mut *self.inner.phase() {
            Phase::Open(open) => Some(open.snapshot().timestamp()),
            Phase::Committing | Phase::Ended(_) => None,
        }
    }

    /// Returns whether it takes requests.
    pub fn is_open(&self) -> bool {
        matches!(&*self.inner.phase(), Phase::Open(_))
    }

    /// Returns whether its lifetime is over.
    pub fn is_expired(&self) -> bool {
        self.inner.is_expired()
    }

    /// Commits: all writes become visible at once, or none does. A transaction without writes sends no request. A repeated call returns the same
    /// result; if the outcome was unknown, it asks for it again.
    ///
    /// # Errors
    /// [`Error::Conflict`] if another transaction was first, or if the answer got lost and the transaction is rolled back for good;
    /// [`Error::Store`] if a unique index refuses, [`Error::CommitUnknown`] if the answer got lost.
    ///
    /// # Cancellation
    /// A commit whose future is dropped may have happened: ask with [`Database::outcome`](crate::Database::outcome).
    pub async fn commit(self) -> Result<CommitTimestamp> {
        self.committed().await
    }

    /// Rolls the transaction back. Does nothing if it has ended.
    pub fn abort(self) {
        self.inner.end(None);
    }

    /// Returns the conflict that rolled it back, if any: then it may succeed if it is run again.
    pub fn conflict(&self) -> Option<StoreError> {
        match &*self.inner.phase() {
            Phase::Ended(Ended::RolledBack(Some(error))) => Some(error.clone()),
            _ => None,
        }
    }

    /// Takes the document that the transaction was refused and those that it wrote; empty if no claim was refused.
    pub(crate) fn wanted(&self) -> Vec<DocumentKey> {
        std::mem::take(&mut self.inner.wanted.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn committed(&self) -> Result<CommitTimestamp> {
        // A request that is under way comes first.
        let _turn = self.inner.write_turn.lock().await;
        let Some((batch, guards)) = self.inner.take_for_commit()? else {
            self.inner.ask_for_outcome().await;
            return self.inner.commit_result();
        };
        let result = self.inner.shared.engine.commit(batch).await;
        drop(guards);
        let ended = match result {
            Ok(at) => Ended::Committed(at),
            Err(error) if error.applied() == handfast_store::Applied::Maybe => self.inner.learn_outcome(error).await,
            Err(error) if is_transient(&error) => Ended::RolledBack(Some(error)),
            Err(error) => Ended::Refused(error),
        };
        self.inner.finish(ended);
        self.inner.commit_result()
    }
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transaction")
            .field("id", &self.inner.name())
            .field("open", &self.is_open())
            .finish_non_exhaustive()
    }
}

impl Inner {
    fn phase(&self) -> MutexGuard<'_, Phase> {
        // No code that holds the lock can panic half way.
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the counters that it is counted in.
    fn counts(&self) -> &Counters {
        match self.purpose {
            Purpose::Transaction | Purpose::Repeatable => &self.shared.counts,
            Purpose::Reads => &self.shared.reads,
        }
    }

    /// Returns its name, which is final once the commit has begun.
    fn name(&self) -> TransactionId {
        let without = || if self.shared.engine.traits().records_every_commit { self.id } else { self.id.unnamed() };
        self.name.get().copied().unwrap_or_else(without)
    }

    fn is_expired(&self) -> bool {
        self.shared.sources.clock.elapsed() >= self.deadline
    }

    /// Calls a function with the state of an open transaction.
    fn open<T>(&self, with: impl FnOnce(&mut Open) -> StoreResult<T>) -> StoreResult<T> {
        if self.is_expired() {
            self.end(Some(self.expired_error()));
        }
        match &mut *self.phase() {
            Phase::Open(open) => with(open),
            Phase::Committing => Err(self.not_open("it is being committed")),
            Phase::Ended(Ended::Committed(_)) => {
                let text = format!("transaction {} has been committed", self.name());
                Err(StoreError::command(Code::TransactionCommitted, text))
            }
            Phase::Ended(Ended::RolledBack(None)) => Err(self.not_open("it was rolled back")),
            Phase::Ended(Ended::RolledBack(Some(error)) | Ended::Refused(error)) => {
                Err(self.not_open(&format!("it was rolled back: {error}")).with_source(error.clone()))
            }
            Phase::Ended(Ended::Unknown(_)) => Err(self.not_open("its outcome is unknown")),
        }
    }

    fn not_open(&self, why: &str) -> StoreError {
        match self.purpose {
            Purpose::Transaction | Purpose::Repeatable => {
                let text = format!("transaction {} takes no requests: {why}", self.name());
                StoreError::command(Code::NoSuchTransaction, text)
            }
            Purpose::Reads => snapshot_closed("it was closed"),
        }
    }

    fn expired_error(&self) -> StoreError {
        let seconds = self.options.lifetime.as_secs_f64();
        match self.purpose {
            Purpose::Transaction | Purpose::Repeatable => {
                let text =
                    format!("transaction {} was open for longer than {seconds} s and was rolled back", self.name());
                StoreError::command(Code::NoSuchTransaction, text)
            }
            Purpose::Reads => snapshot_closed(&format!("it was held for longer than {seconds} s")),
        }
    }

    /// Rolls an open transaction back.
    fn end(&self, conflict: Option<StoreError>) {
        self.end_as(Ended::RolledBack(conflict));
    }

    /// Rolls an open transaction back after a request that was done in part.
    fn refuse(&self, error: &StoreError) {
        self.end_as(Ended::Refused(error.clone()));
    }

    fn end_as(&self, ended: Ended) {
        let mut phase = self.phase();
        if !matches!(&*phase, Phase::Open(_)) {
            return;
        }
        let by_conflict = matches!(&ended, Ended::RolledBack(Some(_)));
        let before = std::mem::replace(&mut *phase, Phase::Ended(ended));
        drop(phase);
        if let (true, Phase::Open(open)) = (by_conflict, &before) {
            *self.wanted.lock().unwrap_or_else(PoisonError::into_inner) = open.claims.wanted();
        }
        // The claims are released outside of the lock.
        drop(before);
        self.counts().rolled_back(by_conflict);
        self.release_session();
    }

    /// Returns its session to the pool, unless the caller named it. Its outcome must be known.
    fn release_session(&self) {
        if self.options.id.is_none() {
            self.shared.release_session(self.id);
        }
    }

    fn finish(&self, ended: Ended) {
        match &ended {
            Ended::Committed(_) => self.counts().committed(),
            Ended::RolledBack(conflict) => self.counts().rolled_back(conflict.is_some()),
            Ended::Refused(_) => self.counts().rolled_back(false),
            Ended::Unknown(_) => self.counts().unknown(),
        }
        if !matches!(ended, Ended::Unknown(_)) {
            self.release_session();
        }
        *self.phase() = Phase::Ended(ended);
    }

    /// Takes the batch to commit. Returns `None` if the transaction has ended, or wrote nothing and so ends now.
    fn take_for_commit(&self) -> Result<Option<(AtomicBatch, CommitGuards)>> {
        if self.is_expired() {
            self.end(Some(self.expired_error()));
        }
        let mut phase = self.phase();
        match std::mem::replace(&mut *phase, Phase::Committing) {
            Phase::Open(open) => {
                let Open { snapshot, claims, writes, reads, .. } = *open;
                if writes.is_empty() {
                    *phase = Phase::Ended(Ended::Committed(snapshot.timestamp()));
                    drop(phase);
                    self.counts().committed();
                    self.release_session();
                    return Ok(None);
                }
                let mut batch = AtomicBatch::new(snapshot.timestamp());
                let reservation = writes.into_batch(&mut batch);
                batch.reads = reads.into_list();
                batch.ticket = Some(self.name().ticket());
                batch.durability = self.options.durability;
                Ok(Some((batch, CommitGuards { _snapshot: snapshot, _claims: claims, _reservation: reservation })))
            }
            Phase::Committing => Err(Error::Store(self.not_open("it is being committed"))),
            Phase::Ended(ended) => {
                *phase = Phase::Ended(ended);
                Ok(None)
            }
        }
    }

    /// Returns the result of the commit, for the first call and each further one.
    fn commit_result(&self) -> Result<CommitTimestamp> {
        match &*self.phase() {
            Phase::Ended(Ended::Committed(at)) => Ok(*at),
            Phase::Ended(Ended::RolledBack(Some(error))) => Err(Error::Conflict(error.clone())),
            Phase::Ended(Ended::Refused(error)) => Err(Error::Store(error.clone())),
            Phase::Ended(Ended::Unknown(error)) => Err(Error::CommitUnknown { id: self.name(), source: error.clone() }),
            _ => Err(Error::Store(self.not_open("it was rolled back"))),
        }
    }

    /// Asks the engine for the outcome of a commit whose answer got lost.
    async fn learn_outcome(&self, error: StoreError) -> Ended {
        match self.shared.engine.outcome(self.name()).await {
            Ok(crate::Outcome::Committed(at)) => {
                self.counts().confirmed();
                Ended::Committed(at)
            }
            Ok(crate::Outcome::RolledBack) if self.shared.engine.traits().rolls_back_for_good => {
                let text = "the answer to the commit got lost, and the commit had not happened: it was rolled back";
                Ended::RolledBack(Some(StoreError::command(Code::NoSuchTransaction, text).with_source(error)))
            }
            // That there is no record now does not mean that there will be none after a restart.
            Ok(crate::Outcome::RolledBack | crate::Outcome::Forgotten) | Err(_) => Ended::Unknown(error),
        }
    }

    /// Asks again for the outcome of a commit that was unknown. It stays counted as unknown.
    async fn ask_for_outcome(&self) {
        let error = match &*self.phase() {
            Phase::Ended(Ended::Unknown(error)) => error.clone(),
            _ => return,
        };
        let ended = self.learn_outcome(error).await;
        if !matches!(ended, Ended::Unknown(_)) {
            self.release_session();
        }
        *self.phase() = Phase::Ended(ended);
    }

    /// Rolls the transaction back if the error is transient.
    fn end_on_conflict<T>(&self, result: StoreResult<T>) -> StoreResult<T> {
        if let Err(error) = &result
            && is_transient(error)
        {
            self.end(Some(error.clone()));
        }
        result
    }

    /// Adds a read to the read set of a serializable transaction.
    fn note_read(&self, open: &mut Open, read: impl FnOnce() -> Read) {
        if self.options.isolation == Isolation::Serializable {
            open.reads.note(read());
        }
    }

    /// Claims the document that a statement names, before it is read. If another transaction has a claim on it, a repeatable transaction that
    /// has read and claimed nothing waits for it and restarts; any other one conflicts at once.
    async fn claim_named(
        &self,
        namespace: &Namespace,
        filter: &RawDocument,
        variables: &RawDocument,
    ) -> StoreResult<()> {
        let (Purpose::Repeatable, Some(id)) = (self.purpose, named_id(filter, variables)) else { return Ok(()) };
        let (claims, can_wait) = self.open(|open| Ok((Arc::clone(&open.claims), open.can_restart())))?;
        if claims.try_claim(namespace, id) {
            return self.open(|open| {
                open.is_fresh = false;
                Ok(())
            });
        }
        if can_wait {
            let start = self.shared.engine.begin_with_claims(self.deadline, vec![DocumentKey::new(namespace, id)]);
            let start = tokio::time::timeout(queue_timeout(&self.options), start).await.unwrap_or(Ok(None))?;
            if let Some(start) = start
                && self.open(|open| Ok(open.restart(start)))?
            {
                return Ok(());
            }
        }
        Err(claimed(namespace, id))
    }

    /// Runs a request that writes, after any other one has ended.
    async fn run_write<T>(&self, request: impl Future<Output = StoreResult<T>>) -> StoreResult<T> {
        if self.purpose == Purpose::Reads {
            return Err(StoreError::command(
                Code::IllegalOperation,
                "a snapshot is there to be read, not to be written to",
            ));
        }
        let _turn = self.write_turn.lock().await;
        let result = self.end_on_conflict(request.await);
        if let Err(error) = &result
            && error.class() == ErrorClass::Outage
        {
            // It is unknown how far the request came, and its first statements are among the transaction's writes.
            self.refuse(error);
        }
        result
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let phase = self.phase.get_mut().unwrap_or_else(PoisonError::into_inner);
        match phase {
            Phase::Open(open) => {
                if !open.writes.is_empty() {
                    tracing::debug!(transaction = %self.name(), "a transaction was dropped while it was open: rolled back");
                }
                self.counts().rolled_back(false);
                self.counts().dropped();
                self.release_session();
            }
            Phase::Committing => {
                tracing::warn!(transaction = %self.name(), "a transaction was dropped during its commit: its outcome is unknown");
                self.counts().unknown();
            }
            Phase::Ended(_) => {}
        }
    }
}

/// Returns how long a transaction waits in the queues of documents.
fn queue_timeout(options: &TransactionOptions) -> Duration {
    QUEUE_TIME_MAX.min(options.lifetime / 2)
}

/// Returns the error for a closed snapshot that is read outside of a transaction.
fn snapshot_closed(why: &str) -> StoreError {
    StoreError::command(Code::SnapshotTooOld, format!("the snapshot is gone: {why}; read again from a new one"))
}

/// Returns the error for an operation that is not possible in a transaction.
fn unsupported(what: &str) -> StoreError {
    let text = format!("{what} is not possible inside of a transaction");
    StoreError::command(Code::OperationNotSupportedInTransaction, text)
}

fn unsupported_in(what: &str, namespace: &Namespace) -> StoreError {
    unsupported(&format!("{what} on {namespace}"))
}
