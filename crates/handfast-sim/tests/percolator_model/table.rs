//! Numbers all rows of the model, and caches the results of steps on them.
//!
//! So a state has a few bytes, and each step of the protocol runs once for each row. Each row in the table has been written in the
//! store's format and read again.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use bson::{RawBson, RawDocumentBuf, rawdoc};
use handfast_store::Namespace;
use handfast_txn::percolator::row::{
    Body, Collected, CommitRefused, GiveUpRefused, Key, Lock, PrewriteRefused, Revision, Row, Status, Step, Timestamp,
    Version, status_of,
};

use crate::rules::{ObservedVersion, Reading, Rules};
use crate::state::{PROGRAMS, Write};

/// The number of timestamps in a tick: a row may change several times within a tick.
const TIMESTAMPS_PER_TICK: u64 = 16;

/// The number of different rows that a model can have.
const ROWS_MAX: usize = 1 << 18;

/// A stored row; `None` for a missing one.
pub(crate) type Stored = Option<Vec<u8>>;

/// The number of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct RowId(pub(crate) u32);

/// A transaction, which determines the content of its locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Claim {
    /// The number of its client, from 0.
    pub(crate) client: u8,
    /// The tick of its start.
    pub(crate) start: u8,
    /// The index of its program in [`PROGRAMS`].
    pub(crate) program: u8,
}

/// A step on a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Operation {
    Prewrite(Claim),
    /// The commit by the client itself.
    Commit(Claim, u8),
    /// The step of a process that knows the outcome.
    RollForward(Claim, u8),
    RollBack {
        claim: Claim,
        record: bool,
    },
    GiveUp(Claim),
    Collect(u8),
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    /// The row needs no change.
    Done,
    /// The row becomes this one.
    Change(RowId),
    /// The row is removed.
    Remove,
    /// The step is refused because of another transaction's lock.
    Locked,
    /// The step is refused because of a newer version or a missing lock.
    Refused,
    /// The transaction has been rolled back.
    RolledBack,
    /// The transaction has committed at this tick.
    Committed(u8),
}

/// A row with the values that properties compare.
pub(crate) struct Entry {
    pub(crate) row: Row,
    pub(crate) document: u8,
    /// The start of the transaction whose lock is on the row.
    pub(crate) lock: Option<u8>,
    pub(crate) versions: Vec<Fact>,
}

/// A version of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fact {
    pub(crate) start: u8,
    pub(crate) commit: u8,
    pub(crate) saw: ObservedVersion,
}

/// The table of rows and of the results of steps on them.
pub(crate) struct Table {
    rules: Rules,
    /// Whether rows are removed and created again, so that their revisions matter.
    collects: bool,
    entries: Vec<OnceLock<Entry>>,
    numbers: Mutex<HashMap<(u8, Stored), RowId>>,
    outcomes: RwLock<HashMap<(Operation, RowId), Outcome>>,
    readings: RwLock<HashMap<(RowId, u8), Reading>>,
}

impl Table {
    pub(crate) fn new(rules: Rules, collects: bool) -> Self {
        let entries = std::iter::repeat_with(OnceLock::new).take(ROWS_MAX).collect();
        let (numbers, outcomes, readings) = Default::default();
        Table { rules, collects, entries, numbers, outcomes, readings }
    }

    pub(crate) fn entry(&self, id: RowId) -> &Entry {
        self.entries[id.0 as usize].get().unwrap()
    }

    /// Returns the row in its stored form.
    pub(crate) fn stored(&self, id: RowId) -> Stored {
        let row = &self.entry(id).row;
        (row.revision != Revision::Missing).then(|| row.to_document().as_bytes().to_vec())
    }

    /// Returns the missing row of a document.
    pub(crate) fn missing(&self, document: u8) -> RowId {
        self.number(document, &Row::missing(name(document)))
    }

    /// Returns the row of a document that no transaction has written.
    pub(crate) fn plain(&self, document: u8) -> RowId {
        self.number(document, &Row::from_document(&body(document, 0)).unwrap())
    }

    fn number(&self, document: u8, row: &Row) -> RowId {
        let mut row = row.clone();
        if let Revision::At(revision) = &mut row.revision {
            *revision = if self.collects { *revision - *revision % TIMESTAMPS_PER_TICK } else { 1 };
        }
        let stored = (row.revision != Revision::Missing).then(|| row.to_document());
        let key = (document, stored.as_ref().map(|stored| stored.as_bytes().to_vec()));
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = numbers.get(&key) {
            return *number;
        }
        let row = stored.map_or(row, |stored| Row::from_document(&stored).unwrap());
        let number = RowId(u32::try_from(numbers.len()).unwrap());
        let is_new = self.entries[numbers.len()].set(entry(document, row)).is_ok();
        assert!(is_new);
        numbers.insert(key, number);
        number
    }

    /// Returns the result of a step on a row.
    pub(crate) fn step(&self, operation: Operation, id: RowId) -> Outcome {
        if let Some(known) = self.outcomes.read().unwrap_or_else(PoisonError::into_inner).get(&(operation, id)) {
            return *known;
        }
        let outcome = self.computed(operation, id);
        self.outcomes.write().unwrap_or_else(PoisonError::into_inner).insert((operation, id), outcome);
        outcome
    }

    fn computed(&self, operation: Operation, id: RowId) -> Outcome {
        let entry = self.entry(id);
        let (document, row) = (entry.document, &entry.row);
        let lock = |claim| lock(claim, document);
        let step = match operation {
            Operation::Prewrite(claim) => self.rules.prewrite(row, &lock(claim)).map_err(refused),
            Operation::Commit(claim, at) => self.rules.commit(row, &lock(claim), timestamp(at)).map_err(not_committed),
            Operation::RollForward(claim, at) => {
                self.rules.roll_forward(row, timestamp(claim.start), timestamp(at)).map_err(not_committed)
            }
            Operation::RollBack { claim, record } => {
                self.rules.rollback(row, timestamp(claim.start), record).map_err(|at| Outcome::Committed(tick(at)))
            }
            Operation::GiveUp(claim) => {
                let lock = lock(claim);
                let now = Timestamp(lock.start.0 + 1);
                self.rules.give_up(row, &lock, now).map_err(|why| match why {
                    GiveUpRefused::Committed(at) => Outcome::Committed(tick(at)),
                    GiveUpRefused::Alive => Outcome::Locked,
                })
            }
            Operation::Collect(safe) => match self.rules.collect(row, timestamp(safe)) {
                Collected::Same => Ok(Step::Done),
                Collected::Change(left) => Ok(Step::Change(left)),
                Collected::Nothing => Err(Outcome::Remove),
            },
        };
        match step {
            Ok(Step::Done) => Outcome::Done,
            Ok(Step::Change(next)) => {
                assert!(number_of(next.revision) > number_of(row.revision), "{operation:?} on {row:?} gives {next:?}");
                Outcome::Change(self.number(document, &next))
            }
            Err(outcome) => outcome,
        }
    }

    /// Returns the tick of a timestamp.
    pub(crate) fn tick(timestamp: Timestamp) -> u8 {
        tick(timestamp)
    }

    /// Returns the result of a read of a row at a tick.
    pub(crate) fn read(&self, id: RowId, at: u8) -> Reading {
        if let Some(known) = self.readings.read().unwrap_or_else(PoisonError::into_inner).get(&(id, at)) {
            return *known;
        }
        let reading = self.rules.read_at(&self.entry(id).row, timestamp(at));
        self.readings.write().unwrap_or_else(PoisonError::into_inner).insert((id, at), reading);
        reading
    }
}

impl Entry {
    /// Returns the state of the transaction that began at this tick.
    pub(crate) fn status(&self, start: u8) -> Status {
        status_of(&self.row, timestamp(start))
    }

    /// Returns the revision that a change depends on, as a number, which is negative for a missing row.
    pub(crate) fn revision(&self) -> i64 {
        number_of(self.row.revision)
    }
}

fn number_of(revision: Revision) -> i64 {
    match revision {
        Revision::Missing => -1,
        Revision::Plain => 0,
        Revision::At(revision) => i64::try_from(revision).unwrap(),
    }
}

fn entry(document: u8, row: Row) -> Entry {
    let fact = |version: &Version| Fact {
        start: tick(version.start),
        commit: tick(version.commit),
        saw: ObservedVersion::from(version),
    };
    Entry {
        document,
        lock: row.lock.as_ref().map(|lock| tick(lock.start)),
        versions: row.versions().map(fact).collect(),
        row,
    }
}

/// Returns the lock of a transaction on a document. It expires at once, so any process may find it abandoned.
fn lock(claim: Claim, document: u8) -> Lock {
    let writes = PROGRAMS[usize::from(claim.program)].writes;
    let is_primary = writes.first().is_some_and(|first| first.document == document);
    let others = || writes.iter().skip(1).map(|write| key(write.document)).collect();
    let body = match writes.iter().find(|write| write.document == document).map(|write| write.write) {
        Some(Write::Put) => Body::Document(body(document, i32::from(claim.client) + 1)),
        Some(Write::Delete) | None => Body::Deleted,
    };
    Lock {
        start: timestamp(claim.start),
        primary: key(writes.first().map_or(document, |first| first.document)),
        keys: if is_primary { others() } else { Vec::new() },
        body,
        ttl: Duration::ZERO,
    }
}

fn name(document: u8) -> RawBson {
    RawBson::String(char::from(b'A' + document).to_string())
}

fn key(document: u8) -> Key {
    Key { namespace: Namespace::new("model", "rows").unwrap(), id: name(document) }
}

fn body(document: u8, by: i32) -> RawDocumentBuf {
    rawdoc! { "_id": name(document), "by": by }
}

fn refused(why: PrewriteRefused) -> Outcome {
    match why {
        PrewriteRefused::Committed(at) => Outcome::Committed(tick(at)),
        PrewriteRefused::Locked(_) => Outcome::Locked,
        PrewriteRefused::RolledBack => Outcome::RolledBack,
        PrewriteRefused::Conflict(_) | PrewriteRefused::Full => Outcome::Refused,
    }
}

fn not_committed(why: CommitRefused) -> Outcome {
    match why {
        CommitRefused::RolledBack => Outcome::RolledBack,
        CommitRefused::NoLock => Outcome::Refused,
    }
}

fn timestamp(tick: u8) -> Timestamp {
    Timestamp(u64::from(tick) * TIMESTAMPS_PER_TICK)
}

fn tick(timestamp: Timestamp) -> u8 {
    u8::try_from(timestamp.0 / TIMESTAMPS_PER_TICK).unwrap()
}
