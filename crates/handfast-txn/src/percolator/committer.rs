//! The commit of a transaction.
//!
//! ```text
//! all rows at once    prewrite: lock with the new version        a conflict: take the locks away again, run again
//! oracle              the commit timestamp, after all locks      no lock of ours was missed by a reader above it; not too far
//!                                                                above the start
//!                     with the version of the catalog            indexes and collections are as they were
//! what was read       serializable: unchanged up to then?
//! primary             version in, lock out: the commit point     one atomic operation that requires the lock
//! answer
//! other rows          likewise, after the answer
//! ```
//!
//! Few rows are locked all at once, each by a request of its own. Many go in batches, some at a time, that of the primary first
//! ([`batch`](super::batch)): meanwhile heartbeats over separate connections keep others from taking the transaction for abandoned.
//!
//! If the process dies before the commit point, other processes find its locks. When the locks have expired, they roll the primary
//! back, with a record, and then the other rows. If it dies after the commit point, they roll its rows forward. If the answer to the
//! commit point is lost, the committer reads the primary row. If it cannot read the row, the outcome stays unknown until a caller
//! asks for it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use handfast_mql::Code;
use handfast_store::{
    Applied, BatchWrite, CommitTimestamp, CreateIndexes, DocumentWrite, Error as StoreError, Namespace, Read,
    Result as StoreResult,
};
use tokio::task::JoinSet;

use super::batch::{RowSize, TargetRow, groups, groups_at_once};
use super::core::{Core, KnownOutcome, conflict};
use super::definitions::{Dependencies, LocatedCollections};
use super::oracle::Moment;
use super::records::Record;
use super::resolver::{LockRemoval, Resolved, release};
use super::row::{self, AllNeeded, Body, CommitRefused, Key, Lock, PrewriteRefused, Row, Timestamp, commit, prewrite};
use super::rows::{RefusedStep, RowChange, unchecked};
use super::snapshot::PercolatorSnapshot;
use super::unique;
use crate::{TransactionId, WriteSet};

/// Pauses at a row that another open transaction has locked, in milliseconds. They are short: if the other one commits, this one conflicts.
const PAUSES_MILLIS: [u64; 4] = [1, 2, 4, 8];

/// The most other rows in a primary's lock without an early check of its size.
const NAMED_MAX: usize = 32;

/// A commit under way.
pub(super) struct Committer {
    core: Arc<Core>,
    snapshot: Arc<PercolatorSnapshot>,
    /// The name of the transaction.
    id: Option<TransactionId>,
    /// The locks, the primary's first.
    locks: Vec<RowLock>,
    reads: Vec<Read>,
    /// The part of the catalog that the commit depends on.
    on: Option<Dependencies>,
}

#[derive(Clone)]
struct RowLock {
    /// Its index in the locks of the commit. That of the primary is 0.
    index: usize,
    key: Key,
    lock: Lock,
}

impl RowLock {
    fn is_primary(&self) -> bool {
        self.index == 0
    }
}

/// A row that could not be locked.
struct PrewriteError {
    error: StoreError,
    /// Whether the lock may be there, or still arrive.
    in_doubt: bool,
}

/// The result of the prewrite of a row.
struct Prewritten {
    /// The index of its lock.
    index: usize,
    result: Result<Row, PrewriteError>,
}

/// The state of a row that is prewritten.
#[derive(Clone)]
#[allow(clippy::large_enum_variant, reason = "most rows are locked in the end")]
enum RowState {
    NotLocked,
    /// The row may be locked.
    InDoubt,
    Locked(Row),
}

/// The progress of the prewrite of all rows.
struct PrewriteProgress {
    /// The state of each row, in the order of the locks.
    rows: Vec<RowState>,
    failed: Option<StoreError>,
    in_doubt: bool,
}

/// A prepared write set.
pub(super) enum Prepared {
    /// A commit to carry out.
    Commit(Committer),
    /// The transaction of this name was committed before.
    Committed(Timestamp),
}

/// Carries a commit out in a task, which goes on if the caller's future is dropped.
pub(super) async fn carry_out(committer: Committer) -> StoreResult<CommitTimestamp> {
    let run = tokio::spawn(committer.run());
    run.await.unwrap_or_else(|_| Err(StoreError::command(Code::InternalError, "the commit did not finish").in_doubt()))
}

impl Committer {
    /// Prepares a write set: finds its collections, and adds the rows of unique keys and of its record.
    pub(super) async fn prepare(
        core: Arc<Core>,
        snapshot: Arc<PercolatorSnapshot>,
        writes: WriteSet,
    ) -> StoreResult<Prepared> {
        let id = writes.ticket.map(|ticket| TransactionId { session: ticket.session, number: ticket.number });
        let mut changes = Vec::new();
        if let Some(id) = id.filter(|id| id.is_named()) {
            let record = Record::read(&snapshot, id).await?;
            if let Some(at) = record.committed()? {
                return Ok(Prepared::Committed(at));
            }
            changes.push(record.of_commit(&core)?);
        }
        for creation in writes.creations {
            let indexes = CreateIndexes { namespace: creation.namespace.clone(), indexes: creation.indexes };
            core.create_collection(&creation.namespace).await?;
            if !indexes.indexes.is_empty() {
                core.create_indexes(indexes).await?;
            }
        }
        let written = writes.writes.iter().map(|write| write.namespace.clone()).collect();
        let LocatedCollections { catalog, version, dependencies: on } =
            core.locate(&snapshot, &written, &writes.reads).await?;
        for BatchWrite { namespace: name, id, write, .. } in writes.writes {
            let Some(namespace) = on.collection(&name).cloned() else { return Err(not_located(&name)) };
            let key = Key { namespace, id };
            let body = match write {
                DocumentWrite::Put(document) => Body::Document(document),
                DocumentWrite::Delete => Body::Deleted,
            };
            changes.push(RowChange { key, body });
        }
        let reads = writes.reads.into_iter().filter_map(|read| located(read, &on)).collect();
        let keys = unique::key_row_changes(&snapshot, &catalog, version, &changes).await?;
        changes.extend(keys);
        let committer = Committer::of(core, snapshot, changes).depending_on(on);
        Ok(Prepared::Commit(Committer { id, reads, ..committer }))
    }

    /// Returns the commit on the condition that this part of the catalog is unchanged at its commit timestamp.
    pub(super) fn depending_on(self, on: Dependencies) -> Self {
        Committer { on: Some(on), ..self }
    }

    /// Returns a commit of these changes, the primary first.
    pub(super) fn of(core: Arc<Core>, snapshot: Arc<PercolatorSnapshot>, changes: Vec<RowChange>) -> Self {
        let mut keys: Vec<_> = changes.iter().map(|change| change.key.clone()).collect();
        let primary = keys.first().cloned();
        let ttl = snapshot.lock_ttl();
        let mut locks = Vec::with_capacity(changes.len());
        for (index, RowChange { key, body }) in changes.into_iter().enumerate() {
            let Some(primary) = primary.clone() else { break };
            let keys = if index == 0 { keys.drain(1..).collect() } else { Vec::new() };
            locks.push(RowLock { index, key, lock: Lock { start: snapshot.at, primary, keys, body, ttl } });
        }
        Committer { core, snapshot, id: None, locks, reads: Vec::new(), on: None }
    }

    fn start(&self) -> Timestamp {
        self.snapshot.at
    }

    /// Remembers the outcome. For a named transaction only a commit is remembered: its record has the rest.
    fn note(&self, outcome: KnownOutcome) {
        if let Some(id) = self.id
            && (!id.is_named() || matches!(outcome, KnownOutcome::Committed(_)))
        {
            self.core.remember_outcome(id, outcome);
        }
    }

    async fn run(self) -> StoreResult<CommitTimestamp> {
        if self.locks.is_empty() {
            return Ok(self.start().into());
        }
        check_age(&self.core, self.snapshot.age())?;
        self.check_primary()?;
        let _renewal = self.renew_primary_lock();
        let rows = match self.prewrite_all().await {
            Ok(rows) => rows,
            Err(error) => {
                self.note(KnownOutcome::RolledBack);
                return Err(error);
            }
        };
        let at = match self.commit_timestamp().await {
            Ok(at) => at,
            Err(error) => {
                self.roll_back(false, |_| true).await;
                self.note(KnownOutcome::RolledBack);
                return Err(error);
            }
        };
        self.commit_primary(rows, at).await
    }

    /// Checks that the primary's lock, which names all other rows, fits into its document.
    ///
    /// # Errors
    /// `TransactionTooLarge` (257).
    fn check_primary(&self) -> StoreResult<()> {
        let Some(RowLock { key, lock, .. }) = self.locks.first().filter(|row| row.lock.keys.len() >= NAMED_MAX) else {
            return Ok(());
        };
        let row = self.snapshot.cached_row(key).unwrap_or_else(|| Row::missing(key.id.clone()));
        let Ok(row::Step::Change(locked)) = prewrite(&self.core.rolled_forward(&row), lock) else { return Ok(()) };
        let too_large = |error: StoreError| {
            let text = format!(
                "the transaction writes {} documents, and their _ids do not fit into one document: write less in one",
                self.locks.len()
            );
            StoreError::command(Code::TransactionTooLarge, text).with_source(error)
        };
        let is_size = |error: &StoreError| error.code() == Code::BSONObjectTooLarge;
        locked.check().map_err(|error| if is_size(&error) { too_large(error) } else { error })
    }

    /// Extends the lifetime of the primary's lock periodically until the returned value is dropped.
    fn renew_primary_lock(&self) -> LockRenewal {
        let (core, snapshot) = (Arc::clone(&self.core), Arc::clone(&self.snapshot));
        let primary = self.locks.first().map(|primary| primary.key.clone());
        let every = core.options.lock_ttl / 3;
        LockRenewal(tokio::spawn(async move {
            let Some(primary) = primary else { return };
            loop {
                tokio::time::sleep(every).await;
                let ttl = snapshot.lock_ttl();
                // A lost renewal is no error here, and does not delay the next one.
                let _ = tokio::time::timeout(every, core.rows.renew(&primary, snapshot.at, ttl)).await;
            }
        }))
    }

    /// Locks all rows, or none.
    async fn prewrite_all(&self) -> StoreResult<Vec<Row>> {
        let size = |row: &RowLock| row.lock.body.bytes();
        let groups = groups(self.locks.iter().map(|row| RowSize { namespace: &row.key.namespace, bytes: size(row) }));
        let at_once = groups_at_once(&groups);
        let (mut tasks, mut progress) = (JoinSet::new(), PrewriteProgress::none(self.locks.len()));
        for group in groups {
            if tasks.len() >= at_once
                && let Some(joined) = tasks.join_next().await
            {
                progress.note(joined.ok());
            }
            if progress.failed.is_some() {
                break;
            }
            let (core, snapshot) = (Arc::clone(&self.core), Arc::clone(&self.snapshot));
            let group: Vec<_> = group.into_iter().map(|index| self.locks[index].clone()).collect();
            tasks.spawn(async move { prewrite_group(&core, &snapshot, &group).await });
        }
        while let Some(joined) = tasks.join_next().await {
            progress.note(joined.ok());
        }
        let PrewriteProgress { rows, failed, in_doubt } = progress;
        let Some(error) = failed else { return Ok(rows.into_iter().filter_map(RowState::locked).collect()) };
        self.roll_back(in_doubt, |row| !matches!(rows[row.index], RowState::NotLocked)).await;
        // The locks that are left do not matter: nothing is applied.
        Err(not_applied(error))
    }

    /// Removes the locks that may be there. If it is in doubt whether all requests have arrived, a rollback record keeps the others from
    /// locking the primary.
    async fn roll_back(&self, in_doubt: bool, may_be_locked: impl Fn(&RowLock) -> bool) {
        let leaves_record = |row: &RowLock| in_doubt && row.is_primary();
        let removed = self.locks.iter().filter(|row| may_be_locked(row) || leaves_record(row));
        let removal = |row: &RowLock| LockRemoval { key: row.key.clone(), leaves_record: leaves_record(row) };
        release(&self.core.rows, self.start(), removed.map(removal).collect()).await;
    }

    /// Fetches the commit timestamp, and validates the read set and the catalog at it. A timestamp far above the start is refused, whatever the
    /// clocks of this process say: a collector with a smaller timestamp forgets nothing of the transaction, and one with a larger timestamp
    /// meets its locks first.
    async fn commit_timestamp(&self) -> StoreResult<Timestamp> {
        let Moment { at, catalog } = self.core.oracle.moment().await?;
        check_age(&self.core, at.since(self.start()))?;
        if let Some(on) = &self.on {
            self.core.check_dependencies(on, catalog).await?;
        }
        if !self.reads.is_empty() {
            super::validation::check(&self.core, self.start(), at, &self.reads).await?;
        }
        Ok(at)
    }

    async fn commit_primary(self, rows: Vec<Row>, at: Timestamp) -> StoreResult<CommitTimestamp> {
        let (start, core) = (self.start(), Arc::clone(&self.core));
        let mut rows = rows.into_iter();
        let Some(RowLock { key: primary, .. }) = self.locks.first() else { return Ok(at.into()) };
        let step = |row: &Row| commit(row, start, at, &*core);
        match core.rows.apply(primary, rows.next(), step, unchecked).await {
            Ok(Ok(_)) => {}
            Ok(Err(refused)) if refused.was_in_doubt && refused.why == CommitRefused::NoLock => {
                self.note(KnownOutcome::Unknown { start, primary: primary.clone() });
                let text = format!("{primary}, where the transaction was decided, knows nothing of it any more");
                return Err(StoreError::command(Code::NoSuchTransaction, text).in_doubt());
            }
            Ok(Err(_)) => {
                self.note(KnownOutcome::RolledBack);
                self.roll_back(false, |_| true).await;
                return Err(conflict("others took the transaction for abandoned and rolled it back"));
            }
            Err(error) if error.applied() == Applied::Maybe => {
                self.note(KnownOutcome::Unknown { start, primary: primary.clone() });
                return Err(error);
            }
            Err(error) => {
                self.note(KnownOutcome::RolledBack);
                self.roll_back(true, |_| true).await;
                return Err(error);
            }
        }
        self.note(KnownOutcome::Committed(at));
        let others = self.locks.into_iter().skip(1).zip(rows);
        let others = others.map(|(lock, row)| TargetRow { key: lock.key, known: Some(row) }).collect();
        core.note_committed(start, at);
        let work = roll_forward(Arc::clone(&core), start, at, others);
        core.background.spawn(work);
        Ok(at.into())
    }
}

/// Returns a read with the stored collection of its name; `None` if the name stands for none, and nothing was read.
fn located(read: Read, on: &Dependencies) -> Option<Read> {
    let collection = |name: &Namespace| on.collection(name).cloned();
    Some(match read {
        Read::Document(name, id) => Read::Document(collection(&name)?, id),
        Read::Matching { namespace, filter, variables } => {
            Read::Matching { namespace: collection(&namespace)?, filter, variables }
        }
    })
}

fn not_located(name: &Namespace) -> StoreError {
    StoreError::command(Code::InternalError, format!("the commit has no collection for {name}"))
}

impl RowState {
    fn locked(self) -> Option<Row> {
        match self {
            RowState::Locked(row) => Some(row),
            RowState::NotLocked | RowState::InDoubt => None,
        }
    }
}

impl PrewriteProgress {
    fn none(of: usize) -> Self {
        PrewriteProgress { rows: vec![RowState::NotLocked; of], failed: None, in_doubt: false }
    }

    /// Notes the result of a group; `None` if its task panicked.
    fn note(&mut self, group: Option<Vec<Prewritten>>) {
        let Some(group) = group else {
            self.failed = Some(StoreError::command(Code::InternalError, "a prewrite did not finish"));
            self.in_doubt = true;
            self.rows.fill(RowState::InDoubt);
            return;
        };
        for Prewritten { index, result } in group {
            match result {
                Ok(row) => self.rows[index] = RowState::Locked(row),
                Err(not_locked) => {
                    self.rows[index] = if not_locked.in_doubt { RowState::InDoubt } else { RowState::NotLocked };
                    self.in_doubt |= not_locked.in_doubt;
                    self.failed = Some(not_locked.error);
                }
            }
        }
    }
}

/// A task that renews a lock until this is dropped.
struct LockRenewal(tokio::task::JoinHandle<()>);

impl Drop for LockRenewal {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Returns an error before the commit point as not applied.
pub(super) fn not_applied(error: StoreError) -> StoreError {
    StoreError::new(error.class(), Applied::No, error.code(), error.message().to_owned()).with_source(error)
}

/// Locks rows of one collection together, and then each row that was refused by itself.
async fn prewrite_group(core: &Core, snapshot: &PercolatorSnapshot, group: &[RowLock]) -> Vec<Prewritten> {
    if let [row] = group {
        let result = prewrite_one(core, snapshot, row, snapshot.cached_row(&row.key)).await;
        return vec![Prewritten { index: row.index, result }];
    }
    let step = |index: usize, row: &Row| prewrite(&core.rolled_forward(row), &group[index].lock);
    let check = |row: &Row| {
        check_age(core, snapshot.age())?;
        can_be_committed(row, snapshot.at)
    };
    let target = |row: &RowLock| TargetRow { key: row.key.clone(), known: snapshot.cached_row(&row.key) };
    let stepped = core.rows.apply_all(group.iter().map(target).collect(), step, check).await;
    let mut prewritten = Vec::with_capacity(group.len());
    let mut has_failed = false;
    for (row, stepped) in group.iter().zip(stepped) {
        let result = match stepped {
            Ok(Ok(row)) => Ok(row),
            Err(error) => Err(PrewriteError { in_doubt: error.applied() == Applied::Maybe, error }),
            // The transaction is rolled back already.
            Ok(Err(_)) if has_failed => continue,
            Ok(Err(refused)) => prewrite_one(core, snapshot, row, Some(refused.row)).await,
        };
        has_failed |= result.is_err();
        prewritten.push(Prewritten { index: row.index, result });
    }
    prewritten
}

/// Locks a row. Resolves locks of other transactions, and waits briefly for those that are open.
async fn prewrite_one(
    core: &Core,
    snapshot: &PercolatorSnapshot,
    RowLock { key, lock, .. }: &RowLock,
    mut known: Option<Row>,
) -> Result<Row, PrewriteError> {
    let unsure = |error: StoreError| PrewriteError { in_doubt: error.applied() == Applied::Maybe, error };
    let mut pauses = PAUSES_MILLIS.into_iter();
    loop {
        let step = |row: &Row| prewrite(&core.rolled_forward(row), lock);
        let check = |row: &Row| {
            check_age(core, snapshot.age())?;
            can_be_committed(row, lock.start)
        };
        let RefusedStep { why, row, .. } =
            match core.rows.apply(key, known.take(), step, check).await.map_err(unsure)? {
                Ok(row) => return Ok(row),
                Err(refused) => refused,
            };
        let refuse = |why: String| PrewriteError { error: conflict(why), in_doubt: false };
        match why {
            PrewriteRefused::Locked(_) => match core.resolve(key, row).await {
                Ok(Resolved::Free(row)) => known = Some(row),
                Ok(Resolved::Alive) => match pauses.next() {
                    Some(millis) => tokio::time::sleep(Duration::from_millis(millis)).await,
                    None => return Err(refuse(format!("{key} is locked by another transaction"))),
                },
                Err(error) => return Err(PrewriteError { error, in_doubt: false }),
            },
            PrewriteRefused::Conflict(at) => {
                return Err(refuse(format!("{key} was changed at {at}, after the transaction began")));
            }
            PrewriteRefused::RolledBack => return Err(refuse("others took the transaction for abandoned".to_owned())),
            PrewriteRefused::Full => {
                return Err(refuse(format!("{key} has had too many commits that are not collected yet")));
            }
            // This transaction has not committed yet, so its version cannot be here.
            PrewriteRefused::Committed(at) => {
                let text = format!("{key} has a version of a transaction that has not committed, at {at}");
                return Err(PrewriteError { error: StoreError::command(Code::InternalError, text), in_doubt: false });
            }
        }
    }
}

/// Refuses a commit at an age at which others may have forgotten the transaction. An age by this process's clocks only saves requests; the
/// age from start to commit timestamp decides.
fn check_age(core: &Core, age: Duration) -> StoreResult<()> {
    if age <= core.options.retention / 2 {
        return Ok(());
    }
    let text = format!("the transaction was open for {age:?} and was rolled back");
    Err(StoreError::command(Code::NoSuchTransaction, text))
}

/// Checks that the store accepts the locked row, and the row after the commit.
fn can_be_committed(row: &Row, start: Timestamp) -> StoreResult<()> {
    row.check()?;
    match commit(row, start, Timestamp(i64::MAX as u64), &AllNeeded) {
        Ok(row::Step::Change(committed)) => committed.check(),
        Ok(row::Step::Done) | Err(_) => Ok(()),
    }
}

/// Rolls the other rows forward, all at once or in batches. Rows that fail are rolled forward by others.
fn roll_forward(
    core: Arc<Core>,
    start: Timestamp,
    at: Timestamp,
    others: Vec<TargetRow>,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        let of_step = Arc::clone(&core);
        let step = move |_, row: &Row| commit(row, start, at, &*of_step);
        let is_done = core.rows.apply_everywhere(others, step).await;
        core.note_rolled_forward(start);
        if is_done {
            core.finish(start);
        }
    })
}
