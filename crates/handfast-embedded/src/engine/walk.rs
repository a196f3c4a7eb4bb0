//! Reads as much of a range as can be read.
//!
//! The engine's own iterator ends where a block is damaged, and hides everything behind it; as it reads ahead, it hides the
//! row before the block, too. So at the first error the data files are asked which keys the damaged blocks lie between
//! ([`View::holes`]), and what lies around them is read:
//!
//! ```text
//! keys          1 2 3 4 | 5 6 7 8 | 9 10 11 12        the block of 5 to 8 is damaged
//! iterator      1 2 3 error
//! this walk     1 2 3 4, hole between 4 and 9, 9 10 11 12
//! ```
//!
//! What is known for certain from within a hole, because a newer file, a write buffer or the journal has it, is shown, too,
//! before the hole.

use std::collections::VecDeque;
use std::ops::Bound;

use super::holes::last_before;
use super::{Bytes, Direction, Hole, Keyspace, Range, Rows, View};
use crate::error::Error;

#[cfg(test)]
mod tests;

/// What a walk meets.
pub(crate) enum Met {
    Row(Bytes, Bytes),
    Hole(Unreadable),
}

/// Keys between two rows that cannot be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unreadable {
    /// The last row that was read before them.
    pub(crate) after: Option<Vec<u8>>,
    /// The first row that was read behind them.
    pub(crate) before: Option<Vec<u8>>,
    /// How many rows between them were known from elsewhere, and shown.
    pub(crate) elsewhere: u64,
    /// Why not, and where, as far as is known.
    pub(crate) causes: Vec<String>,
}

/// What is still to be read.
#[derive(Clone, Debug)]
pub(crate) struct Rest {
    keyspace: Keyspace,
    parts: VecDeque<Part>,
    /// The damaged blocks are known.
    is_searched: bool,
    last: Option<Vec<u8>>,
    hole: Option<Unreadable>,
}

#[derive(Clone, Debug)]
enum Part {
    Rows(Range, Attempt),
    /// The last row of a block before a damaged one: a range that ends with it would reach into that.
    Row(Vec<u8>),
    Hole(String),
    /// What is known from within a hole.
    Within(VecDeque<(Bytes, Bytes)>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    First,
    /// Without the row that the first one began with.
    Second,
}

impl Rest {
    /// All of a range.
    pub(crate) fn new(keyspace: Keyspace, range: Range) -> Self {
        let parts = [Part::Rows(range, Attempt::First)].into();
        Rest { keyspace, parts, is_searched: false, last: None, hole: None }
    }
}

/// A walk through a range, from its beginning to its end.
pub(crate) struct Walk<'v> {
    view: &'v dyn View,
    rest: Rest,
    open: Option<Open>,
    /// The row behind a hole.
    row: Option<(Bytes, Bytes)>,
}

/// A part that is being read.
struct Open {
    rows: Rows,
    /// What is left of it.
    range: Range,
    attempt: Attempt,
    has_begun: bool,
}

impl<'v> Walk<'v> {
    pub(crate) fn new(view: &'v dyn View, rest: Rest) -> Self {
        Walk { view, rest, open: None, row: None }
    }

    /// What was not read yet: to go on later.
    pub(crate) fn into_rest(mut self) -> Rest {
        // A row that waits is read again.
        let waits = self.row.take().map(|(key, _)| key.to_vec());
        match (self.open.take(), waits) {
            (Some(Open { range, attempt, .. }), None) => self.put_before(vec![Part::Rows(range, attempt)]),
            (Some(Open { range: (_, end), attempt, .. }), Some(key)) => {
                self.put_before(vec![Part::Rows((Bound::Included(key), end), attempt)]);
            }
            (None, Some(key)) => self.put_before(vec![Part::Row(key)]),
            (None, None) => {}
        }
        self.rest
    }

    fn put_before(&mut self, parts: Vec<Part>) {
        for part in parts.into_iter().rev() {
            self.rest.parts.push_front(part);
        }
    }

    /// Begins a part; a row that is known from within a hole is met at once.
    fn begin(&mut self, part: Part) -> Option<Met> {
        match part {
            Part::Rows(range, attempt) => {
                let rows = self.view.range(self.rest.keyspace, range.clone(), Direction::Forward);
                self.open = Some(Open { rows, range, attempt, has_begun: false });
            }
            Part::Row(key) if self.rest.last.as_ref().is_some_and(|last| *last >= key) => {}
            Part::Row(key) => match self.view.get(self.rest.keyspace, &key) {
                Ok(value) => self.row = value.map(|value| (key.into(), value)),
                Err(error) => self.fall_into(error.words()),
            },
            Part::Hole(cause) => self.fall_into(cause),
            Part::Within(mut rows) => {
                let (key, value) = rows.pop_front()?;
                self.rest.parts.push_front(Part::Within(rows));
                self.rest.last = Some(key.to_vec());
                if let Some(hole) = &mut self.rest.hole {
                    hole.elsewhere += 1;
                }
                return Some(Met::Row(key, value));
            }
        }
        None
    }

    fn fall_into(&mut self, cause: String) {
        let after = self.rest.last.clone();
        let hole = self.rest.hole.get_or_insert_with(|| Unreadable { after, ..Unreadable::default() });
        if !hole.causes.contains(&cause) {
            hole.causes.push(cause);
        }
    }

    /// Takes what is left of a part apart: what can be read, and what cannot.
    fn break_off(&mut self, Open { range: (start, end), attempt, has_begun, .. }: Open, error: &Error) {
        if !self.rest.is_searched {
            self.rest.is_searched = true;
            let parts = self.around_holes(start, end);
            return self.put_before(parts);
        }
        let mut parts = vec![Part::Hole(error.words())];
        // Newer states of the first row may be in a damaged block before it.
        if let (Bound::Included(mut key), false, Attempt::First) = (start, has_begun, attempt) {
            key.push(0);
            parts.push(Part::Rows((Bound::Included(key), end), Attempt::Second));
        }
        self.put_before(parts);
    }

    fn around_holes(&self, start: Bound<Vec<u8>>, end: Bound<Vec<u8>>) -> Vec<Part> {
        let holes = self.view.holes(self.rest.keyspace, (start.clone(), end.clone()));
        let mut parts = Vec::new();
        let mut from = start;
        for Hole { range, cause, rows } in holes {
            if let Bound::Included(key) | Bound::Excluded(key) = &range.0 {
                parts.push(Part::Rows((from, Bound::Included(last_before(key))), Attempt::First));
            }
            if let Bound::Excluded(key) = range.0 {
                parts.push(Part::Row(key));
            }
            parts.push(Part::Hole(cause));
            parts.push(Part::Within(rows.into()));
            from = behind(range.1);
        }
        parts.push(Part::Rows((from, end), Attempt::First));
        parts
    }
}

/// Where a range starts that comes after another one.
fn behind(end: Bound<Vec<u8>>) -> Bound<Vec<u8>> {
    match end {
        Bound::Included(key) => Bound::Excluded(key),
        Bound::Excluded(key) => Bound::Included(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}

impl Iterator for Walk<'_> {
    type Item = Met;

    fn next(&mut self) -> Option<Met> {
        loop {
            let row = match (self.row.take(), &mut self.open) {
                (Some(row), _) => Some(Ok(row)),
                (None, Some(open)) => open.rows.next(),
                (None, None) => match self.rest.parts.pop_front() {
                    Some(part) => match self.begin(part) {
                        Some(row) => return Some(row),
                        None => continue,
                    },
                    None => return self.rest.hole.take().map(Met::Hole),
                },
            };
            match row {
                Some(Ok((key, value))) => {
                    if let Some(hole) = self.rest.hole.take() {
                        let before = Some(key.to_vec());
                        self.row = Some((key, value));
                        return Some(Met::Hole(Unreadable { before, ..hole }));
                    }
                    let last = key.to_vec();
                    if let Some(open) = &mut self.open {
                        open.range.0 = Bound::Excluded(last.clone());
                        open.has_begun = true;
                    }
                    self.rest.last = Some(last);
                    return Some(Met::Row(key, value));
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
