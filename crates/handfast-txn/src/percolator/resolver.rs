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
//! Whether a lock has expired is a matter of the oracle's time alone: the start that the oracle gave, the lifetime in the
//! lock, and a fresh timestamp. No two clients' clocks are compared.

use super::core::Core;
use super::row::{Key, Lock, Row, Status, Step, StillOpen, Timestamp, commit, give_up, rollback, status_of};
use super::rows::{RefusedStep, unchecked};
use handfast_mql::Code;
use handfast_store::{Error as StoreError, Result as StoreResult};

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
    /// Finishes what the transaction of a row's lock left undone here, if it is decided or abandoned.
    pub(super) async fn resolve(&self, key: &Key, row: Row) -> StoreResult<Resolved> {
        let Some(lock) = &row.lock else { return Ok(Resolved::Free(row)) };
        let start = lock.start;
        let decision = match self.decision(key, &row, lock).await? {
            Some(decision) => decision,
            None => return Ok(Resolved::Alive),
        };
        let finished = |start| self.is_finished(start);
        let step = |row: &Row| match decision {
            Decision::Committed(at) => commit(row, start, at, &finished).or(Ok::<_, Never>(Step::Done)),
            // Without a record: the one on the primary is what counts.
            Decision::RolledBack => rollback(row, start, false).or(Ok(Step::Done)),
        };
        match self.rows.apply(key, Some(row), step, unchecked).await? {
            Ok(row) => Ok(Resolved::Free(row)),
            Err(refused) => match refused.why {},
        }
    }

    /// What became of the transaction of this lock; none if that is still open. An abandoned one is rolled back.
    async fn decision(&self, key: &Key, row: &Row, lock: &Lock) -> StoreResult<Option<Decision>> {
        let primary = if lock.primary.is_same(key) { row.clone() } else { self.rows.read(&lock.primary).await? };
        match status_of(&primary, lock.start) {
            Status::Committed(at) => return Ok(Some(Decision::Committed(at))),
            Status::RolledBack => return Ok(Some(Decision::RolledBack)),
            Status::Locked | Status::Unheard => {}
        }
        let now = self.oracle.next().await?;
        let step = |primary: &Row| give_up(primary, lock, now);
        match self.rows.apply(&lock.primary, Some(primary), step, unchecked).await? {
            Ok(_) => Ok(Some(Decision::RolledBack)),
            Err(RefusedStep { why: StillOpen::Committed(at), .. }) => Ok(Some(Decision::Committed(at))),
            Err(RefusedStep { why: StillOpen::Alive, .. }) => Ok(None),
        }
    }

    /// Rolls a transaction back that nobody may commit any more, or learns that it has committed.
    ///
    /// # Errors
    /// Those of the store; `NoSuchTransaction` (251) if the primary may have known once and has forgotten.
    pub(super) async fn settle(&self, primary: &Key, start: Timestamp) -> StoreResult<Option<Timestamp>> {
        let may_be_forgotten = start < self.oracle.next().await?.minus(self.options.retention / 2);
        let step = |row: &Row| {
            if may_be_forgotten && status_of(row, start) == Status::Unheard {
                return Err(None);
            }
            rollback(row, start, true).map_err(Some)
        };
        match self.rows.apply(primary, None, step, unchecked).await? {
            Ok(_) => Ok(None),
            Err(RefusedStep { why: Some(at), .. }) => Ok(Some(at)),
            Err(RefusedStep { why: None, .. }) => {
                let text = format!("the transaction that began at {start} is older than outcomes are kept");
                Err(StoreError::command(Code::NoSuchTransaction, text))
            }
        }
    }
}

/// What cannot happen.
enum Never {}
