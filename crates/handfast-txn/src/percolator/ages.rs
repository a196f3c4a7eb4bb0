//! The least ages of some timestamps, measured by monotonic clocks and stored for all collectors.
//!
//! ```text
//! handfast.ages   { _id: "ages", v: 12, marks: [ { ts: <a timestamp>, age: <ms> }, .. ascending ] }
//!
//! a collector's pass      now := a fresh timestamp
//!                         read the document; each mark that was read before is as old as it was then, and what our monotonic clock has
//!                         counted since; the greater age counts
//!                         write the document, with { ts: now, age: 0 }
//! what may be forgotten   what is below the newest mark whose age is the retention, or more
//! ```
//!
//! A time of day cannot say how long ago something was: it is wrong, or set, or follows the time of day of another process by way of
//! the oracle. A monotonic clock can, and ends with its process. So each process that watches a mark writes down what its monotonic clock has
//! counted, and the next one counts on from there: a process that is restarted every hour forgets what is a day old, later than one
//! that runs all the time.
//!
//! # Why no age is too great
//!
//! "It is at least so long since this timestamp was given out" stays true once it is. A mark begins with 0, after its timestamp was
//! fetched. A process that has read a true age, and counts no more than what has gone by since the answer, comes to a true age again.
//! Of two true ages the greater one is true; and a timestamp is no younger than a larger one, which was given out later. So it does not
//! matter how many processes write, in which order, or whether a write comes late: a monotonic clock that stands still, an answer that is
//! lost and a process that dies make ages smaller than they could be, and what is forgotten is forgotten later.
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
