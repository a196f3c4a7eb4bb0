//! Counts what a run has done: a run without deletions shows nothing about deletions.

/// The numbers of operations in committed transactions and in the background.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Deleted documents.
    pub deletions: u64,
    /// Documents inserted again after a deletion.
    pub reinsertions: u64,
    /// Pairs of documents whose contents, and so the queried fields, were exchanged.
    pub exchanges: u64,
    /// Queries by other fields than `_id`.
    pub predicate_reads: u64,
    /// Updates by other fields than `_id`.
    pub predicate_writes: u64,
    /// Queries that failed for the incomplete document in the snapshot.
    pub failed_reads: u64,
    /// Created, dropped and renamed collections.
    pub collections_changed: u64,
    /// Created and dropped indexes.
    pub indexes_changed: u64,
}

impl Tally {
    /// Returns the sums of both tallies.
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

    /// Describes each count that is below its minimum, in a line each.
    pub fn shortfalls(self, minimum: Tally) -> Vec<String> {
        let pairs = [
            ("deletions", self.deletions, minimum.deletions),
            ("reinsertions", self.reinsertions, minimum.reinsertions),
            ("exchanges", self.exchanges, minimum.exchanges),
            ("queries by predicates", self.predicate_reads, minimum.predicate_reads),
            ("changes by predicates", self.predicate_writes, minimum.predicate_writes),
            ("queries that fail", self.failed_reads, minimum.failed_reads),
            ("changes of collections", self.collections_changed, minimum.collections_changed),
            ("changes of indexes", self.indexes_changed, minimum.indexes_changed),
        ];
        let short = pairs.iter().filter(|(_, count, minimum)| count < minimum);
        short.map(|(what, count, minimum)| format!("{count} {what}, where at least {minimum} were due")).collect()
    }
}
