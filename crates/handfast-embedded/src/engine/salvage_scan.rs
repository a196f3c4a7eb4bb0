//! Reads as much of a range as can be read.
//!
//! The engine's iterator ends at the first damaged block and does not return the rows after it; as it reads ahead, it does not
//! return the row before the block either. So at the first error the scan asks the data files for the damaged ranges
//! ([`View::damaged_ranges`]), and reads what lies around them:
//!
//! ```text
//! keys            1 2 3 4 | 5 6 7 8 | 9 10 11 12        the block of 5 to 8 is damaged
//! iterator        1 2 3 error
//! salvage scan    1 2 3 4, unreadable between 4 and 9, 9 10 11 12
//! ```
//!
//! Rows of a damaged range that a newer file, a write buffer or the journal has are returned too, before the unreadable keys.

use std::collections::VecDeque;
use std::ops::Bound;

use super::damaged_ranges::last_before;
use super::{Bytes, DamagedRange, Direction, Keyspace, Range, Rows, View};
use crate::error::Error;

#[cfg(test)]
mod tests;

/// An item of a salvage scan.
pub(crate) enum SalvageItem {
    Row(Bytes, Bytes),
    Unreadable(UnreadableKeys),
}

/// Keys between two rows that cannot be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnreadableKeys {
    /// The last row that was read before them.
    pub(crate) after: Option<Vec<u8>>,
    /// The first row that was read after them.
    pub(crate) before: Option<Vec<u8>>,
    /// The number of rows between them that other places had, and that the scan returned.
    pub(crate) recovered: u64,
    /// The reasons, with their files where known.
    pub(crate) causes: Vec<String>,
}

/// The segment of a range that a salvage scan has not read yet.
#[derive(Clone, Debug)]
pub(crate) struct Remaining {
    keyspace: Keyspace,
    segments: VecDeque<Segment>,
    /// The data files were asked for their damaged ranges.
    is_searched: bool,
    last: Option<Vec<u8>>,
    unreadable: Option<UnreadableKeys>,
}

#[derive(Clone, Debug)]
enum Segment {
    Range(Range, Attempt),
    /// The last row of a block before a damaged one: a range that ends with it would reach into the damaged one.
    Row(Vec<u8>),
    /// A damaged range, with the reason.
    Damaged(String),
    /// Rows of a damaged range that other places have.
    Recovered(VecDeque<(Bytes, Bytes)>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    First,
    /// The attempt leaves out the row at which the first one began.
    Second,
}

impl Remaining {
    /// Returns all of a range.
    pub(crate) fn new(keyspace: Keyspace, range: Range) -> Self {
        let segments = [Segment::Range(range, Attempt::First)].into();
        Remaining { keyspace, segments, is_searched: false, last: None, unreadable: None }
    }
}

/// An iterator over all rows of a range that can be read, in ascending order.
pub(crate) struct SalvageScan<'v> {
    view: &'v dyn View,
    remaining: Remaining,
    open: Option<OpenRange>,
    /// A row that was read and not returned yet: the one after unreadable keys.
    row: Option<(Bytes, Bytes)>,
}

/// A range that is being read.
struct OpenRange {
    rows: Rows,
    /// The segment that was not read yet.
    range: Range,
    attempt: Attempt,
    has_begun: bool,
}

impl<'v> SalvageScan<'v> {
    pub(crate) fn new(view: &'v dyn View, remaining: Remaining) -> Self {
        SalvageScan { view, remaining, open: None, row: None }
    }

    /// Returns what was not read yet, to continue later.
    pub(crate) fn into_remaining(mut self) -> Remaining {
        // A row that was not returned is read again.
        let pending = self.row.take().map(|(key, _)| key.to_vec());
        match (self.open.take(), pending) {
            (Some(OpenRange { range, attempt, .. }), None) => self.prepend(vec![Segment::Range(range, attempt)]),
            (Some(OpenRange { range: (_, end), attempt, .. }), Some(key)) => {
                self.prepend(vec![Segment::Range((Bound::Included(key), end), attempt)]);
            }
            (None, Some(key)) => self.prepend(vec![Segment::Row(key)]),
            (None, None) => {}
        }
        self.remaining
    }

    fn prepend(&mut self, segments: Vec<Segment>) {
        for segment in segments.into_iter().rev() {
            self.remaining.segments.push_front(segment);
        }
    }

    /// Begins a segment. Returns a recovered row at once.
    fn begin(&mut self, segment: Segment) -> Option<SalvageItem> {
        match segment {
            Segment::Range(range, attempt) => {
                let rows = self.view.range(self.remaining.keyspace, range.clone(), Direction::Forward);
                self.open = Some(OpenRange { rows, range, attempt, has_begun: false });
            }
            Segment::Row(key) if self.remaining.last.as_ref().is_some_and(|last| *last >= key) => {}
            Segment::Row(key) => match self.view.get(self.remaining.keyspace, &key) {
                Ok(value) => self.row = value.map(|value| (key.into(), value)),
                Err(error) => self.note_unreadable(error.description()),
            },
            Segment::Damaged(cause) => self.note_unreadable(cause),
            Segment::Recovered(mut rows) => {
                let (key, value) = rows.pop_front()?;
                self.remaining.segments.push_front(Segment::Recovered(rows));
                self.remaining.last = Some(key.to_vec());
                if let Some(unreadable) = &mut self.remaining.unreadable {
                    unreadable.recovered += 1;
                }
                return Some(SalvageItem::Row(key, value));
            }
        }
        None
    }

    fn note_unreadable(&mut self, cause: String) {
        let after = self.remaining.last.clone();
        let unreadable =
            self.remaining.unreadable.get_or_insert_with(|| UnreadableKeys { after, ..UnreadableKeys::default() });
        if !unreadable.causes.contains(&cause) {
            unreadable.causes.push(cause);
        }
    }

    /// Splits the rest of a range that failed into what can be read and what cannot.
    fn break_off(&mut self, OpenRange { range: (start, end), attempt, has_begun, .. }: OpenRange, error: &Error) {
        if !self.remaining.is_searched {
            self.remaining.is_searched = true;
            let segments = self.segments_around_damage(start, end);
            return self.prepend(segments);
        }
        let mut segments = vec![Segment::Damaged(error.description())];
        // Newer states of the first row may be in a damaged block before it.
        if let (Bound::Included(mut key), false, Attempt::First) = (start, has_begun, attempt) {
            key.push(0);
            segments.push(Segment::Range((Bound::Included(key), end), Attempt::Second));
        }
        self.prepend(segments);
    }

    fn segments_around_damage(&self, start: Bound<Vec<u8>>, end: Bound<Vec<u8>>) -> Vec<Segment> {
        let damaged = self.view.damaged_ranges(self.remaining.keyspace, (start.clone(), end.clone()));
        let mut segments = Vec::new();
        let mut from = start;
        for DamagedRange { range, cause, rows } in damaged {
            if let Bound::Included(key) | Bound::Excluded(key) = &range.0 {
                segments.push(Segment::Range((from, Bound::Included(last_before(key))), Attempt::First));
            }
            if let Bound::Excluded(key) = range.0 {
                segments.push(Segment::Row(key));
            }
            segments.push(Segment::Damaged(cause));
            segments.push(Segment::Recovered(rows.into()));
            from = start_after(range.1);
        }
        segments.push(Segment::Range((from, end), Attempt::First));
        segments
    }
}

/// Returns the start of the range that follows a range with this end.
fn start_after(end: Bound<Vec<u8>>) -> Bound<Vec<u8>> {
    match end {
        Bound::Included(key) => Bound::Excluded(key),
        Bound::Excluded(key) => Bound::Included(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}

impl Iterator for SalvageScan<'_> {
    type Item = SalvageItem;

    fn next(&mut self) -> Option<SalvageItem> {
        loop {
            let row = match (self.row.take(), &mut self.open) {
                (Some(row), _) => Some(Ok(row)),
                (None, Some(open)) => open.rows.next(),
                (None, None) => match self.remaining.segments.pop_front() {
                    Some(segment) => match self.begin(segment) {
                        Some(row) => return Some(row),
                        None => continue,
                    },
                    None => return self.remaining.unreadable.take().map(SalvageItem::Unreadable),
                },
            };
            match row {
                Some(Ok((key, value))) => {
                    if let Some(unreadable) = self.remaining.unreadable.take() {
                        let before = Some(key.to_vec());
                        self.row = Some((key, value));
                        return Some(SalvageItem::Unreadable(UnreadableKeys { before, ..unreadable }));
                    }
                    let last = key.to_vec();
                    if let Some(open) = &mut self.open {
                        open.range.0 = Bound::Excluded(last.clone());
                        open.has_begun = true;
                    }
                    self.remaining.last = Some(last);
                    return Some(SalvageItem::Row(key, value));
                }
                Some(Err(error)) => {
                    if let Some(open) = self.open.take() {
                        self.break_off(open, &error);
                    }
                }
                None => self.open = None,
            }
        }
    }
}
