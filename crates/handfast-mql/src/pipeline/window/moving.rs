//! Functions over windows that are no accumulators: covariances, derivatives, integrals, and the exponential moving average.

use std::collections::VecDeque;

use bson::{RawBson, RawBsonRef};

use super::function::failed;
use crate::{
    accumulator::{
        Sum,
        window::{Merge, MergeQueue},
    },
    decimal::Decimal,
    error::{Code, Error, Result},
    expression::{
        convert::integer_of,
        date::Unit,
        value::{self, show, type_name},
    },
    number::Number,
};

/// The count, the means and the sum of the products of the distances from them, of pairs of numbers. Those of two lists are merged by
/// the formula for variances (Chan, Golub and LeVeque 1979), with a product in the place of the square.
#[derive(Clone, Debug, Default)]
pub(super) struct Covariance {
    count: u64,
    mean_x: f64,
    mean_y: f64,
    products: f64,
}

impl Covariance {
    pub(super) fn of(x: Number, y: Number) -> Self {
        Covariance { count: 1, mean_x: x.to_f64(), mean_y: y.to_f64(), products: 0.0 }
    }

    /// Returns the covariance of a population, or of a sample (which needs two pairs).
    pub(super) fn result(&self, sample: bool) -> RawBson {
        let divisor = if sample { self.count.saturating_sub(1) } else { self.count };
        if divisor == 0 { RawBson::Null } else { RawBson::Double(self.products / divisor as f64) }
    }
}

impl Merge for Covariance {
    fn merge(&mut self, later: &Self) {
        if self.count == 0 || later.count == 0 {
            if self.count == 0 {
                self.clone_from(later);
            }
            return;
        }
        let (here, there) = (self.count as f64, later.count as f64);
        let (x, y) = (later.mean_x - self.mean_x, later.mean_y - self.mean_y);
        self.count += later.count;
        self.mean_x += x * there / (here + there);
        self.mean_y += y * there / (here + there);
        self.products += later.products + x * y * here * there / (here + there);
    }
}

/// A value of the `sortBy` field with that of the input, which is a number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    x: Number,
    y: Number,
}

impl Point {
    /// Returns the point of a document; none if its input or its `sortBy` field has no value.
    ///
    /// # Errors
    /// 5624900 to 5624902 for a date without a unit, and for a unit without a date; `TypeMismatch` (14) for an input that is no number.
    pub(super) fn of(
        name: &str,
        position: RawBsonRef<'_>,
        input: RawBsonRef<'_>,
        unit: Option<Unit>,
    ) -> Result<Option<Point>> {
        let x = match (position, unit) {
            (RawBsonRef::Null | RawBsonRef::Undefined, _) => return Ok(None),
            (RawBsonRef::DateTime(date), Some(_)) => Number::Long(date.timestamp_millis()),
            (RawBsonRef::DateTime(_), None) => {
                let text = format!("{name} where the sortBy is a Date requires a 'unit'");
                return Err(Error::new(Code(5_624_901), text));
            }
            (other, Some(_)) => {
                let text = format!(
                    "{name} with 'unit' expects the sortBy field to be a Date, but it was {}",
                    type_name(other)
                );
                return Err(Error::new(Code(5_624_900), text));
            }
            (other, None) => Number::of(other).ok_or_else(|| {
                let text = format!("{name} expects the sortBy field to be a number, but it was {}", type_name(other));
                Error::new(Code(5_624_902), text)
            })?,
        };
        match Number::of(input) {
            Some(y) => Ok(Some(Point { x, y })),
            None if matches!(input, RawBsonRef::Null | RawBsonRef::Undefined) => Ok(None),
            None => {
                let text = format!("{name} expects its input to be a number, but it was {}", type_name(input));
                Err(Error::new(Code::TypeMismatch, text))
            }
        }
    }
}

/// Returns the distance between two values of the `sortBy` field, in the unit.
fn width(from: Number, to: Number, unit: Option<Unit>) -> Number {
    let distance = to.subtract(from);
    match unit.and_then(Unit::exact_millis) {
        None => distance,
        Some(millis) => distance.divide(Number::Long(millis)).unwrap_or(distance),
    }
}

/// Returns the slope of the line from the first point of a window to the last; null if there are no two points apart.
pub(super) fn derivative(first: Option<Point>, last: Option<Point>, unit: Option<Unit>) -> RawBson {
    let (Some(first), Some(last)) = (first, last) else { return RawBson::Null };
    let rise = last.y.subtract(first.y);
    rise.divide(width(first.x, last.x, unit)).map_or(RawBson::Null, RawBson::from)
}

/// The area under the lines between the points of a window.
#[derive(Debug)]
pub(super) struct Integral {
    unit: Option<Unit>,
    /// The points of the documents in the window; none for a document without one.
    documents: VecDeque<Option<Point>>,
    /// The areas between a point and the next one.
    areas: MergeQueue<Sum>,
    points: usize,
    last: Option<Point>,
}

impl Integral {
    pub(super) fn new(unit: Option<Unit>, removes: bool) -> Self {
        Integral { unit, documents: VecDeque::new(), areas: MergeQueue::new(removes), points: 0, last: None }
    }

    pub(super) fn enter(&mut self, point: Option<Point>, removes: bool) {
        if removes {
            self.documents.push_back(point);
        }
        let Some(point) = point else { return };
        if let Some(before) = self.last.replace(point).filter(|_| self.points > 0) {
            let mut area = Sum::default();
            let height = before.y.add(point.y).divide(Number::Int(2)).unwrap_or(before.y);
            area.add(width(before.x, point.x, self.unit).multiply(height));
            self.areas.enter(area);
        }
        self.points += 1;
    }

    pub(super) fn leave(&mut self) {
        if let Some(Some(_)) = self.documents.pop_front() {
            self.points -= 1;
            // The area between this point and the next one, if there is a next one.
            if self.points > 0 {
                self.areas.leave();
            }
        }
    }

    pub(super) fn result(&self) -> RawBson {
        if self.points == 0 { RawBson::Null } else { RawBson::from(self.areas.total().total()) }
    }

    pub(super) fn bytes(&self) -> usize {
        self.documents.len() * size_of::<Option<Point>>() + self.areas.bytes()
    }
}

/// The share of a new value in an exponential moving average, for doubles and for decimals.
#[derive(Clone, Copy, Debug)]
pub(super) struct Smoothing {
    double: f64,
    decimal: Decimal,
}

impl Smoothing {
    /// Reads `{input, N}` or `{input, alpha}`; returns the source of the input.
    ///
    /// # Errors
    /// `FailedToParse` (9).
    pub(super) fn read(argument: RawBsonRef<'_>) -> Result<(RawBsonRef<'_>, Smoothing)> {
        let fields = "$expMovingAvg sub object must have exactly two fields: An 'input' field, and either an 'N' field or an \
                      'alpha' field";
        let RawBsonRef::Document(document) = argument else {
            return Err(failed("$expMovingAvg must have exactly one argument that is an object"));
        };
        let (mut input, mut smoothing) = (None, None);
        for field in value::fields(document) {
            let (key, item) = field?;
            let found = match key.as_str() {
                "input" => {
                    input = Some(item);
                    continue;
                }
                "N" => Smoothing::over(item)?,
                "alpha" => Smoothing::alpha(item)?,
                other => return Err(failed(format!("Got unrecognized field in $expMovingAvg: {other}"))),
            };
            if smoothing.replace(found).is_some() {
                return Err(failed(fields));
            }
        }
        input.zip(smoothing).ok_or_else(|| failed(fields))
    }

    fn over(item: RawBsonRef<'_>) -> Result<Smoothing> {
        let Some(n) = integer_of(item) else {
            return Err(failed(format!("'N' field must be an integer, but found {}", show(item))));
        };
        if n < 1 {
            return Err(failed(format!("'N' must be greater than zero. Got {n}")));
        }
        let decimal = Decimal::from(2).divide(Decimal::from(n).add(Decimal::ONE));
        Ok(Smoothing { double: 2.0 / (n as f64 + 1.0), decimal })
    }

    fn alpha(item: RawBsonRef<'_>) -> Result<Smoothing> {
        let Some(alpha) = Number::of(item) else {
            return Err(failed(format!("'alpha' must be a number, but found {}", type_name(item))));
        };
        let between = alpha.compare(&Number::Int(0)).is_gt() && alpha.compare(&Number::Int(1)).is_lt();
        if !between {
            return Err(failed(format!("'alpha' must be between 0 and 1 (exclusive), found alpha: {}", show(item))));
        }
        Ok(Smoothing { double: alpha.to_f64(), decimal: alpha.to_decimal().normalize() })
    }

    /// Returns the next average: a decimal from the first decimal on, else a double.
    pub(super) fn next(self, average: Option<Number>, number: Number) -> Number {
        let is_decimal = [Some(number), average].iter().flatten().any(|number| matches!(number, Number::Decimal(_)));
        match average {
            None if is_decimal => number,
            None => Number::Double(number.to_f64()),
            Some(average) if is_decimal => {
                let rest = Decimal::ONE.subtract(self.decimal);
                let share = number.to_decimal().multiply(self.decimal);
                Number::Decimal(share.add(average.to_decimal().multiply(rest)))
            }
            Some(average) => Number::Double(number.to_f64() * self.double + average.to_f64() * (1.0 - self.double)),
        }
    }
}
