//! The ways to be wrong.

/// A way to be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No look at whether somebody has written the same key since the snapshot.
    NoWriteCheck,
    /// Reads see what is newest, not the snapshot.
    ReadsLatest,
    /// Reads see what others have not committed yet.
    ReadsUncommitted,
    /// A snapshot that is older than what has been acknowledged.
    StaleSnapshot,
    /// Some commits apply a part of their writes, and are acknowledged.
    HalfCommit,
    /// A commit is seen write by write.
    TornCommit,
    /// Some commits are acknowledged and forgotten.
    ForgottenCommit,
    /// Some writes are applied twice, as by a retry whose record was lost.
    AppliedTwice,
    /// Some commits that are refused have been applied all the same.
    RefusedAndApplied,
    /// A rollback leaves the writes where they are.
    NoRollback,
    /// Serializable in name: reads are not looked at again.
    NoReadCheck,
    /// Serializable but for ranges: what was not there is not looked for again.
    NoRangeCheck,
    /// Own writes are not seen until they are committed.
    OwnWritesUnseen,
    /// A list grows by a value that nobody appended.
    InventedValue,
}

impl Fault {
    /// All of them.
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
