//! A document as the protocol has it, and the protocol itself as functions from row to row. No I/O, no clock, no chance.
//!
//! Percolator keeps locks, data and commits in three columns of a row. Here they are one hidden field of the document, so
//! that whoever reads the store without Handfast still sees an ordinary document, and always a committed version of it:
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
//! A document without the field is one that nobody has changed in a transaction yet: a version from before all timestamps.
//!
//! ```text
//!  Bob  v c s            after   prewrite(7)                    commit(8)
//!  10   1 5 4            10  2 5 4 lock{s 7, put 3}             3  3 8 7  old[{5 4 10}]
//! ```
//!
//! Each function is given a row as it was read and says what it is to become; the engine puts that in its place on the
//! condition that the revision is still the one that was read, in one atomic operation on one document. What somebody else
//! did in between is met on the next reading. So a request that arrives twice, or late, changes nothing: its revision has
//! gone by.
//!
//! # Rules
//!
//! - *The decision comes before the lock*: every function looks whether the transaction has committed or was rolled back
//!   here before it believes a lock ([`status_of`], [`prewrite`]).
//! - *One decision*: a transaction is committed when its primary row has its version, rolled back when that row has its
//!   record; [`commit`] and [`rollback`] refuse the opposite of what is there.
//! - *A rollback record stays until its transaction cannot commit any more*: until its start timestamp is below the safe
//!   point ([`collect`]). Without it a prewrite that is tried again would lock what others have given up, and commit.
//!   Into a document that is so large that no record fits, no lock does, however small; its document changes by locks alone, so
//!   nothing ever will: there a transaction is given up without a record ([`give_up`]).
//! - *Revisions never repeat*: the first one of a row is the start timestamp of the transaction that made the row, so a
//!   row that was collected and made again goes on above where it ended.
//! - *History is bounded, evidence is not*: a row keeps [`VERSIONS_MAX`] old versions and [`VERSION_BYTES_MAX`] of
//!   documents. Who needs one that is gone gets [`ReadResult::TooOld`], never another version. What a row says about the
//!   transactions that it decided is kept (without their documents) until nobody can ask any more: the caller knows that
//!   their committers have heard and all their other locks are gone, or they are below the safe point.
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

/// Old versions of a document that are kept with it.
pub const VERSIONS_MAX: usize = 16;
/// Bytes of old versions that are kept with a document.
pub const VERSION_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of old versions beyond which those that nobody is known to read are kept only as [`VERSION_SHARE_MAX`] allows: each change
/// of a document writes them all again.
pub const VERSION_BYTES_FREE: usize = 4096;
/// How many times the bytes of the newest version the old ones may have, beyond [`VERSION_BYTES_FREE`].
pub const VERSION_SHARE_MAX: usize = 2;
/// Transactions that a row can have decided, or rolled back, and not forgotten yet. Beyond, it takes no more locks until
/// it is collected. A record takes some 45 bytes.
pub const RECORDS_MAX: usize = 8192;

/// A moment in the order of all transactions of a store: milliseconds since 1970 in the upper 46 bits, a counter below.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Bits of the counter.
    pub const COUNTER_BITS: u32 = 18;

    /// The first one of a millisecond.
    pub fn of_millis(millis: u64) -> Self {
        Timestamp(millis << Timestamp::COUNTER_BITS)
    }

    /// Its millisecond since 1970.
    pub fn millis(self) -> u64 {
        self.0 >> Timestamp::COUNTER_BITS
    }

    /// As BSON has it.
    pub fn stored(self) -> i64 {
        i64::try_from(self.0).unwrap_or(i64::MAX)
    }

    /// So much later; parts of a millisecond are counted as well.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Timestamp(self.0.saturating_add(Timestamp::count(duration)))
    }

    /// So much earlier.
    #[must_use]
    pub fn minus(self, duration: Duration) -> Self {
        Timestamp(self.0.saturating_sub(Timestamp::count(duration)))
    }

    /// How much later this is than an earlier one.
    pub fn since(self, earlier: Timestamp) -> Duration {
        let count = u128::from(self.0.saturating_sub(earlier.0));
        let nanos = (count * NANOS_PER_MILLI) >> Timestamp::COUNTER_BITS;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// How many timestamps there are in so much time.
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

/// Up to where rows may forget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SafePoint {
    /// A transaction that began before this has ended, or ends without a commit.
    pub messages: Timestamp,
    /// Nobody reads before this, which is no later.
    pub readers: Timestamp,
}

impl From<Timestamp> for SafePoint {
    /// The same for both.
    fn from(both: Timestamp) -> Self {
        SafePoint { messages: both, readers: both }
    }
}

/// Where a row is.
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
    /// What a change of it is conditional on.
    pub revision: Revision,
    /// The newest committed version.
    pub visible: Version,
    /// Of a transaction that is about to change it.
    pub lock: Option<Lock>,
    /// The versions before, newest first.
    pub old: Vec<Version>,
    /// The transactions that were rolled back here, by their start.
    pub rolled_back: Vec<Timestamp>,
}

/// How the store has a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revision {
    /// Not at all.
    Missing,
    /// As a document that no transaction has touched.
    Plain,
    /// Changed to this revision.
    At(u64),
}

/// What a transaction made of a document.
#[derive(Clone, Debug, PartialEq)]
pub struct Version {
    /// From when on it is seen.
    pub commit: Timestamp,
    /// The start of its transaction.
    pub start: Timestamp,
    /// Whether this row is where its transaction was decided: other rows may have to ask, or a committer who has not heard.
    pub decides: bool,
    /// The document.
    pub body: Body,
}

/// The document of a version.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// As it is, with its `_id`.
    Document(RawDocumentBuf),
    /// There is none.
    Deleted,
    /// It is not kept any more; that there was one still is.
    Cut,
}

/// A transaction's claim on a row, with what the row is to become.
#[derive(Clone, Debug, PartialEq)]
pub struct Lock {
    /// The start of the transaction.
    pub start: Timestamp,
    /// The row where it is decided.
    pub primary: Key,
    /// In the primary's lock: all other rows of the transaction.
    pub keys: Vec<Key>,
    /// The new version.
    pub body: Body,
    /// How long after the start it is not to be taken for abandoned.
    pub ttl: Duration,
}

impl Lock {
    /// Whether it may be taken for abandoned at this time of the oracle.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        is_over(self.start, self.ttl, now)
    }
}

/// What a lock says of its transaction, without what the row is to become.
#[derive(Clone, Debug, PartialEq)]
pub struct LockHeading {
    /// The start of the transaction.
    pub start: Timestamp,
    /// The row where it is decided.
    pub primary: Key,
    /// Whether the row is to be deleted.
    pub deletes: bool,
    /// How long after the start it is not to be taken for abandoned.
    pub ttl: Duration,
}

impl LockHeading {
    /// Whether it may be taken for abandoned at this time of the oracle.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        is_over(self.start, self.ttl, now)
    }
}

/// What a row says of a transaction, and how long after its start its lock there is not to be taken for abandoned.
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

/// Whether a lock may be taken for abandoned at this time of the oracle.
pub(in crate::percolator) fn is_over(start: Timestamp, ttl: Duration, now: Timestamp) -> bool {
    now > start.plus(ttl)
}

impl Row {
    /// A row that is not there.
    pub fn missing(id: RawBson) -> Self {
        Row::of(id, Revision::Missing, Body::Deleted)
    }

    fn of(id: RawBson, revision: Revision, body: Body) -> Self {
        let before_all = Timestamp::default();
        let visible = Version { commit: before_all, start: before_all, decides: false, body };
        Row { id, revision, visible, lock: None, old: Vec::new(), rolled_back: Vec::new() }
    }

    /// All its versions, newest first.
    pub fn versions(&self) -> impl Iterator<Item = &Version> {
        std::iter::once(&self.visible).chain(&self.old)
    }

    /// The row with its next revision; the first one of a row is its maker's start.
    fn next(mut self, maker: Timestamp) -> Row {
        self.revision = match self.revision {
            Revision::At(revision) => Revision::At(revision.saturating_add(1)),
            Revision::Missing | Revision::Plain => Revision::At(maker.0),
        };
        self
    }
}
