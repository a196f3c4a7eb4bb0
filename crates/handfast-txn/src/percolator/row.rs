//! A row, which is a document with its locks and versions, and the protocol as functions from row to row, without I/O, clock or randomness.
//!
//! Percolator keeps locks, data and commits in three columns of a row. Here they are one hidden field of the document, so that a plain
//! reader of the store sees an ordinary document, and always a committed version of it:
//!
//! ```text
//! { _id, <fields of the newest committed version>,
//!   _hf: { v:    <revision: +1 by every change>,
//!          c, s: <commit and start timestamp of the version that is visible>, p: true if its row decided its transaction,
//!          del:  true if that version is a tombstone,
//!          id:   <that version's _id, if it is spelled otherwise than the document's: 1.0 after 1 was deleted>,
//!          lock: { s, primary: {ns, id}, keys: [{ns, id}, ..], op: put|delete, doc: <new version>, ttl: <ms after s> },
//!          old:  [ {c, s, p, doc|del|cut: true}, .. newest first ],
//!          rb:   [ <start timestamps that were rolled back here> ],
//!          d:    <safe point from which on something of this may be forgotten: for cleaners to find the row by> } }
//! ```
//!
//! A document without the field was never changed in a transaction: it is a version from before all timestamps.
//!
//! ```text
//!  Bob  v c s            after   prewrite(7)                    commit(8)
//!  10   1 5 4            10  2 5 4 lock{s 7, put 3}             3  3 8 7  old[{5 4 10}]
//! ```
//!
//! Each function takes a row as it was read and returns its next state. The engine replaces the row on the condition that the revision is
//! still the one that was read, in one atomic operation on one document; if another client changed it in between, the row is read again. So
//! a request that arrives twice, or late, changes nothing: the row has another revision by then.
//!
//! # Rules
//!
//! - *The decision comes before the lock*: every function checks whether the transaction has committed or was rolled back
//!   here before it looks at a lock ([`status_of`], [`prewrite`]).
//! - *One decision*: a transaction is committed when its primary row has its version, rolled back when that row has its
//!   record; [`commit`] and [`rollback`] refuse the opposite of what is there.
//! - *A rollback record stays until its transaction cannot commit any more*: until its start timestamp is below the safe
//!   point ([`collect`]). Without the record a repeated prewrite could lock the row after others have rolled the transaction back, and
//!   commit. If a document is so large that the record does not fit, no lock fits either. The document changes by locks alone, so no lock
//!   ever will: there the transaction is rolled back without a record ([`give_up`]).
//! - *Revisions never repeat*: the first one of a row is the start timestamp of the transaction that made the row, so a
//!   row that was removed and made again continues with higher revisions.
//! - *History is bounded, evidence is not*: a row keeps [`VERSIONS_MAX`] old versions and [`VERSION_BYTES_MAX`] of
//!   documents. A reader of a removed one gets [`ReadResult::TooOld`], never another version. The records of the
//!   transactions that a row decided are kept (without their documents) while they may be read. The caller knows when they are no longer
//!   needed: when the committers have the result and all other locks are gone, or when the records are below the safe point.
//! - *A prewrite proves its commit*: the row after the commit is checked for size and depth before the lock is written, so
//!   that the store cannot refuse what has been decided ([`Row::check`]).
//!
//! Source: Peng and Dabek, Large-scale Incremental Processing Using Distributed Transactions and Notifications, 2.2; seed
//! 2; spec: transactions.

mod codec;
mod steps;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use bson::{RawBson, RawDocumentBuf};
use handfast_store::{CommitTimestamp, Namespace};

pub use codec::FIELD;
pub(in crate::percolator) use codec::{lock_start, millis_of};
pub use steps::{
    AllNeeded, Collected, CommitRefused, GiveUpRefused, HistoryNeeds, PrewriteRefused, ReadResult, Status, Step,
    collect, commit, due, give_up, prewrite, read_at, renew, rollback, status_of,
};

/// The most old versions that are kept in a row.
pub const VERSIONS_MAX: usize = 16;
/// The most bytes of old versions that are kept in a row.
pub const VERSION_BYTES_MAX: usize = 1024 * 1024;
/// The bytes of old versions beyond which [`VERSION_SHARE_MAX`] bounds those that no known snapshot reads: each change of a document writes
/// them all again.
pub const VERSION_BYTES_FREE: usize = 4096;
/// The most bytes of old versions beyond [`VERSION_BYTES_FREE`], as a multiple of the bytes of the newest version.
pub const VERSION_SHARE_MAX: usize = 2;
/// The most commit records, and the most rollback records, in a row. Beyond, it takes no more locks until it is collected. A record takes
/// some 45 bytes.
pub const RECORDS_MAX: usize = 8192;

/// A moment in the order of all transactions of a store: milliseconds since 1970 in the upper 46 bits, a counter below.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Bits of the counter.
    pub const COUNTER_BITS: u32 = 18;

    /// Returns the first timestamp of a millisecond.
    pub fn of_millis(millis: u64) -> Self {
        Timestamp(millis << Timestamp::COUNTER_BITS)
    }

    /// Returns the milliseconds since 1970.
    pub fn millis(self) -> u64 {
        self.0 >> Timestamp::COUNTER_BITS
    }

    /// Converts the timestamp to BSON's type.
    pub fn stored(self) -> i64 {
        i64::try_from(self.0).unwrap_or(i64::MAX)
    }

    /// Returns the timestamp that is this much later, with a resolution below a millisecond.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Timestamp(self.0.saturating_add(Timestamp::count(duration)))
    }

    /// Returns the timestamp that is this much earlier.
    #[must_use]
    pub fn minus(self, duration: Duration) -> Self {
        Timestamp(self.0.saturating_sub(Timestamp::count(duration)))
    }

    /// Returns the time since an earlier timestamp.
    pub fn since(self, earlier: Timestamp) -> Duration {
        let count = u128::from(self.0.saturating_sub(earlier.0));
        let nanos = (count * NANOS_PER_MILLI) >> Timestamp::COUNTER_BITS;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Returns the number of timestamps in a duration.
    fn count(duration: Duration) -> u64 {
        let nanos = duration.as_nanos();
        u64::try_from((nanos << Timestamp::COUNTER_BITS) / NANOS_PER_MILLI).unwrap_or(u64::MAX)
    }
}

const NANOS_PER_MILLI: u128 = 1_000_000;

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<Timestamp> for CommitTimestamp {
    fn from(timestamp: Timestamp) -> Self {
        CommitTimestamp(timestamp.0)
    }
}

/// The timestamps below which rows may forget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SafePoint {
    /// Each transaction that began before this has ended, or will not commit.
    pub messages: Timestamp,
    /// Snapshots before this are not read any more. It is never later than `messages`.
    pub readers: Timestamp,
}

impl From<Timestamp> for SafePoint {
    /// Returns a safe point with the same timestamp for both.
    fn from(both: Timestamp) -> Self {
        SafePoint { messages: both, readers: both }
    }
}

/// Identifies a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// The collection.
    pub namespace: Namespace,
    /// The `_id`.
    pub id: RawBson,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = handfast_store::notation::value(self.id.as_raw_bson_ref());
        write!(f, "the document with _id {id} in {}", self.namespace)
    }
}

/// A document with all that the protocol keeps in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its `_id`.
    pub id: RawBson,
    /// The revision that a change of the row is conditional on.
    pub revision: Revision,
    /// The newest committed version.
    pub visible: Version,
    /// The lock of a transaction that is about to change the row.
    pub lock: Option<Lock>,
    /// The older versions, newest first.
    pub old: Vec<Version>,
    /// The rollback records: starts of transactions.
    pub rolled_back: Vec<Timestamp>,
}

/// The state of a row in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revision {
    /// The row does not exist.
    Missing,
    /// The row is a document that no transaction has touched.
    Plain,
    /// The row has this revision.
    At(u64),
}

/// A committed version of a document.
#[derive(Clone, Debug, PartialEq)]
pub struct Version {
    /// The commit timestamp.
    pub commit: Timestamp,
    /// The start of its transaction.
    pub start: Timestamp,
    /// Whether this row was the primary of its transaction: others may still read its decision here.
    pub decides: bool,
    /// The document.
    pub body: Body,
}

/// The document of a version.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// The document with its `_id`.
    Document(RawDocumentBuf),
    /// A tombstone.
    Deleted,
    /// A document that was removed from the history.
    Cut,
}

/// A transaction's lock on a row, with the new version.
#[derive(Clone, Debug, PartialEq)]
pub struct Lock {
    /// The start of the transaction.
    pub start: Timestamp,
    /// The primary row.
    pub primary: Key,
    /// The other rows of the transaction. Only the primary's lock names them.
    pub keys: Vec<Key>,
    /// The new version.
    pub body: Body,
    /// The time after the start before which the transaction does not count as abandoned.
    pub ttl: Duration,
}

impl Lock {
    /// Returns whether the transaction counts as abandoned at this time of the oracle.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        is_over(self.start, self.ttl, now)
    }
}

/// A lock without the new version.
#[derive(Clone, Debug, PartialEq)]
pub struct LockHeading {
    /// The start of the transaction.
    pub start: Timestamp,
    /// The primary row.
    pub primary: Key,
    /// Whether the row is to be deleted.
    pub deletes: bool,
    /// The time after the start before which the transaction does not count as abandoned.
    pub ttl: Duration,
}

impl LockHeading {
    /// Returns whether the transaction counts as abandoned at this time of the oracle.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        is_over(self.start, self.ttl, now)
    }
}

/// The status of a transaction in a row, with the lifetime of its lock there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::percolator) struct PrimaryStatus {
    pub(in crate::percolator) status: Status,
    pub(in crate::percolator) ttl: Option<Duration>,
}

impl PrimaryStatus {
    pub(in crate::percolator) const UNKNOWN: PrimaryStatus = PrimaryStatus { status: Status::Unknown, ttl: None };

    pub(in crate::percolator) fn decided(status: Status) -> Self {
        PrimaryStatus { status, ttl: None }
    }
}

/// Returns whether a lock has expired at this time of the oracle.
pub(in crate::percolator) fn is_over(start: Timestamp, ttl: Duration, now: Timestamp) -> bool {
    now > start.plus(ttl)
}

impl Row {
    /// Returns a row that does not exist.
    pub fn missing(id: RawBson) -> Self {
        Row::of(id, Revision::Missing, Body::Deleted)
    }

    fn of(id: RawBson, revision: Revision, body: Body) -> Self {
        let before_all = Timestamp::default();
        let visible = Version { commit: before_all, start: before_all, decides: false, body };
        Row { id, revision, visible, lock: None, old: Vec::new(), rolled_back: Vec::new() }
    }

    /// Returns all versions, newest first.
    pub fn versions(&self) -> impl Iterator<Item = &Version> {
        std::iter::once(&self.visible).chain(&self.old)
    }

    /// Returns the row with its next revision. The first revision of a row is the start of the transaction that makes it.
    fn next(mut self, maker: Timestamp) -> Row {
        self.revision = match self.revision {
            Revision::At(revision) => Revision::At(revision.saturating_add(1)),
            Revision::Missing | Revision::Plain => Revision::At(maker.0),
        };
        self
    }
}
