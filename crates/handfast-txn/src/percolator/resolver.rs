//! Locks of others: what becomes of them is asked of their primary.
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
//! The primary's lock names all other rows. Whoever rolls a primary back takes the locks from those too, behind its own work:
//! so the first one to meet what a dead process left behind is the last one. (A primary that has committed names them no
//! more. Of its other rows each says by itself what is to be done; the cleaner finds those that nobody meets.)
//!
//! Whether a lock has expired is a matter of the oracle's time alone: the start that the oracle gave, the lifetime in the
//! lock, and a fresh timestamp. No two clients' clocks are compared.

use super::core::Core;
use super::row::{Key, Lock, Row, Status, Step, StillOpen, Timestamp, commit, give_up, rollback, status_of};
use super::rows::{RefusedStep, Rows, unchecked};
use handfast_mql::Code;
use handfast_store::{Error as StoreError, Result as StoreResult};
use tokio::task::JoinSet;

/// Rows of one transaction whose locks are taken away at the same time.
const RELEASED_AT_ONCE: usize = 256;

/// What came of a look at a lock.
#[allow(clippy::large_enum_variant, reason = "matched as soon as it is returned")]
pub(super) enum Resolved {
    /// The row, without that lock.
    Free(Row),
    /// Its transaction may still commit.
    Alive,
}

/// What the primary says.
enum Decision {
    Committed(Timestamp),
    RolledBack,
}

impl Core {
    /// Finishes what the transaction of a row's lock left undone here, if it is decided or abandoned; what it left elsewhere,
    /// behind that.
    pub(super) async fn resolve(&self, key: &Key, row: Row) -> StoreResult<Resolved> {
        let start = row.lock.as_ref().map(|lock| lock.start);
        let (resolved, others) = self.resolve_one(key, row).await?;
        if let (Some(start), false) = (start, others.is_empty()) {
            let (rows, others) = (self.rows.clone(), others.into_iter().map(|key| (key, false)).collect());
            self.background.spawn(async move { release(&rows, start, others).await });
        }
        Ok(resolved)
    }

    /// Finishes what the transaction of a row's lock left undone here; if it was given up for that, returns where else it may
    /// have left something.
    pub(super) async fn resolve_one(&self, key: &Key, row: Row) -> StoreResult<(Resolved, Vec<Key>)> {
        let Some(lock) = &row.lock else { return Ok((Resolved::Free(row), Vec::new())) };
        let start = lock.start;
        let (decision, others) = match self.decision(key, &row, lock).await? {
            Some(decided) => decided,
            None => return Ok((Resolved::Alive, Vec::new())),
        };
        let finished = |start| self.is_finished(start);
        let step = |row: &Row| match decision {
            Decision::Committed(at) => commit(row, start, at, &finished).or(Ok::<_, Never>(Step::Done)),
            // Without a record: the one on the primary is what counts.
            Decision::RolledBack => rollback(row, start, false).or(Ok(Step::Done)),
        };
        match self.rows.apply(key, Some(row), step, unchecked).await? {
            Ok(row) => Ok((Resolved::Free(row), others)),
            Err(refused) => match refused.why {},
        }
    }

    /// What became of the transaction of this lock; none if that is still open. An abandoned one is rolled back: then also
    /// which other rows the primary's lock named.
    async fn decision(&self, key: &Key, row: &Row, lock: &Lock) -> StoreResult<Option<(Decision, Vec<Key>)>> {
        let primary = if lock.primary.is_same(key) { row.clone() } else { self.rows.read(&lock.primary).await? };
        match status_of(&primary, lock.start) {
            Status::Committed(at) => return Ok(Some((Decision::Committed(at), Vec::new()))),
            Status::RolledBack => return Ok(Some((Decision::RolledBack, Vec::new()))),
            Status::Locked | Status::Unheard => {}
        }
        let now = self.oracle.next().await?;
        let named = primary.lock.as_ref().filter(|of| of.start == lock.start).map(|of| of.keys.clone());
        let step = |primary: &Row| give_up(primary, lock, now);
        match self.rows.apply(&lock.primary, Some(primary), step, unchecked).await? {
            Ok(_) => Ok(Some((Decision::RolledBack, named.unwrap_or_default()))),
            Err(RefusedStep { why: StillOpen::Committed(at), .. }) => Ok(Some((Decision::Committed(at), Vec::new()))),
            Err(RefusedStep { why: StillOpen::Alive, .. }) => Ok(None),
        }
    }

    /// Rolls a transaction back that nobody may commit any more, or learns that it has committed. All its rows were locked.
    ///
    /// # Errors
    /// Those of the store; `NoSuchTransaction` (251) if the primary knew once and has forgotten, or is gone with its collection.
    pub(super) async fn settle(&self, primary: &Key, start: Timestamp) -> StoreResult<Option<Timestamp>> {
        let step = |row: &Row| match status_of(row, start) {
            Status::Unheard => Err(None),
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

/// Takes the locks of a transaction that was rolled back from rows, many at a time; leaves a record of it where that is said.
/// What cannot be done is found by others, and done when its time is over.
pub(super) async fn release(rows: &Rows, start: Timestamp, locked: Vec<(Key, bool)>) {
    let mut tasks = JoinSet::new();
    for (key, record) in locked {
        if tasks.len() >= RELEASED_AT_ONCE {
            tasks.join_next().await;
        }
        let rows = rows.clone();
        tasks.spawn(async move {
            let step = |row: &Row| rollback(row, start, record);
            rows.apply(&key, None, step, unchecked).await.is_ok()
        });
    }
    while tasks.join_next().await.is_some() {}
}

/// What cannot happen.
enum Never {}
