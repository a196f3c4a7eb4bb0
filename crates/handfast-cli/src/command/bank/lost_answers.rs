//! Counts lost answers, and the outcomes of the commits that they were about.

use std::ops::AddAssign;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use super::mechanism::Mechanism;

/// Counts of lost answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LostAnswers {
    /// Answers of the store that got lost.
    pub(super) answers_lost: u64,
    /// Commits that the library found to be done, or that were sent again and had been.
    pub(super) settled_by_library: u64,
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
        self.settled_by_library += other.settled_by_library;
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

/// Counts outcomes while the workers run.
pub(super) struct OutcomeCounter {
    mechanism: Mechanism,
    committed: AtomicU64,
    rolled_back: AtomicU64,
    unknown: AtomicU64,
}

impl OutcomeCounter {
    pub(super) fn new(mechanism: Mechanism) -> Self {
        let [committed, rolled_back, unknown] = Default::default();
        OutcomeCounter { mechanism, committed, rolled_back, unknown }
    }

    /// Counts an outcome that a worker has asked for.
    pub(super) fn count(&self, outcome: CommitOutcome) {
        let counter = match outcome {
            CommitOutcome::Committed => &self.committed,
            CommitOutcome::RolledBack => &self.rolled_back,
            CommitOutcome::Unknown => &self.unknown,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the counts so far.
    pub(super) fn lost_answers(&self) -> LostAnswers {
        let tally = self.mechanism.tally();
        LostAnswers {
            answers_lost: tally.answers_lost,
            settled_by_library: tally.found_committed,
            asked_committed: self.committed.load(Ordering::Relaxed),
            asked_rolled_back: self.rolled_back.load(Ordering::Relaxed),
            unknown: self.unknown.load(Ordering::Relaxed),
        }
    }
}
