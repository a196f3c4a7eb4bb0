//! The faults of the reference engine.

/// A fault of the reference engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The commit does not check whether another transaction has written the same key since the snapshot.
    NoWriteCheck,
    /// Reads return the newest versions instead of the snapshot's.
    ReadsLatest,
    /// Reads return uncommitted writes of other transactions.
    ReadsUncommitted,
    /// A snapshot lacks commits that have been acknowledged.
    StaleSnapshot,
    /// Some commits apply a part of their writes and are acknowledged.
    HalfCommit,
    /// The writes of a commit become visible one by one.
    TornCommit,
    /// Some commits are acknowledged and not applied.
    ForgottenCommit,
    /// Some writes are applied twice, as by a retry without a record of the first attempt.
    AppliedTwice,
    /// Some commits are applied and reported as failed.
    RefusedAndApplied,
    /// A rollback applies the writes.
    NoRollback,
    /// A serializable commit does not check its reads.
    NoReadCheck,
    /// A serializable commit does not check its ranges.
    NoRangeCheck,
    /// A transaction does not see its own writes.
    OwnWritesUnseen,
    /// Some commits append a value that no transaction wrote.
    InventedValue,
}

impl Fault {
    /// All faults.
    pub const ALL: [Fault; 14] = [
        Fault::NoWriteCheck,
        Fault::ReadsLatest,
        Fault::ReadsUncommitted,
        Fault::StaleSnapshot,
        Fault::HalfCommit,
        Fault::TornCommit,
        Fault::ForgottenCommit,
        Fault::AppliedTwice,
        Fault::RefusedAndApplied,
        Fault::NoRollback,
        Fault::NoReadCheck,
        Fault::NoRangeCheck,
        Fault::OwnWritesUnseen,
        Fault::InventedValue,
    ];
}
