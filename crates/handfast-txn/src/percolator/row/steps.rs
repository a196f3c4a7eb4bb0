//! The steps of the protocol.

use std::time::Duration;

use bson::{RawBson, RawDocumentBuf};
use handfast_mql::order::compare;
use handfast_store::Namespace;

use super::{
    Body, Key, Lock, RECORDS_MAX, Revision, Row, SafePoint, Timestamp, VERSION_BYTES_FREE, VERSION_BYTES_MAX,
    VERSION_SHARE_MAX, VERSIONS_MAX, Version,
};

/// The result of a step on a row.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
#[allow(clippy::large_enum_variant, reason = "matched as soon as it is returned")]
pub enum Step {
    /// The step was done before.
    Done,
    /// The next state of the row.
    Change(Row),
}

/// The reason why a prewrite is refused.
#[derive(Clone, Debug, PartialEq)]
pub enum PrewriteRefused {
    /// The transaction has committed, at this time.
    Committed(Timestamp),
    /// The transaction was rolled back.
    RolledBack,
    /// Another transaction has committed a version since this one began, at this time.
    Conflict(Timestamp),
    /// Another transaction has a lock.
    Locked(Box<Lock>),
    /// The row holds too many records.
    Full,
}

/// Locks a row for a transaction, with its new version in the lock.
pub fn prewrite(row: &Row, lock: &Lock) -> Result<Step, PrewriteRefused> {
    match status_of(row, lock.start) {
        Status::Committed(at) => return Err(PrewriteRefused::Committed(at)),
        Status::RolledBack => return Err(PrewriteRefused::RolledBack),
        Status::Locked => return Ok(Step::Done),
        Status::Unknown => {}
    }
    if row.visible.commit >= lock.start {
        return Err(PrewriteRefused::Conflict(row.visible.commit));
    }
    if let Some(other) = &row.lock {
        return Err(PrewriteRefused::Locked(Box::new(other.clone())));
    }
    if row.old.len() >= RECORDS_MAX || row.rolled_back.len() >= RECORDS_MAX {
        return Err(PrewriteRefused::Full);
    }
    Ok(Step::Change(Row { lock: Some(lock.clone()), ..row.clone() }.next(lock.start)))
}

/// The reason why a commit is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitRefused {
    /// The transaction was rolled back.
    RolledBack,
    /// The transaction has no lock here, and no decision.
    NoLock,
}

/// Moves the version of a transaction's lock in and removes the lock. On the primary this is the commit point. `needs` tells which history
/// is still needed.
pub fn commit(row: &Row, start: Timestamp, at: Timestamp, needs: &dyn HistoryNeeds) -> Result<Step, CommitRefused> {
    match status_of(row, start) {
        Status::Committed(_) => return Ok(Step::Done),
        Status::RolledBack => return Err(CommitRefused::RolledBack),
        Status::Locked | Status::Unknown => {}
    }
    let mut row = row.clone();
    let Some(lock) = row.lock.take_if(|lock| lock.start == start) else { return Err(CommitRefused::NoLock) };
    // A row of the same `_id` in another collection is taken for the primary too, which costs some bytes.
    let decides = compare(lock.primary.id.as_raw_bson_ref(), row.id.as_raw_bson_ref()).is_eq();
    let visible = Version { commit: at, start, decides, body: lock.body };
    row.old.insert(0, std::mem::replace(&mut row.visible, visible));
    cut(&mut row.old, &row.visible, needs);
    Ok(Step::Change(row.next(start)))
}

/// The history of a row that is still needed, as far as the process knows that changes the row.
pub trait HistoryNeeds {
    /// Returns whether a transaction has no locks left in any row: then its primary may forget the decision.
    fn is_finished(&self, start: Timestamp) -> bool;

    /// Returns the oldest snapshot that this process reads. Others may read older ones.
    fn oldest_reader(&self) -> Timestamp;
}

/// Needs of the whole history.
#[derive(Clone, Copy, Debug)]
pub struct AllNeeded;

impl HistoryNeeds for AllNeeded {
    fn is_finished(&self, _start: Timestamp) -> bool {
        false
    }

    fn oldest_reader(&self) -> Timestamp {
        Timestamp::default()
    }
}

/// Keeps the newest versions and those that a snapshot reads. Of other versions of a primary it keeps the commit record without the
/// document, while it may be needed.
fn cut(old: &mut Vec<Version>, newest: &Version, needs: &dyn HistoryNeeds) {
    let share = newest.body.bytes().saturating_mul(VERSION_SHARE_MAX).max(VERSION_BYTES_FREE);
    let oldest_reader = needs.oldest_reader();
    let (mut place, mut bytes, mut next) = (0, 0_usize, newest.commit);
    old.retain_mut(|version| {
        place += 1;
        bytes = bytes.saturating_add(version.body.bytes());
        let is_read = next > oldest_reader;
        next = version.commit;
        let is_kept = place <= VERSIONS_MAX
            && bytes <= VERSION_BYTES_MAX
            && (place == 1 || is_read || bytes <= share)
            && version.body != Body::Cut;
        if !is_kept {
            // Versions older than a removed one must be removed too: a reader would take them for it.
            (place, bytes, version.body) = (usize::MAX - 1, usize::MAX, Body::Cut);
        }
        is_kept || (version.decides && !needs.is_finished(version.start))
    });
}

impl Body {
    /// Returns the bytes of the document.
    pub(in crate::percolator) fn bytes(&self) -> usize {
        match self {
            Body::Document(document) => document.as_bytes().len(),
            Body::Deleted | Body::Cut => 0,
        }
    }
}

/// Removes a transaction's lock, and with `record` leaves a rollback record.
///
/// # Errors
/// Returns the commit timestamp if the transaction has committed.
pub fn rollback(row: &Row, start: Timestamp, record: bool) -> Result<Step, Timestamp> {
    let is_locked = match status_of(row, start) {
        Status::Committed(at) => return Err(at),
        Status::RolledBack => return Ok(Step::Done),
        Status::Locked => true,
        Status::Unknown => false,
    };
    if !is_locked && !record {
        return Ok(Step::Done);
    }
    let mut row = row.clone();
    if is_locked {
        row.lock = None;
    }
    if record {
        row.rolled_back.push(start);
    }
    Ok(Step::Change(row.next(start)))
}

/// The reason why a transaction is not given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GiveUpRefused {
    /// The transaction has committed, at this time.
    Committed(Timestamp),
    /// It may still commit.
    Alive,
}

/// Rolls the primary back with a record if the transaction of a lock, found there or on another row, is abandoned at this time of the oracle.
/// No record is needed in a row that is too large for any lock.
pub fn give_up(primary: &Row, found: &Lock, now: Timestamp) -> Result<Step, GiveUpRefused> {
    let lock = primary.lock.as_ref().filter(|lock| lock.start == found.start).unwrap_or(found);
    let status = status_of(primary, found.start);
    if matches!(status, Status::Locked | Status::Unknown) && !lock.is_expired(now) {
        return Err(GiveUpRefused::Alive);
    }
    let step = rollback(primary, found.start, true).map_err(GiveUpRefused::Committed)?;
    Ok(match (status, step) {
        // A record is smaller than the lock that it replaces.
        (Status::Unknown, Step::Change(recorded)) => fitted(primary, recorded),
        (_, step) => step,
    })
}

/// Returns the step that adds a rollback record to a row, without the history if the row would be too large. No record is needed if the row
/// is too large for any lock.
fn fitted(row: &Row, recorded: Row) -> Step {
    if recorded.check().is_ok() {
        return Step::Change(recorded);
    }
    let mut without_history = recorded.clone();
    without_history.old.retain_mut(|version| {
        version.body = Body::Cut;
        version.decides
    });
    match without_history.check().is_ok() {
        true => Step::Change(without_history),
        false if can_be_locked(row) => Step::Change(recorded),
        false => Step::Done,
    }
}

/// Returns whether the smallest lock fits into a row without its history. Without a lock the document of the row cannot change.
fn can_be_locked(row: &Row) -> bool {
    let Ok(namespace) = Namespace::new("a", "b") else { return true };
    let (start, primary) = (Timestamp::default(), Key { namespace, id: RawBson::MinKey });
    let smallest = Lock { start, primary, keys: Vec::new(), body: Body::Deleted, ttl: Duration::ZERO };
    let (old, rolled_back) = (Vec::new(), Vec::new());
    Row { lock: Some(smallest), old, rolled_back, ..row.clone() }.next(start).check().is_ok()
}

/// Extends the lifetime of a transaction's lock.
pub fn renew(row: &Row, start: Timestamp, ttl: Duration) -> Result<Step, CommitRefused> {
    match status_of(row, start) {
        Status::Committed(_) => return Ok(Step::Done),
        Status::RolledBack => return Err(CommitRefused::RolledBack),
        Status::Unknown => return Err(CommitRefused::NoLock),
        Status::Locked => {}
    }
    let mut row = row.clone();
    match &mut row.lock {
        Some(lock) if lock.ttl < ttl => lock.ttl = ttl,
        _ => return Ok(Step::Done),
    }
    Ok(Step::Change(row.next(start)))
}

/// The status of a transaction in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It has committed, at this time.
    Committed(Timestamp),
    /// It was rolled back.
    RolledBack,
    /// It has a lock in the row.
    Locked,
    /// The row has no trace of it.
    Unknown,
}

/// Returns the status of a transaction in a row. A decision comes before a lock.
pub fn status_of(row: &Row, start: Timestamp) -> Status {
    if let Some(version) = row.versions().find(|version| version.start == start) {
        return Status::Committed(version.commit);
    }
    if row.rolled_back.contains(&start) {
        return Status::RolledBack;
    }
    match &row.lock {
        Some(lock) if lock.start == start => Status::Locked,
        _ => Status::Unknown,
    }
}

/// The result of reading a row at a timestamp.
#[derive(Clone, Debug, PartialEq)]
pub enum ReadResult<'a> {
    /// The document at that time.
    Document(&'a RawDocumentBuf),
    /// There was no document.
    Nothing,
    /// The result depends on the transaction of this lock.
    Locked(&'a Lock),
    /// The version is no longer kept.
    TooOld,
}

/// Reads a row at a timestamp: the newest version up to it, unless a transaction that began before may still commit before it.
pub fn read_at(row: &Row, at: Timestamp) -> ReadResult<'_> {
    if let Some(lock) = &row.lock
        && lock.start <= at
    {
        return ReadResult::Locked(lock);
    }
    match row.versions().find(|version| version.commit <= at).map(|version| &version.body) {
        Some(Body::Document(document)) => ReadResult::Document(document),
        Some(Body::Deleted) => ReadResult::Nothing,
        Some(Body::Cut) | None => ReadResult::TooOld,
    }
}

/// The result of collecting a row.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
#[allow(clippy::large_enum_variant, reason = "matched as soon as it is returned")]
pub enum Collected {
    /// The row has nothing to forget.
    Same,
    /// The next state of the row.
    Change(Row),
    /// The row is to be removed.
    Nothing,
}

/// Removes history below the safe point. All locks below the safe point have to be resolved before, in all rows: the commit records that are
/// removed here decide them.
pub fn collect(row: &Row, safe: SafePoint) -> Collected {
    if matches!(row.revision, Revision::Missing | Revision::Plain)
        || row.lock.as_ref().is_some_and(|lock| lock.start < safe.messages)
    {
        return Collected::Same;
    }
    let mut left = row.clone();
    let needed = match row.versions().position(|version| version.commit <= safe.readers) {
        Some(newest) => newest,
        None => row.old.len(),
    };
    left.old.truncate(needed);
    // Commit records without documents serve no reader.
    let is_evidence = |version: &Version| version.body == Body::Cut && version.commit <= safe.messages;
    while left.old.pop_if(|version| is_evidence(version)).is_some() {}
    left.rolled_back.retain(|start| *start >= safe.messages);
    let is_gone = left.visible.body == Body::Deleted && left.visible.commit <= safe.readers;
    let is_idle = left.lock.is_none() && left.old.is_empty() && left.rolled_back.is_empty();
    // A copy of the request that made the row may still arrive while its start, the row's first revision, is above.
    let cannot_be_repeated = matches!(left.revision, Revision::At(revision) if revision < safe.messages.0);
    if is_gone && is_idle && cannot_be_repeated {
        return Collected::Nothing;
    }
    if left == *row { Collected::Same } else { Collected::Change(left.next(safe.messages)) }
}

/// Returns the safe point from which on [`collect`] may find something to forget in a row: a cleaner looks rows up by it. It is never too
/// late. After a collection a row is due above that safe point, or not at all.
pub fn due(row: &Row) -> Option<Timestamp> {
    let after = |at: u64| Timestamp(at.saturating_add(1));
    // The oldest version is removed when its successor is old enough; one without a document, when it is so itself.
    let oldest = row.old.last().filter(|oldest| oldest.body == Body::Cut).map(|oldest| oldest.commit);
    let before_it = row.old.len().checked_sub(1).and_then(|place| row.versions().nth(place));
    let history = oldest.or(before_it.map(|version| version.commit));
    let evidence = row.rolled_back.iter().min().map(|start| after(start.0));
    let all = match (&row.visible.body, row.revision) {
        (Body::Deleted, Revision::At(revision)) if row.old.is_empty() && row.rolled_back.is_empty() => {
            Some(row.visible.commit.max(after(revision)))
        }
        _ => None,
    };
    [history, evidence, all].into_iter().flatten().min()
}

impl Key {
    /// Returns whether both identify the same row.
    pub fn is_same(&self, other: &Key) -> bool {
        self.namespace == other.namespace && compare(self.id.as_raw_bson_ref(), other.id.as_raw_bson_ref()).is_eq()
    }
}
