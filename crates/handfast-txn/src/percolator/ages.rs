//! The minimum ages of some timestamps, measured by monotonic clocks and stored for all collectors.
//!
//! A collector removes history when it is older than the retention. The age of a timestamp cannot be computed from times of day, which
//! may be wrong or be set, and a process's monotonic clock ends with the process. So collectors measure ages with their monotonic
//! clocks, and keep them in one document:
//!
//! ```text
//! handfast.ages   { _id: "ages", v: 12, marks: [ { ts: <a timestamp>, age: <ms> }, .. ascending ] }
//!
//! a collector's pass      now := a fresh timestamp
//!                         read the document; a mark that was read before has the age of that time plus the time that our
//!                         monotonic clock has measured since; the greater age counts
//!                         write the document, with { ts: now, age: 0 }
//! removable history       everything below the newest mark whose age is the retention, or more
//! ```
//!
//! Each process that reads a mark adds the time that its monotonic clock has measured, and the next process continues from there: a process
//! that is restarted every hour also removes history that is a day old, later than a process that runs all the time.
//!
//! # Why no age is too great
//!
//! An age is a lower bound for the time since the timestamp was given out, so it stays valid. A mark begins with 0, after its timestamp was
//! fetched. A process that has read a valid age, and adds at most the time since the answer, computes a valid age again. The greater one
//! of two valid ages is valid; and a timestamp is no younger than a larger one, which was given out later. So the number of the processes,
//! the order of their writes and late writes do not matter: a monotonic clock that stands still, an answer that is
//! lost and a process that dies make ages smaller than they could be, and history is removed later.
//!
//! Marks are thinned out: the gap between two of them is an eighth of their age, or of the retention. So there are few.
//!
//! Source: spec: transactions, "Time"; docs/decisions/0028-clocks.md.

use std::collections::HashMap;
use std::time::Duration;

use bson::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_store::{Error as StoreError, Result as StoreResult};

use super::core::{Core, lock};
use super::row::Timestamp;
use super::versioned_document::{VersionedDocument, number, signed};

#[cfg(test)]
mod tests;

/// The most marks, some 40 bytes each. With the usual retention there are fewer in two years.
const MARKS_MAX: usize = 256;
/// The gap between two marks is at most this fraction of their age, or of the retention if that is more (or the time between two passes).
const MARK_GAP_SHARE: u32 = 8;

/// A timestamp that was given out.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Mark {
    at: Timestamp,
    /// It was given out at least this long ago.
    age: Duration,
}

/// The known ages of timestamps.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Ages {
    version: u64,
    /// The marks, oldest first.
    marks: Vec<Mark>,
}

impl Ages {
    /// Returns the newest timestamp that is known to be at least this old, or zero.
    pub(super) fn older_than(&self, age: Duration) -> Timestamp {
        self.marks.iter().rfind(|mark| mark.age >= age).map_or(Timestamp::default(), |mark| mark.at)
    }

    /// Adds a timestamp that has been given out.
    fn add(&mut self, at: Timestamp) {
        let place = self.marks.partition_point(|mark| mark.at < at);
        if self.marks.get(place).is_none_or(|mark| mark.at != at) {
            self.marks.insert(place, Mark { at, age: Duration::ZERO });
        }
    }

    /// Raises each age to at least that of the later marks.
    fn raise(&mut self) {
        let mut younger = Duration::ZERO;
        for mark in self.marks.iter_mut().rev() {
            mark.age = mark.age.max(younger);
            younger = mark.age;
        }
    }

    /// Removes marks that are closer than the gap.
    fn thin_out(&mut self, retention: Duration) {
        let mut kept: Vec<Mark> = Vec::new();
        for (place, mark) in self.marks.iter().enumerate() {
            let gap = |older: &Mark, younger: &Mark| {
                older.age.saturating_sub(younger.age) <= younger.age.max(retention) / MARK_GAP_SHARE
            };
            let is_needless = kept.last().zip(self.marks.get(place + 1)).is_some_and(|(older, next)| gap(older, next));
            if !is_needless {
                kept.push(*mark);
            }
        }
        let too_many = kept.len().saturating_sub(MARKS_MAX);
        self.marks = kept.split_off(too_many);
    }
}

/// The age of each mark at a moment on this process's monotonic clock, to which the time since is added.
#[derive(Debug, Default)]
pub(super) struct AgeWatch {
    since: HashMap<Timestamp, (Duration, Duration)>,
}

impl AgeWatch {
    /// Updates ages that have just been read, at `elapsed` on the monotonic clock or before, and watches these marks from now on.
    fn update(&mut self, ages: &mut Ages, elapsed: Duration) {
        for mark in &mut ages.marks {
            if let Some((age, then)) = self.since.get(&mark.at) {
                mark.age = mark.age.max(age.saturating_add(elapsed.saturating_sub(*then)));
            }
        }
        ages.raise();
        self.since = ages.marks.iter().map(|mark| (mark.at, (mark.age, elapsed))).collect();
    }
}

impl Core {
    /// Updates and returns the known ages of timestamps, and adds a timestamp that has just been fetched.
    pub(super) async fn ages(&self, now: Timestamp) -> StoreResult<Ages> {
        let pass = |ages: &mut Ages| {
            ages.add(now);
            lock(&self.age_watch).update(ages, self.elapsed());
            ages.thin_out(self.options.retention);
            Ok(())
        };
        self.rows.change_versioned(pass).await.map(|((), ages)| ages)
    }
}

impl VersionedDocument for Ages {
    const NAME: &'static str = "ages";

    fn version(&self) -> u64 {
        self.version
    }

    fn next(&self) -> Self {
        Ages { version: self.version + 1, marks: self.marks.clone() }
    }

    fn is_same(&self, other: &Self) -> bool {
        self.marks == other.marks
    }

    fn from_document(document: &RawDocument) -> StoreResult<Self> {
        let mut marks: Vec<Mark> = Vec::new();
        for entry in document.get_array("marks").map_err(damaged)? {
            let RawBsonRef::Document(entry) = entry.map_err(damaged)? else { return Err(damaged("a mark is none")) };
            let at = Timestamp(number(entry, "ts").map_err(damaged)?);
            if marks.last().is_some_and(|last| last.at >= at) {
                return Err(damaged("marks are not in order"));
            }
            marks.push(Mark { at, age: Duration::from_millis(number(entry, "age").map_err(damaged)?) });
        }
        Ok(Ages { version: number(document, "v").map_err(damaged)?, marks })
    }

    fn to_document(&self) -> RawDocumentBuf {
        let millis = |age: Duration| i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
        let entry = |mark: &Mark| RawBson::Document(rawdoc! { "ts": mark.at.stored(), "age": millis(mark.age) });
        let marks: RawArrayBuf = self.marks.iter().map(entry).collect();
        rawdoc! { "_id": Ages::NAME, "v": signed(self.version), "marks": marks }
    }
}

fn damaged(why: impl std::fmt::Display) -> StoreError {
    StoreError::command(Code::InternalError, format!("the document of ages is not what Handfast writes: {why}"))
}
