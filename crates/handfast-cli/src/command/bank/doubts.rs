//! Answers that got lost, and who found out what had become of the commits that they were about.

use std::ops::AddAssign;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use super::mechanism::Mechanism;

/// How many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Doubts {
    /// Answers of the store that got lost.
    pub(super) answers_lost: u64,
    /// Commits that the library found to be done, or that were sent again and had been.
    pub(super) settled_by_library: u64,
    /// Transactions that a worker asked for by id, and that had committed.
    pub(super) asked_committed: u64,
    /// Likewise, and that had not.
    pub(super) asked_rolled_back: u64,
    /// Likewise, and nobody could say.
    pub(super) unknown: u64,
}

impl AddAssign for Doubts {
    fn add_assign(&mut self, other: Self) {
        self.answers_lost += other.answers_lost;
        self.settled_by_library += other.settled_by_library;
        self.asked_committed += other.asked_committed;
        self.asked_rolled_back += other.asked_rolled_back;
        self.unknown += other.unknown;
    }
}

/// What a worker was told who asked.
#[derive(Clone, Copy)]
pub(super) enum Told {
    Committed,
    RolledBack,
    Unknown,
}

/// How many answers a store has lost so far.
pub(super) type LostAnswers = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Counts them while the workers are at it.
pub(super) struct Witness {
    mechanism: Mechanism,
    committed: AtomicU64,
    rolled_back: AtomicU64,
    unknown: AtomicU64,
}

impl Witness {
    pub(super) fn new(mechanism: Mechanism) -> Self {
        let [committed, rolled_back, unknown] = Default::default();
        Witness { mechanism, committed, rolled_back, unknown }
    }

    /// A worker has asked.
    pub(super) fn note(&self, told: Told) {
        let counter = match told {
            Told::Committed => &self.committed,
            Told::RolledBack => &self.rolled_back,
            Told::Unknown => &self.unknown,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// So far.
    pub(super) fn doubts(&self) -> Doubts {
        let tally = self.mechanism.tally();
        Doubts {
            answers_lost: tally.answers_lost,
            settled_by_library: tally.settled,
            asked_committed: self.committed.load(Ordering::Relaxed),
            asked_rolled_back: self.rolled_back.load(Ordering::Relaxed),
            unknown: self.unknown.load(Ordering::Relaxed),
        }
    }
}
