//! Resolves locks of other transactions by the status of their primary.
//!
//! A transaction that reads or writes a row may find the lock of another one, whose process may be committing or dead. The row alone
//! does not show whether that transaction has committed, but its primary does. So the resolver reads the primary, and acts by its status:
//!
//! ```text
//! the primary says      then
//! committed at c        this row is rolled forward, with the version in its lock, at c
//! rolled back           this row's lock is taken away
//! locked, alive         wait
//! locked, expired       the primary is rolled back, with a record; when that is durable, this row's lock goes
//! nothing               as long as this row's lock is alive: its primary may be about to be locked, wait;
//!                       then as before: the record keeps the primary from being locked after all
//! ```
//!
//! The primary's lock names all other rows. A process that rolls a primary back also removes their locks, in the background, so that others
//! do not meet them. (A primary that has committed no longer names them. Each of these rows is rolled forward when it is read, or by the
//! cleaner.)
//!
//! An outcome is final, so a process reads it once: it remembers the outcome, and resolves all further rows of that transaction
//! without reading the primary again. A reader that knows that a transaction has committed does not wait for the write of the row:
//! it reads the row as that write will leave it ([`Core::rolled_forward`]), and the row is written in the background, with others. A
//! roll-back is different: only a write on the row's revision shows that the lock was still there after the primary was read (the primary
//! of a transaction that ended long ago has no record of it any more).
//!
//! Whether a lock has expired is a matter of the oracle's time alone: the start that the oracle gave, the lifetime in the
//! lock, and a fresh timestamp. No two clients' clocks are compared.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bson::RawDocumentBuf;
use handfast_mql::Code;
use handfast_store::{Error as StoreError, Namespace, Result as StoreResult};

use super::batch::TargetRow;
use super::core::{Core, lock};
use super::row::{
    AllNeeded, GiveUpRefused, HistoryNeeds, Key, Lock, PrimaryStatus, Row, Status, Step, Timestamp, commit, give_up,
    is_over, rollback, status_of,
};
use super::rows::{RefusedStep, Rows, unchecked};

/// The most locked rows that a query rolls forward before it goes on. More would delay it.
const RESOLVED_FIRST_MAX: usize = 32;
/// The most rows that wait to be rolled forward in the background. Further ones are left to other readers and the cleaner.
const QUEUED_MAX: usize = 10_000;

/// The result of resolving a lock.
#[allow(clippy::large_enum_variant, reason = "matched as soon as it is returned")]
pub(super) enum Resolved {
    /// The row, without that lock.
    Free(Row),
    /// Its transaction may still commit.
    Alive,
}

/// The final decision on a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Committed(Timestamp),
    RolledBack,
}

/// A decision that was read from a transaction's primary, or is known.
struct KnownDecision {
    decision: Decision,
    /// The other rows of a transaction that was rolled back just now because it was abandoned.
    to_release: Vec<Key>,
}

/// A row with the lock of a committed transaction.
struct QueuedRow {
    key: Key,
    start: Timestamp,
    commit: Timestamp,
}

/// A lock of a rolled back transaction to remove.
pub(super) struct LockRemoval {
    pub(super) key: Key,
    /// Whether a rollback record takes its place.
    pub(super) leaves_record: bool,
}

/// A row that was read from its collection.
pub(super) struct FoundRow {
    pub(super) key: Key,
    pub(super) row: Row,
}

/// A locked row of a call.
struct LockedRow {
    /// Its index in the rows of the call.
    index: usize,
    target: TargetRow,
}

/// The rows to roll forward in the background.
#[derive(Default)]
pub(super) struct RollForwardQueue {
    /// Transactions whose committer in this process rolls them forward itself.
    rolling: HashSet<Timestamp>,
    rows: Vec<QueuedRow>,
    /// Whether a task is rolling rows forward.
    is_running: bool,
}

impl Core {
    /// Removes the locks of a rolled back transaction from these rows, in the background.
    fn release_in_background(&self, start: Timestamp, keys: Vec<Key>) {
        if keys.is_empty() {
            return;
        }
        let removals = keys.into_iter().map(|key| LockRemoval { key, leaves_record: false }).collect();
        let rows = self.rows.clone();
        self.background.spawn(async move { release(&rows, start, removals).await });
    }

    /// Resolves a row's lock if its transaction is decided or abandoned. The other rows of an abandoned transaction are resolved in the
    /// background.
    pub(super) async fn resolve(&self, key: &Key, row: Row) -> StoreResult<Resolved> {
        let Some(lock) = &row.lock else { return Ok(Resolved::Free(row)) };
        let start = lock.start;
        let Some(KnownDecision { decision, to_release }) = self.decision(key, &row, lock).await? else {
            return Ok(Resolved::Alive);
        };
        let step = |row: &Row| finish(row, start, decision, self);
        let row = match self.rows.apply(key, Some(row), step, unchecked).await? {
            Ok(row) => row,
            Err(refused) => match refused.why {},
        };
        self.release_in_background(start, to_release);
        Ok(Resolved::Free(row))
    }

    /// Resolves the locks of rows of one collection, and reads the primary of each transaction once. Returns the results in the order of the
    /// rows.
    pub(super) async fn resolve_each(&self, found: Vec<FoundRow>) -> Vec<StoreResult<Resolved>> {
        let mut resolved: Vec<_> = found.iter().map(|_| None).collect();
        let mut of_transaction: BTreeMap<Timestamp, Vec<LockedRow>> = BTreeMap::new();
        for (index, FoundRow { key, row }) in found.into_iter().enumerate() {
            match row.lock.as_ref().map(|lock| lock.start) {
                Some(start) => {
                    let target = TargetRow { key, known: Some(row) };
                    of_transaction.entry(start).or_default().push(LockedRow { index, target });
                }
                None => resolved[index] = Some(Ok(Resolved::Free(row))),
            }
        }
        for (start, locked) in of_transaction {
            let Some(LockedRow { target: TargetRow { key, known: Some(row) }, .. }) = locked.first() else { continue };
            let decision = match &row.lock {
                Some(lock) => self.decision(key, row, lock).await,
                None => continue,
            };
            let decision = match decision {
                Ok(Some(KnownDecision { decision, to_release })) => {
                    self.release_in_background(start, to_release);
                    decision
                }
                Ok(None) => {
                    locked.into_iter().for_each(|row| resolved[row.index] = Some(Ok(Resolved::Alive)));
                    continue;
                }
                Err(error) => {
                    locked.into_iter().for_each(|row| resolved[row.index] = Some(Err(error.clone())));
                    continue;
                }
            };
            let step = |_, row: &Row| finish(row, start, decision, self);
            let (indexes, targets): (Vec<_>, Vec<_>) =
                locked.into_iter().map(|LockedRow { index, target }| (index, target)).unzip();
            for (index, stepped) in indexes.into_iter().zip(self.rows.apply_all(targets, step, unchecked).await) {
                resolved[index] = Some(stepped.map(|stepped| match stepped {
                    Ok(row) => Resolved::Free(row),
                    Err(refused) => match refused.why {},
                }));
            }
        }
        resolved.into_iter().flatten().collect()
    }

    /// Resolves locked rows of a collection, and returns the documents of the others. Locks of rolled back and abandoned transactions are
    /// resolved; those of committed ones only if the page is short or its order matters, so that the store then finds the rows in its own
    /// order. What is left is locked by transactions that may still commit, or are known to have.
    pub(super) async fn resolve_page(
        &self,
        namespace: &Namespace,
        page: VecDeque<RawDocumentBuf>,
        keeps_order: bool,
    ) -> StoreResult<VecDeque<RawDocumentBuf>> {
        let (mut left, mut resolvable) = (VecDeque::new(), Vec::new());
        let is_short = keeps_order || page.len() <= RESOLVED_FIRST_MAX;
        let mut asked: HashMap<Timestamp, Option<Decision>> = HashMap::new();
        for document in page {
            let row = Row::from_document(&document)?;
            let key = Key { namespace: namespace.clone(), id: row.id.clone() };
            let decision = match &row.lock {
                None => None,
                Some(lock) => match asked.get(&lock.start) {
                    Some(decision) => *decision,
                    None => {
                        let decision = self.decision(&key, &row, lock).await?;
                        let decision = decision.map(|KnownDecision { decision, to_release }| {
                            self.release_in_background(lock.start, to_release);
                            decision
                        });
                        *asked.entry(lock.start).or_insert(decision)
                    }
                },
            };
            match decision {
                Some(Decision::Committed(_)) if !is_short => left.push_back(document),
                Some(Decision::RolledBack | Decision::Committed(_)) => resolvable.push(FoundRow { key, row }),
                None => left.push_back(document),
            }
        }
        for resolved in self.resolve_each(resolvable).await {
            resolved?;
        }
        Ok(left)
    }

    /// Returns the row as it will be when its lock is rolled forward, if this process knows that the transaction has committed. Its revision is
    /// not the one in the store.
    pub(super) fn rolled_forward<'r>(&self, row: &'r Row) -> Cow<'r, Row> {
        let Some(start) = row.lock.as_ref().map(|lock| lock.start) else { return Cow::Borrowed(row) };
        let Some(Decision::Committed(at)) = self.known_decision(start) else { return Cow::Borrowed(row) };
        match commit(row, start, at, self) {
            Ok(Step::Change(committed)) => Cow::Owned(committed),
            Ok(Step::Done) | Err(_) => Cow::Borrowed(row),
        }
    }

    /// Learns the decision on a row's lock, and removes the lock of a rolled back or abandoned transaction. The lock of a committed one stays
    /// ([`Core::rolled_forward`]).
    pub(super) async fn learn_decision(&self, key: &Key, row: Row) -> StoreResult<Resolved> {
        let Some(lock) = &row.lock else { return Ok(Resolved::Free(row)) };
        match self.decision(key, &row, lock).await? {
            Some(KnownDecision { decision: Decision::Committed(at), .. }) => {
                self.roll_forward_in_background(key, lock.start, at);
                Ok(Resolved::Free(row))
            }
            Some(KnownDecision { decision: Decision::RolledBack, to_release }) => {
                self.release_in_background(lock.start, to_release);
                self.resolve(key, row).await
            }
            None => Ok(Resolved::Alive),
        }
    }

    /// Queues a row to be rolled forward in the background, unless its committer does that.
    fn roll_forward_in_background(&self, key: &Key, start: Timestamp, commit: Timestamp) {
        let mut queue = lock(&self.roll_forward_queue);
        if queue.rolling.contains(&start) || queue.rows.len() >= QUEUED_MAX {
            return;
        }
        queue.rows.push(QueuedRow { key: key.clone(), start, commit });
        if !std::mem::replace(&mut queue.is_running, true) {
            self.background.spawn(drain_roll_forward_queue(self.rows.clone(), Arc::clone(&self.roll_forward_queue)));
        }
    }

    /// Notes that a transaction of this process has committed, and that its committer rolls its other rows forward.
    pub(super) fn note_committed(&self, start: Timestamp, at: Timestamp) {
        self.remember_decision(start, Decision::Committed(at));
        lock(&self.roll_forward_queue).rolling.insert(start);
    }

    /// Notes that the committer has rolled its rows forward, as far as it could.
    pub(super) fn note_rolled_forward(&self, start: Timestamp) {
        lock(&self.roll_forward_queue).rolling.remove(&start);
    }

    /// Returns the decision on the transaction of a lock, or `None` if it is open. Rolls an abandoned transaction back.
    async fn decision(&self, key: &Key, row: &Row, lock: &Lock) -> StoreResult<Option<KnownDecision>> {
        let (start, is_primary) = (lock.start, lock.primary.is_same(key));
        if let Some(decision) = self.known_decision(start) {
            return Ok(Some(KnownDecision { decision, to_release: Vec::new() }));
        }
        let primary_status = match is_primary {
            true => PrimaryStatus { status: status_of(row, start), ttl: Some(lock.ttl) },
            false => self.rows.primary_status(&lock.primary, start).await?,
        };
        let (decision, to_release) = match primary_status.status {
            Status::Committed(at) => (Decision::Committed(at), Vec::new()),
            Status::RolledBack => (Decision::RolledBack, Vec::new()),
            Status::Locked | Status::Unknown => {
                let now = self.oracle.next().await?;
                if !is_over(start, primary_status.ttl.unwrap_or(lock.ttl), now) {
                    return Ok(None);
                }
                let primary = if is_primary { row.clone() } else { self.rows.read(&lock.primary).await? };
                let named = primary.lock.as_ref().filter(|of| of.start == start).map(|of| of.keys.clone());
                let step = |primary: &Row| give_up(primary, lock, now);
                match self.rows.apply(&lock.primary, Some(primary), step, unchecked).await? {
                    Ok(_) => (Decision::RolledBack, named.unwrap_or_default()),
                    Err(RefusedStep { why: GiveUpRefused::Committed(at), .. }) => (Decision::Committed(at), Vec::new()),
                    Err(RefusedStep { why: GiveUpRefused::Alive, .. }) => return Ok(None),
                }
            }
        };
        self.remember_decision(start, decision);
        Ok(Some(KnownDecision { decision, to_release }))
    }

    /// Rolls back a transaction whose commit had an unknown outcome, or returns its commit timestamp. All its rows were locked.
    ///
    /// # Errors
    /// `NoSuchTransaction` (251) if the primary has forgotten the decision, or is gone with its collection.
    pub(super) async fn abort_unless_committed(
        &self,
        primary: &Key,
        start: Timestamp,
    ) -> StoreResult<Option<Timestamp>> {
        let step = |row: &Row| match status_of(row, start) {
            Status::Unknown => Err(None),
            Status::Committed(_) | Status::RolledBack | Status::Locked => rollback(row, start, true).map_err(Some),
        };
        match self.rows.apply(primary, None, step, unchecked).await? {
            Ok(_) => Ok(None),
            Err(RefusedStep { why: Some(at), .. }) => Ok(Some(at)),
            Err(RefusedStep { why: None, .. }) => {
                let text = format!(
                    "{primary}, where the transaction was decided that began at {start}, knows nothing of it any more: it is older than \
                     outcomes are kept, or the collection was dropped or renamed since"
                );
                Err(StoreError::command(Code::NoSuchTransaction, text))
            }
        }
    }
}

/// Rolls a row forward or back. It leaves no rollback record, since only the primary's counts.
fn finish(row: &Row, start: Timestamp, decision: Decision, needs: &dyn HistoryNeeds) -> Result<Step, Infallible> {
    match decision {
        Decision::Committed(at) => commit(row, start, at, needs).or(Ok(Step::Done)),
        Decision::RolledBack => rollback(row, start, false).or(Ok(Step::Done)),
    }
}

/// Rolls the queued rows forward until there are none left. Rows that fail are found by other readers and the cleaner.
async fn drain_roll_forward_queue(rows: Rows, queue: Arc<Mutex<RollForwardQueue>>) {
    loop {
        let queued = {
            let mut queue = lock(&queue);
            queue.is_running = !queue.rows.is_empty();
            std::mem::take(&mut queue.rows)
        };
        if queued.is_empty() {
            return;
        }
        let targets = queued.iter().map(|row| TargetRow::unread(row.key.clone())).collect();
        let queued: Arc<[QueuedRow]> = queued.into();
        let step = move |index: usize, row: &Row| {
            let QueuedRow { start, commit, .. } = queued[index];
            finish(row, start, Decision::Committed(commit), &AllNeeded)
        };
        rows.apply_everywhere(targets, step).await;
    }
}

/// Removes locks of a rolled back transaction, in batches. Locks that stay are resolved by others when they expire.
pub(super) async fn release(rows: &Rows, start: Timestamp, removals: Vec<LockRemoval>) {
    let targets = removals.iter().map(|removal| TargetRow::unread(removal.key.clone())).collect();
    let removals: Arc<[LockRemoval]> = removals.into();
    let step = move |index: usize, row: &Row| rollback(row, start, removals[index].leaves_record);
    rows.apply_everywhere(targets, step).await;
}
