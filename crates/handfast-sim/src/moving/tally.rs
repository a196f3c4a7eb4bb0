//! How much was done: a run in which nothing was deleted shows nothing about deletions.

/// How often what was done by transactions that committed, and beside them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Documents deleted.
    pub deletions: u64,
    /// Documents inserted where one had been.
    pub reinsertions: u64,
    /// Documents whose contents were exchanged, and with it the fields that others ask for.
    pub exchanges: u64,
    /// Queries by something else than `_id`.
    pub predicate_reads: u64,
    /// Changes of what a predicate found.
    pub predicate_writes: u64,
    /// Queries that failed for a document that was in the snapshot.
    pub failed_reads: u64,
    /// Collections created, dropped and renamed.
    pub collections_changed: u64,
    /// Indexes built and dropped.
    pub indexes_changed: u64,
}

impl Tally {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Tally) -> Tally {
        Tally {
            deletions: self.deletions + other.deletions,
            reinsertions: self.reinsertions + other.reinsertions,
            exchanges: self.exchanges + other.exchanges,
            predicate_reads: self.predicate_reads + other.predicate_reads,
            predicate_writes: self.predicate_writes + other.predicate_writes,
            failed_reads: self.failed_reads + other.failed_reads,
            collections_changed: self.collections_changed + other.collections_changed,
            indexes_changed: self.indexes_changed + other.indexes_changed,
        }
    }

    /// What was not done often enough, a line each.
    pub fn below(self, floors: Tally) -> Vec<String> {
        let pairs = [
            ("deletions", self.deletions, floors.deletions),
            ("reinsertions", self.reinsertions, floors.reinsertions),
            ("exchanges", self.exchanges, floors.exchanges),
            ("queries by predicates", self.predicate_reads, floors.predicate_reads),
            ("changes by predicates", self.predicate_writes, floors.predicate_writes),
            ("queries that fail", self.failed_reads, floors.failed_reads),
            ("changes of collections", self.collections_changed, floors.collections_changed),
            ("changes of indexes", self.indexes_changed, floors.indexes_changed),
        ];
        let short = pairs.iter().filter(|(_, count, floor)| count < floor);
        short.map(|(what, count, floor)| format!("{count} {what}, where at least {floor} were due")).collect()
    }
}
