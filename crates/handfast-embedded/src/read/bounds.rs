//! The bounds on an index that follow from a filter's predicates on a field.
//!
//! Bounds may include documents that do not match, but never exclude one that does: the filter is evaluated for every
//! candidate. A predicate without a useful bound has none.
//!
//! ```text
//! {a: 5}               [5, 5]
//! {a: {$gt: 5}}        (5, end of numbers)
//! {a: {$in: [1, 7]}}   [1, 1] [7, 7]
//! {a: [1, 2]}          [1, 1] [[1, 2], [1, 2]]     an array is found by its first element, or as an element
//! {a: null}            [empty array, null]          null, missing, and undefined
//! {$expr: {$gt: ["$a", 5]}}    (5, end]              values of all types, where no document has an array on the path
//! ```

use std::ops::Bound;

use bson::RawBsonRef;
use handfast_mql::Collation;
use handfast_mql::filter::{Comparison, Predicate, WholeComparison};
use handfast_mql::key::{self, Direction};
use handfast_store::notation;

use crate::engine::{Range, after_prefix};

#[cfg(test)]
mod tests;

/// A position among the values of one field, in ascending order. `Before` and `After` hold an encoded value and its text.
#[derive(Clone, Debug)]
pub(crate) enum Position {
    Start,
    Before(Vec<u8>, String),
    After(Vec<u8>, String),
    End,
}

impl Position {
    /// Returns bytes that sort as the positions do; `Unbounded` is the end. No value's bytes are a prefix of another's, so the
    /// position after a value is the end of its prefix.
    fn bound(&self) -> Bound<Vec<u8>> {
        match self {
            Position::Start => Bound::Excluded(Vec::new()),
            Position::Before(bytes, _) => Bound::Excluded(bytes.clone()),
            Position::After(bytes, _) => after_prefix(bytes),
            Position::End => Bound::Unbounded,
        }
    }

    fn is_before(&self, other: &Position) -> bool {
        match (self.bound(), other.bound()) {
            (Bound::Unbounded, _) => false,
            (_, Bound::Unbounded) => true,
            (Bound::Excluded(own) | Bound::Included(own), Bound::Excluded(other) | Bound::Included(other)) => {
                own < other
            }
        }
    }
}

/// The values of one field between two positions.
#[derive(Clone, Debug)]
pub(crate) struct Interval {
    pub(crate) from: Position,
    pub(crate) to: Position,
}

impl Interval {
    pub(crate) fn everything() -> Self {
        Interval { from: Position::Start, to: Position::End }
    }

    fn point(bytes: Vec<u8>, text: String) -> Self {
        Interval { from: Position::Before(bytes.clone(), text.clone()), to: Position::After(bytes, text) }
    }

    /// Returns the value of an interval that has only one.
    pub(crate) fn as_point(&self) -> Option<&[u8]> {
        match (&self.from, &self.to) {
            (Position::Before(from, _), Position::After(to, _)) if from == to => Some(from),
            _ => None,
        }
    }

    /// Returns the interval as MongoDB's explain shows it.
    pub(crate) fn text(&self, direction: Direction) -> String {
        let (low, low_open) = match &self.from {
            Position::Start | Position::End => ("MinKey", "["),
            Position::Before(_, text) => (text.as_str(), "["),
            Position::After(_, text) => (text.as_str(), "("),
        };
        let (high, high_close) = match &self.to {
            Position::Start | Position::End => ("MaxKey", "]"),
            Position::Before(_, text) => (text.as_str(), ")"),
            Position::After(_, text) => (text.as_str(), "]"),
        };
        match direction {
            Direction::Ascending => format!("{low_open}{low}, {high}{high_close}"),
            Direction::Descending => {
                let open = if high_close == "]" { "[" } else { "(" };
                let close = if low_open == "[" { "]" } else { ")" };
                format!("{open}{high}, {low}{close}")
            }
        }
    }

    /// Returns the range of an index's keys that begin with a prefix and have this field next.
    pub(crate) fn range(&self, prefix: &[u8], direction: Direction) -> Range {
        let with = |bytes: &[u8]| [prefix, bytes].concat();
        let inverted = |bytes: &[u8]| [prefix, &bytes.iter().map(|byte| !byte).collect::<Vec<u8>>()].concat();
        // Ends are exclusive; a start that is the end of a prefix is inclusive, and there is always one.
        let as_start = |bound: Bound<Vec<u8>>| match bound {
            Bound::Excluded(bytes) | Bound::Included(bytes) => Bound::Included(bytes),
            // After all keys.
            Bound::Unbounded => Bound::Excluded(vec![0xff; crate::engine::KEY_BYTES_MAX]),
        };
        match direction {
            Direction::Ascending => {
                let start = match &self.from {
                    Position::Start => Bound::Included(prefix.to_vec()),
                    Position::Before(bytes, _) => Bound::Included(with(bytes)),
                    Position::After(bytes, _) => as_start(after_prefix(&with(bytes))),
                    Position::End => as_start(after_prefix(prefix)),
                };
                let end = match &self.to {
                    Position::End => after_prefix(prefix),
                    Position::Before(bytes, _) => Bound::Excluded(with(bytes)),
                    Position::After(bytes, _) => after_prefix(&with(bytes)),
                    Position::Start => Bound::Excluded(prefix.to_vec()),
                };
                (start, end)
            }
            Direction::Descending => {
                let start = match &self.to {
                    Position::End => Bound::Included(prefix.to_vec()),
                    Position::Before(bytes, _) => as_start(after_prefix(&inverted(bytes))),
                    Position::After(bytes, _) => Bound::Included(inverted(bytes)),
                    Position::Start => as_start(after_prefix(prefix)),
                };
                let end = match &self.from {
                    Position::Start => after_prefix(prefix),
                    Position::Before(bytes, _) => after_prefix(&inverted(bytes)),
                    Position::After(bytes, _) => Bound::Excluded(inverted(bytes)),
                    Position::End => Bound::Excluded(prefix.to_vec()),
                };
                (start, end)
            }
        }
    }
}

/// Returns the values that match a predicate, in ascending order and without overlap; `None` if there is no useful bound.
///
/// Strings are those of an index under this collation.
pub(crate) fn of_predicate(predicate: &Predicate, collation: Option<&Collation>) -> Option<Vec<Interval>> {
    match predicate {
        Predicate::Compare(Comparison::Equal, operand) => of_value(operand.value(), collation),
        Predicate::Compare(comparison, operand) => of_comparison(*comparison, operand.value(), collation),
        // A regular expression may match any string.
        Predicate::In(choices) if choices.patterns().is_empty() => {
            let mut all = Vec::new();
            for choice in choices.values() {
                all.extend(of_value(choice.value(), collation)?);
            }
            Some(in_order(all))
        }
        _ => None,
    }
}

/// Returns the values for which a comparison of `$expr` holds, in ascending order and without overlap, of a field without arrays.
///
/// Keys are in the order in which `$expr` compares, with one exception: null, undefined and a missing field have one key. It is
/// included if the comparison holds for one of them.
pub(crate) fn of_whole_comparison(whole: &WholeComparison, collation: Option<&Collation>) -> Vec<Interval> {
    let null = key::encoded(RawBsonRef::Null);
    let below_null = || Position::Before(null.clone(), "null".to_owned());
    let above_null = || Position::After(null.clone(), "null".to_owned());
    let operand = whole.operand().filter(|value| !matches!(value, RawBsonRef::Null | RawBsonRef::Undefined));
    let (before, after) = match operand {
        Some(value) => {
            let (encoded, text) = (key::encoded_under(value, collation), notation::value(value));
            (Position::Before(encoded.clone(), text.clone()), Position::After(encoded, text))
        }
        None => (below_null(), above_null()),
    };
    let mut all = vec![match whole.comparison() {
        Comparison::Equal => Interval { from: before, to: after },
        Comparison::Less => Interval { from: Position::Start, to: before },
        Comparison::LessOrEqual => Interval { from: Position::Start, to: after },
        Comparison::Greater => Interval { from: after, to: Position::End },
        Comparison::GreaterOrEqual => Interval { from: before, to: Position::End },
    }];
    if [None, Some(RawBsonRef::Null), Some(RawBsonRef::Undefined)].into_iter().any(|value| whole.accepts(value)) {
        all.push(Interval { from: below_null(), to: above_null() });
    }
    in_order(all)
}

fn of_value(value: RawBsonRef<'_>, collation: Option<&Collation>) -> Option<Vec<Interval>> {
    let text = notation::value(value);
    let mut encoded = Vec::new();
    match value {
        RawBsonRef::Undefined | RawBsonRef::RegularExpression(_) => return None,
        RawBsonRef::Null => {
            let mut empty = Vec::new();
            key::encode_empty_array(Direction::Ascending, &mut empty);
            key::encode_under(value, collation, &mut encoded);
            let (from, to) = (Position::Before(empty, "undefined".to_owned()), Position::After(encoded, text));
            return Some(vec![Interval { from, to }]);
        }
        RawBsonRef::Array(array) => {
            let mut first = Vec::new();
            let first_text = match array.into_iter().next() {
                Some(element) => {
                    let element = element.ok()?;
                    key::encode_under(element, collation, &mut first);
                    notation::value(element)
                }
                None => {
                    key::encode_empty_array(Direction::Ascending, &mut first);
                    "undefined".to_owned()
                }
            };
            key::encode_under(value, collation, &mut encoded);
            return Some(in_order(vec![Interval::point(first, first_text), Interval::point(encoded, text)]));
        }
        _ => key::encode_under(value, collation, &mut encoded),
    }
    Some(vec![Interval::point(encoded, text)])
}

fn of_comparison(
    comparison: Comparison,
    value: RawBsonRef<'_>,
    collation: Option<&Collation>,
) -> Option<Vec<Interval>> {
    match value {
        // Null is also what is missing; arrays compare as a whole and are indexed by element; the ends of the order
        // compare with every type; NaN with itself alone.
        RawBsonRef::Null
        | RawBsonRef::Undefined
        | RawBsonRef::Array(_)
        | RawBsonRef::MinKey
        | RawBsonRef::MaxKey
        | RawBsonRef::RegularExpression(_) => return None,
        RawBsonRef::Double(number) if number.is_nan() => return None,
        RawBsonRef::Decimal128(number) if number.to_string().contains("NaN") => return None,
        _ => {}
    }
    let text = notation::value(value);
    let encoded = key::encoded_under(value, collation);
    let (first, end) = key::type_range(value);
    let lowest = Position::Before(first, least_text(value));
    let highest = Position::Before(end, greatest_text(value));
    let interval = match comparison {
        Comparison::Equal => return of_value(value, collation),
        Comparison::Less => Interval { from: lowest, to: Position::Before(encoded, text) },
        Comparison::LessOrEqual => Interval { from: lowest, to: Position::After(encoded, text) },
        Comparison::Greater => Interval { from: Position::After(encoded, text), to: highest },
        Comparison::GreaterOrEqual => Interval { from: Position::Before(encoded, text), to: highest },
    };
    Some(vec![interval])
}

fn least_text(value: RawBsonRef<'_>) -> String {
    match value {
        RawBsonRef::String(_) | RawBsonRef::Symbol(_) => "\"\"",
        RawBsonRef::Document(_) => "{}",
        RawBsonRef::Boolean(_) => "false",
        RawBsonRef::DateTime(_) => "new Date(-9223372036854775808)",
        RawBsonRef::Int32(_) | RawBsonRef::Int64(_) | RawBsonRef::Double(_) | RawBsonRef::Decimal128(_) => "-inf.0",
        _ => "the least of its type",
    }
    .to_owned()
}

fn greatest_text(value: RawBsonRef<'_>) -> String {
    match value {
        RawBsonRef::String(_) | RawBsonRef::Symbol(_) => "{}",
        RawBsonRef::Document(_) => "[]",
        RawBsonRef::Boolean(_) => "true",
        RawBsonRef::DateTime(_) => "new Date(9223372036854775807)",
        RawBsonRef::Int32(_) | RawBsonRef::Int64(_) | RawBsonRef::Double(_) | RawBsonRef::Decimal128(_) => "inf.0",
        _ => "the greatest of its type",
    }
    .to_owned()
}

/// Sorts intervals and merges those that overlap.
fn in_order(mut intervals: Vec<Interval>) -> Vec<Interval> {
    intervals.sort_by(|one, other| match (one.from.is_before(&other.from), other.from.is_before(&one.from)) {
        (true, _) => std::cmp::Ordering::Less,
        (_, true) => std::cmp::Ordering::Greater,
        _ => std::cmp::Ordering::Equal,
    });
    let mut joined: Vec<Interval> = Vec::with_capacity(intervals.len());
    for interval in intervals {
        match joined.last_mut() {
            Some(last) if interval.from.is_before(&last.to) => {
                if last.to.is_before(&interval.to) {
                    last.to = interval.to;
                }
            }
            _ => joined.push(interval),
        }
    }
    joined
}

/// Returns the bounds of one of several predicates that different values may match: points before ranges.
pub(crate) fn tightest(each: impl Iterator<Item = Vec<Interval>>) -> Option<Vec<Interval>> {
    each.min_by_key(|intervals| intervals.iter().any(|interval| interval.as_point().is_none()))
}

/// Returns the intersection of the bounds of two predicates, for a field without arrays, where one value must match both.
pub(crate) fn intersect(one: &[Interval], other: &[Interval]) -> Vec<Interval> {
    let mut both = Vec::new();
    for left in one {
        for right in other {
            let from = if left.from.is_before(&right.from) { &right.from } else { &left.from };
            let to = if left.to.is_before(&right.to) { &left.to } else { &right.to };
            if from.is_before(to) {
                both.push(Interval { from: from.clone(), to: to.clone() });
            }
        }
    }
    in_order(both)
}
