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
//! Nothing from within a hole is shown, also what another file holds of it: it could be an older state.

use std::collections::VecDeque;
use std::ops::Bound;

use super::{Bytes, Direction, Hole, Keyspace, Range, Rows, View};
use crate::error::Error;

/// What a walk meets.
pub(crate) enum Met {
    Row(Bytes, Bytes),
    Hole(Unreadable),
}

/// Keys between two rows that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable {
    /// The last row that was read before them.
    pub(crate) after: Option<Vec<u8>>,
    /// The first row that was read behind them.
    pub(crate) before: Option<Vec<u8>>,
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
    Rows(Range),
    Hole(String),
}

impl Rest {
    /// All of a range.
    pub(crate) fn new(keyspace: Keyspace, range: Range) -> Self {
        Rest { keyspace, parts: [Part::Rows(range)].into(), is_searched: false, last: None, hole: None }
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
    range: Range,
    /// It gave a row.
    has_begun: bool,
}

impl Open {
    /// What of the part is behind the last row.
    fn rest(self, last: Option<&Vec<u8>>) -> Range {
        let (start, end) = self.range;
        let start = last.filter(|_| self.has_begun).map_or(start, |last| Bound::Excluded(last.clone()));
        (start, end)
    }
}

impl<'v> Walk<'v> {
    pub(crate) fn new(view: &'v dyn View, rest: Rest) -> Self {
        Walk { view, rest, open: None, row: None }
    }

    /// What was not read yet: to go on later.
    pub(crate) fn into_rest(mut self) -> Rest {
        if let Some(open) = self.open.take() {
            let (mut start, end) = open.rest(self.rest.last.as_ref());
            // A row that waits is read again.
            if let Some((key, _)) = self.row {
                start = Bound::Included(key.to_vec());
            }
            self.rest.parts.push_front(Part::Rows((start, end)));
        }
        self.rest
    }

    /// Takes a part that broke off apart: what can be read, and what cannot.
    fn break_off(&mut self, (start, end): Range, error: &Error) {
        if self.rest.is_searched {
            // No damaged block explains it: nothing more of this part.
            return self.rest.parts.push_front(Part::Hole(error.words()));
        }
        self.rest.is_searched = true;
        let holes = self.view.holes(self.rest.keyspace, (start.clone(), end.clone()));
        let mut parts = VecDeque::new();
        let mut from = start;
        for Hole { range: (hole_start, hole_end), cause } in holes {
            parts.push_back(Part::Rows((from, turned(hole_start))));
            parts.push_back(Part::Hole(cause));
            from = turned(hole_end);
        }
        parts.push_back(Part::Rows((from, end)));
        parts.append(&mut self.rest.parts);
        self.rest.parts = parts;
    }

    fn begin(&mut self, part: Part) {
        match part {
            Part::Rows(range) => {
                let rows = self.view.range(self.rest.keyspace, range.clone(), Direction::Forward);
                self.open = Some(Open { rows, range, has_begun: false });
            }
            Part::Hole(cause) => {
                let after = self.rest.last.clone();
                let begin = || Unreadable { after, before: None, causes: Vec::new() };
                let hole = self.rest.hole.get_or_insert_with(begin);
                if !hole.causes.contains(&cause) {
                    hole.causes.push(cause);
                }
            }
        }
    }
}

/// The other side of a bound: the end of what is before it, or the start of what is behind it.
fn turned(bound: Bound<Vec<u8>>) -> Bound<Vec<u8>> {
    match bound {
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
                    Some(part) => {
                        self.begin(part);
                        continue;
                    }
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
                    self.rest.last = Some(key.to_vec());
                    if let Some(open) = &mut self.open {
                        open.has_begun = true;
                    }
                    return Some(Met::Row(key, value));
                }
                Some(Err(error)) => {
                    if let Some(open) = self.open.take() {
                        self.break_off(open.rest(self.rest.last.as_ref()), &error);
                    }
                }
                None => self.open = None,
            }
        }
    }
}
