//! The steps of the protocol in the model: the real functions, or one of them with a fault.
//!
//! A mutant changes the arguments or the result of a real function, so there is no second copy of the protocol.

use handfast_txn::percolator::row::{
    self, Body, Collected, CommitRefused, GiveUpRefused, Lock, PrewriteRefused, ReadResult, Row, Step, Timestamp,
    Version,
};

/// A violated rule of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// A prewrite does not check for commits since the start.
    NoWriteCheck,
    /// A prewrite replaces the lock of another transaction.
    LockOverwritten,
    /// A prewrite does not check whether its transaction has been rolled back on this row.
    DecisionNotLookedFor,
    /// A commit without its lock adds its version.
    CommitWithoutLock,
    /// A roll-forward accepts any lock as the transaction's.
    AnyLockCommitted,
    /// A read ignores locks.
    ReadIgnoresLocks,
    /// A rollback leaves no record.
    NoRollbackRecord,
    /// A row keeps only the record of the last rollback.
    CollapsedRollbackRecord,
    /// The collector deletes rollback records of transactions whose requests may still arrive.
    RecordDroppedEarly,
    /// The collector does not wait until the locks from below the safe point are resolved.
    HistoryCutBeforeLocks,
    /// The collector's safe point ignores open transactions.
    SafePointTooNew,
    /// A process removes an expired lock without reading the primary.
    LockTrustedFirst,
    /// A rollback does not wait for the record on the primary.
    RollbackNotDurable,
    /// The client commits secondaries without waiting for the primary.
    SecondaryBeforePrimary,
    /// The client fetches the commit timestamp before it has all locks.
    TimestampBeforeLocks,
    /// The client sends its writes again with new timestamps after a lost answer.
    AppliedAgain,
    /// The oracle repeats a timestamp after a restart.
    OracleRepeats,
    /// The store ignores the revision that a write is conditional on.
    UnconditionalWrites,
}

impl Mutant {
    pub(crate) const ALL: [Mutant; 18] = [
        Mutant::NoWriteCheck,
        Mutant::LockOverwritten,
        Mutant::DecisionNotLookedFor,
        Mutant::CommitWithoutLock,
        Mutant::AnyLockCommitted,
        Mutant::ReadIgnoresLocks,
        Mutant::NoRollbackRecord,
        Mutant::CollapsedRollbackRecord,
        Mutant::RecordDroppedEarly,
        Mutant::HistoryCutBeforeLocks,
        Mutant::SafePointTooNew,
        Mutant::LockTrustedFirst,
        Mutant::RollbackNotDurable,
        Mutant::SecondaryBeforePrimary,
        Mutant::TimestampBeforeLocks,
        Mutant::AppliedAgain,
        Mutant::OracleRepeats,
        Mutant::UnconditionalWrites,
    ];
}

/// The rules of the model, one of which may be violated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules(pub(crate) Option<Mutant>);

impl Rules {
    pub(crate) fn is_broken(self, mutant: Mutant) -> bool {
        self.0 == Some(mutant)
    }

    pub(crate) fn prewrite(self, row: &Row, lock: &Lock) -> Result<Step, PrewriteRefused> {
        let mut shown = row.clone();
        match self.0 {
            Some(Mutant::NoWriteCheck) => shown.visible.commit = Timestamp(0),
            Some(Mutant::LockOverwritten) => shown.lock = None,
            Some(Mutant::DecisionNotLookedFor) => shown.rolled_back.clear(),
            _ => {}
        }
        let step = row::prewrite(&shown, lock)?;
        Ok(changed(step, |next| {
            next.visible = row.visible.clone();
            next.rolled_back = row.rolled_back.clone();
        }))
    }

    /// Commits a row by the client itself, which knows the lock that it wrote.
    pub(crate) fn commit(self, row: &Row, lock: &Lock, at: Timestamp) -> Result<Step, CommitRefused> {
        let step = row::commit(row, lock.start, at, &row::AllNeeded);
        if step.is_ok() || !self.is_broken(Mutant::CommitWithoutLock) {
            return step;
        }
        let mut shown = row.clone();
        shown.rolled_back.clear();
        shown.lock = Some(lock.clone());
        let step = row::commit(&shown, lock.start, at, &row::AllNeeded)?;
        Ok(changed(step, |next| next.rolled_back = row.rolled_back.clone()))
    }

    /// Commits a row by a process that has read the primary.
    pub(crate) fn roll_forward(self, row: &Row, start: Timestamp, at: Timestamp) -> Result<Step, CommitRefused> {
        let mut shown = row.clone();
        if let Some(lock) = shown.lock.as_mut().filter(|_| self.is_broken(Mutant::AnyLockCommitted)) {
            lock.start = start;
        }
        row::commit(&shown, start, at, &row::AllNeeded)
    }

    pub(crate) fn rollback(self, row: &Row, start: Timestamp, record: bool) -> Result<Step, Timestamp> {
        let step = row::rollback(row, start, record && !self.is_broken(Mutant::NoRollbackRecord))?;
        Ok(self.collapsed(step))
    }

    pub(crate) fn give_up(self, primary: &Row, found: &Lock, now: Timestamp) -> Result<Step, GiveUpRefused> {
        match self.0 {
            Some(Mutant::NoRollbackRecord) => {
                row::rollback(primary, found.start, false).map_err(GiveUpRefused::Committed)
            }
            _ => Ok(self.collapsed(row::give_up(primary, found, now)?)),
        }
    }

    fn collapsed(self, step: Step) -> Step {
        let is_collapsed = self.is_broken(Mutant::CollapsedRollbackRecord);
        changed(step, |next| {
            let last = next.rolled_back.len().saturating_sub(1);
            next.rolled_back.drain(..if is_collapsed { last } else { 0 });
        })
    }

    pub(crate) fn read_at(self, row: &Row, at: Timestamp) -> Reading {
        let mut shown = row.clone();
        if self.is_broken(Mutant::ReadIgnoresLocks) {
            shown.lock = None;
        }
        match row::read_at(&shown, at) {
            ReadResult::Document(document) => {
                Reading::ObservedVersion(ObservedVersion::By(document.get_i32("by").unwrap_or(-1)))
            }
            ReadResult::Nothing => Reading::ObservedVersion(ObservedVersion::Nothing),
            ReadResult::Locked(_) => Reading::Locked,
            ReadResult::TooOld => Reading::TooOld,
        }
    }

    pub(crate) fn collect(self, row: &Row, safe: Timestamp) -> Collected {
        match row::collect(row, safe.into()) {
            Collected::Change(mut left) if self.is_broken(Mutant::RecordDroppedEarly) => {
                left.rolled_back.clear();
                Collected::Change(left)
            }
            collected => collected,
        }
    }
}

fn changed(step: Step, change: impl FnOnce(&mut Row)) -> Step {
    match step {
        Step::Change(mut next) => {
            change(&mut next);
            Step::Change(next)
        }
        Step::Done => Step::Done,
    }
}

/// The result of a read of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reading {
    ObservedVersion(ObservedVersion),
    Locked,
    TooOld,
}

/// The version that a read returned, by its writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ObservedVersion {
    /// There is no document.
    Nothing,
    /// The document that this client wrote, counted from 1, or the initial one for 0.
    By(i32),
}

impl From<&Version> for ObservedVersion {
    fn from(version: &Version) -> ObservedVersion {
        match &version.body {
            Body::Document(document) => ObservedVersion::By(document.get_i32("by").unwrap_or(-1)),
            Body::Deleted | Body::Cut => ObservedVersion::Nothing,
        }
    }
}
