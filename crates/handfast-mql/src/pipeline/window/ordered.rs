//! Functions of the places of documents in a partition: ranks, `$shift`, `$linearFill`, `$locf`.

use bson::{RawBson, RawBsonRef};

use super::Partition;
use crate::{
    context::Context,
    error::{Code, Error, Result},
    expression::{Expression, value::type_name},
    number::Number,
    sort::Sort,
};

/// The way in which documents are numbered that are equal in the sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RankKind {
    /// 1, 2, 2, 4.
    Rank,
    /// 1, 2, 2, 3.
    Dense,
    /// 1, 2, 3, 4.
    Number,
}

/// The rank of the document before.
#[derive(Debug, Default)]
pub(super) struct Ranked {
    key: Option<Vec<u8>>,
    rank: i64,
}

impl Ranked {
    /// Returns the rank of the next document.
    ///
    /// # Errors
    /// Returns the errors of [`Sort::key`].
    pub(super) fn next(&mut self, kind: RankKind, partition: &Partition, index: usize, sort: &Sort) -> Result<RawBson> {
        let place = index as i64 + 1;
        if kind == RankKind::Number {
            return Ok(RawBson::Int64(place));
        }
        let key = partition.documents.get(index).map(|document| sort.key(document)).transpose()?;
        if index == 0 || key != self.key {
            self.rank = if kind == RankKind::Rank { place } else { self.rank + 1 };
            self.key = key;
        }
        Ok(RawBson::Int64(self.rank))
    }
}

/// The known values around a document whose value `$linearFill` computes.
#[derive(Debug, Default)]
pub(super) struct Interpolation {
    before: Option<KnownPoint>,
    /// The first known value at or after `searched`, if there is one.
    after: Option<KnownPoint>,
    /// The place from which no known value has been looked for.
    searched: usize,
    /// The position of the document before.
    last: Option<Number>,
}

#[derive(Clone, Copy, Debug)]
struct KnownPoint {
    x: Number,
    y: Number,
}

impl Interpolation {
    /// Returns the value of the next document.
    ///
    /// # Errors
    /// 6050106 if two documents have the same position, `TypeMismatch` (14) for a value that is neither a number nor missing, and for a position
    /// that is neither a number nor a date.
    pub(super) fn next(
        &mut self,
        input: &Expression,
        partition: &Partition,
        index: usize,
        context: &Context,
    ) -> Result<RawBson> {
        let x = x_of(partition, index)?;
        if self.last.is_some_and(|last| last.compare(&x).is_eq()) {
            return Err(Error::new(Code(6_050_106), "There can be no repeated values in the sort field"));
        }
        self.last = Some(x);
        if let Some((value, y)) = known_value(input, partition, index, context)? {
            self.before = Some(KnownPoint { x, y });
            return Ok(value);
        }
        let Some(before) = self.before else { return Ok(RawBson::Null) };
        if self.searched <= index {
            self.searched = index + 1;
            self.after = None;
            while self.after.is_none() && self.searched < partition.documents.len() {
                context.step()?;
                if let Some((_, y)) = known_value(input, partition, self.searched, context)? {
                    self.after = Some(KnownPoint { x: x_of(partition, self.searched)?, y });
                } else {
                    self.searched += 1;
                }
            }
        }
        let Some(after) = self.after else { return Ok(RawBson::Null) };
        let slope = after.y.subtract(before.y).divide(after.x.subtract(before.x));
        Ok(slope.map_or(RawBson::Null, |slope| RawBson::from(before.y.add(x.subtract(before.x).multiply(slope)))))
    }
}

fn x_of(partition: &Partition, index: usize) -> Result<Number> {
    match partition.positions.get(index).map(RawBson::as_raw_bson_ref) {
        Some(RawBsonRef::DateTime(date)) => Ok(Number::Long(date.timestamp_millis())),
        other => {
            let other = other.unwrap_or(RawBsonRef::Null);
            Number::of(other).ok_or_else(|| {
                let text =
                    format!("$linearFill expects a number or a date in the sort field, but found {}", type_name(other));
                Error::new(Code::TypeMismatch, text)
            })
        }
    }
}

/// Returns the value of a document, also as a number; none for a null or missing one.
fn known_value(
    input: &Expression,
    partition: &Partition,
    index: usize,
    context: &Context,
) -> Result<Option<(RawBson, Number)>> {
    let Some(document) = partition.documents.get(index) else { return Ok(None) };
    let value = input.evaluate(document, context)?;
    if value.is_nullish() {
        return Ok(None);
    }
    let number = value.get().and_then(Number::of).ok_or_else(|| {
        Error::new(
            Code::TypeMismatch,
            format!("Value to be filled must be numeric or nullish, but found {}", value.type_name()),
        )
    })?;
    Ok(value.into_owned().map(|value| (value, number)))
}
