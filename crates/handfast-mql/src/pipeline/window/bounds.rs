//! The bounds of windows: `{documents: [-1, "current"]}`, `{range: [-10, 10], unit: "day"}`.

use std::{cmp::Ordering, ops::Range};

use bson::{RawBson, RawBsonRef, RawDocument};

use super::Partition;
use crate::{
    context::Context,
    error::{Code, Error, Result},
    expression::{
        convert::integer_of,
        date::{Unit, add_units},
        value::{self, show, type_name},
    },
    key::Direction,
    number::Number,
    sort::Sort,
};

/// A window around the current document.
#[derive(Clone, Debug)]
pub(super) enum Window {
    /// Places relative to that of the current document.
    Documents { low: Bound<i64>, high: Bound<i64> },
    /// Values of the `sortBy` field relative to that of the current document.
    Range { low: Bound<Number>, high: Bound<Number>, unit: Option<Unit> },
}

/// An end of a window. `"current"` is an offset of 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Bound<T> {
    Unbounded,
    Offset(T),
}

impl Window {
    /// The whole partition, which is the default.
    pub(super) const WHOLE: Window = Window::Documents { low: Bound::Unbounded, high: Bound::Unbounded };

    /// Compiles the value of `window`.
    ///
    /// # Errors
    /// `FailedToParse` (9) for what is no window, 5339900 to 5339902 for bounds in the wrong order and bounds that the sort does not allow.
    pub(super) fn compile(source: RawBsonRef<'_>, sort: &Sort) -> Result<Window> {
        let RawBsonRef::Document(document) = source else {
            return Err(failed(format!("'window' field must be an object, but found type {}", type_name(source))));
        };
        let (mut documents, mut range, mut unit) = (None, None, None);
        for field in value::fields(document) {
            let (key, item) = field?;
            match key.as_str() {
                "documents" => documents = Some(item),
                "range" => range = Some(item),
                "unit" => unit = Some(item),
                other => {
                    return Err(failed(format!(
                        "'window' field can only contain 'documents', 'range' and 'unit', but found '{other}'"
                    )));
                }
            }
        }
        let window = match (documents, range, unit) {
            (Some(_), Some(_), _) => {
                return Err(failed("Window bounds can specify either 'documents' or 'range', not both."));
            }
            (Some(_), None, Some(_)) => {
                return Err(failed("Window bounds can specify either 'documents' or 'unit', not both."));
            }
            (None, None, Some(_)) => {
                return Err(failed("Window bounds can only specify 'unit' with range-based bounds."));
            }
            (None, None, None) => Window::WHOLE,
            (Some(pair), None, None) => {
                let [low, high] = pair_of(pair)?;
                Window::Documents { low: place(low)?, high: place(high)? }
            }
            (None, Some(pair), unit) => {
                let unit = unit.map(unit_of).transpose()?;
                let [low, high] = pair_of(pair)?;
                Window::Range { low: distance(low, unit)?, high: distance(high, unit)?, unit }
            }
        };
        window.check(document, sort)?;
        Ok(window)
    }

    fn check(&self, source: &RawDocument, sort: &Sort) -> Result<()> {
        let is_reversed = match self {
            Window::Documents { low: Bound::Offset(low), high: Bound::Offset(high) } => low > high,
            Window::Range { low: Bound::Offset(low), high: Bound::Offset(high), .. } => {
                low.compare(high) == Ordering::Greater
            }
            _ => false,
        };
        if is_reversed {
            let shown = show(RawBsonRef::Document(source));
            return Err(Error::new(Code(5_339_900), format!("Lower bound must not exceed upper bound: {shown}")));
        }
        match self {
            Window::Documents { low: Bound::Unbounded, high: Bound::Unbounded } => Ok(()),
            Window::Documents { .. } if sort.is_empty() => {
                Err(Error::new(Code(5_339_901), "Document-based bounds require a sortBy"))
            }
            Window::Range { .. } if !matches!(sort.fields(), [field] if field.direction() == Direction::Ascending) => {
                Err(Error::new(Code(5_339_902), "Range-based bounds require an ascending sortBy of a single field"))
            }
            _ => Ok(()),
        }
    }

    /// Tells whether documents leave the window as it moves.
    pub(super) fn removes(&self) -> bool {
        !matches!(self, Window::Documents { low: Bound::Unbounded, .. } | Window::Range { low: Bound::Unbounded, .. })
    }

    /// Tells whether the window depends on the values of the `sortBy` field.
    pub(super) fn needs_positions(&self) -> bool {
        matches!(self, Window::Range { .. })
    }

    /// Returns the places in the window of the document at `index`. `previous` is the window of the document before it, at which the
    /// search begins.
    ///
    /// # Errors
    /// 5429414 and 5429513 for a `sortBy` value of the wrong type, 5429413 for a date without a unit, 5166406 for a bound that is no date.
    pub(super) fn frame(
        &self,
        partition: &Partition,
        index: usize,
        previous: &Range<usize>,
        context: &Context,
    ) -> Result<Range<usize>> {
        let len = partition.documents.len();
        match self {
            Window::Documents { low, high } => {
                let start = match low {
                    Bound::Unbounded => 0,
                    Bound::Offset(offset) => moved(index, *offset).min(len),
                };
                let end = match high {
                    Bound::Unbounded => len,
                    Bound::Offset(offset) => moved(index, offset.saturating_add(1)).min(len),
                };
                Ok(start..end.max(start))
            }
            Window::Range { low, high, unit } => {
                let at =
                    |index: usize| partition.positions.get(index).map_or(RawBsonRef::Null, RawBson::as_raw_bson_ref);
                let current = axis(at(index), *unit)?;
                let Range { mut start, mut end } = previous.clone();
                if let Bound::Offset(offset) = low {
                    let limit = shifted(current, *offset, *unit)?;
                    while start < len && axis(at(start), *unit)?.compare(&limit) == Ordering::Less {
                        context.step()?;
                        start += 1;
                    }
                }
                end = end.max(start);
                match high {
                    Bound::Unbounded => end = len,
                    Bound::Offset(offset) => {
                        let limit = shifted(current, *offset, *unit)?;
                        while end < len && axis(at(end), *unit).is_ok_and(|value| value.compare(&limit).is_le()) {
                            context.step()?;
                            end += 1;
                        }
                    }
                }
                Ok(start..end)
            }
        }
    }
}

fn failed(message: impl Into<String>) -> Error {
    Error::new(Code::FailedToParse, message)
}

fn pair_of(source: RawBsonRef<'_>) -> Result<[RawBsonRef<'_>; 2]> {
    let wrong = || failed(format!("Window bounds must be a 2-element array: {}", show(source)));
    let RawBsonRef::Array(array) = source else { return Err(wrong()) };
    let items = value::items(array).collect::<Result<Vec<_>>>()?;
    items.try_into().map_err(|_| wrong())
}

fn named<T>(source: RawBsonRef<'_>, current: T) -> Result<Option<Bound<T>>> {
    match source {
        RawBsonRef::String("unbounded") => Ok(Some(Bound::Unbounded)),
        RawBsonRef::String("current") => Ok(Some(Bound::Offset(current))),
        other if Number::of(other).is_some() => Ok(None),
        other => {
            Err(failed(format!("Window bounds must be 'unbounded', 'current', or a number. Got: {}", show(other))))
        }
    }
}

fn place(source: RawBsonRef<'_>) -> Result<Bound<i64>> {
    if let Some(bound) = named(source, 0)? {
        return Ok(bound);
    }
    integer_of(source)
        .map(Bound::Offset)
        .ok_or_else(|| failed(format!("Numeric document-based bounds must be an integer: {}", show(source))))
}

fn distance(source: RawBsonRef<'_>, unit: Option<Unit>) -> Result<Bound<Number>> {
    if let Some(bound) = named(source, Number::Int(0))? {
        return Ok(bound);
    }
    let number = match unit {
        None => Number::of(source),
        Some(_) => integer_of(source).map(Number::Long),
    };
    number
        .map(Bound::Offset)
        .ok_or_else(|| failed(format!("With 'unit', range-based bounds must be an integer: {}", show(source))))
}

/// Reads a unit of time.
///
/// # Errors
/// `FailedToParse` (9) for anything else.
pub(super) fn unit_of(source: RawBsonRef<'_>) -> Result<Unit> {
    match source {
        RawBsonRef::String(name) => Unit::parse(name),
        other => Err(failed(format!("'unit' must be a string, but found type {}", type_name(other)))),
    }
}

fn moved(index: usize, offset: i64) -> usize {
    let distance = usize::try_from(offset.unsigned_abs()).unwrap_or(usize::MAX);
    if offset < 0 { index.saturating_sub(distance) } else { index.saturating_add(distance) }
}

/// Returns a value of the `sortBy` field as a number: a date in milliseconds, if the window has a unit.
fn axis(position: RawBsonRef<'_>, unit: Option<Unit>) -> Result<Number> {
    match (position, unit) {
        (RawBsonRef::DateTime(date), Some(_)) => Ok(Number::Long(date.timestamp_millis())),
        (other, Some(_)) => Err(Error::new(
            Code(5_429_513),
            format!("Invalid range: Expected the sortBy field to be a Date, but it was {}", type_name(other)),
        )),
        (RawBsonRef::DateTime(_), None) => {
            Err(Error::new(Code(5_429_413), "For windows that involve date or time ranges, a unit must be provided."))
        }
        (other, None) => Number::of(other).ok_or_else(|| {
            Error::new(
                Code(5_429_414),
                format!("Invalid range: Expected the sortBy field to be a number, but it was {}", type_name(other)),
            )
        }),
    }
}

fn shifted(current: Number, offset: Number, unit: Option<Unit>) -> Result<Number> {
    let (Some(unit), Number::Long(millis)) = (unit, current) else { return Ok(current.add(offset)) };
    let amount = offset.to_i64_exact().unwrap_or(0);
    add_units(millis, unit, amount)
        .map(Number::Long)
        .ok_or_else(|| Error::new(Code(5_166_406), "the bound of a window is beyond the range of dates"))
}
