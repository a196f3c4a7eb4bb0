//! Counts of lost answers, and of the outcomes of the commits that they were about.

use std::ops::AddAssign;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Counts of lost answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LostAnswers {
    /// Answers of the store that got lost.
    pub(super) answers_lost: u64,
    /// Commits that the library found to be done, or that were sent again and had been.
    pub(super) found_committed: u64,
    /// Transactions that a worker asked for by id, and that had committed.
    pub(super) asked_committed: u64,
    /// Transactions that a worker asked for by id, and that had been rolled back.
    pub(super) asked_rolled_back: u64,
    /// Transactions that a worker asked for by id, and whose outcome stays unknown.
    pub(super) unknown: u64,
}

impl AddAssign for LostAnswers {
    fn add_assign(&mut self, other: Self) {
        self.answers_lost += other.answers_lost;
        self.found_committed += other.found_committed;
        self.asked_committed += other.asked_committed;
        self.asked_rolled_back += other.asked_rolled_back;
        self.unknown += other.unknown;
    }
}

/// The outcome that a worker has asked for.
#[derive(Clone, Copy)]
pub(super) enum CommitOutcome {
    Committed,
    RolledBack,
    Unknown,
}

/// Returns how many answers a store has lost so far.
pub(super) type LossCounter = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Counts of transactions in this process so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    /// Transactions that are neither committed nor rolled back.
    pub(super) open: u64,
    /// Transactions that were rolled back because of another one.
    pub(super) conflicts: u64,
    pub(super) answers_lost: u64,
    /// Commits whose answer was lost, and that were found to be done.
    pub(super) found_committed: u64,
}
