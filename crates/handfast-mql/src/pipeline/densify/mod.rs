//! `$densify`: documents are added where a step of a sequence of numbers or dates has none.
//!
//! The documents are sorted by the field. Each partition has the value that comes next in its sequence; before a document,
//! all values that are less than its own are added, and after the last document those up to the end of the range:
//!
//! ```text
//! {field: "n", partitionByFields: ["p"], range: {step: 2, bounds: "full"}}
//! input                    output
//! {p: "a", n: 0}           {p: "a", n: 0}
//! {p: "a", n: 3}           {p: "a", n: 2} added, {p: "a", n: 3}
//! {p: "b", n: 4}           {p: "b", n: 0} added, {p: "b", n: 2} added, {p: "b", n: 4}
//!                          {p: "a", n: 4} added
//! ```
//!
//! Source: MongoDB's manual, "$densify (aggregation)".

mod compile;
mod operator;

use bson::RawBsonRef;

use self::operator::Densifying;
use super::operator::Operator;
use crate::{
    context::Context,
    error::{Code, Error, Result},
    expression::{
        Expression,
        date::{Unit, add_units},
        value::type_name,
    },
    number::Number,
};

/// The most documents that one `$densify` adds: the default of MongoDB's parameter `internalQueryMaxAllowedDensifyDocs`.
const ADDED_DOCUMENTS_MAX: usize = 500_000;

/// A compiled `$densify`.
#[derive(Debug)]
pub struct Densify {
    field: Field,
    partition: Vec<Field>,
    step: Number,
    unit: Option<Unit>,
    bounds: Bounds,
}

/// A field by its path.
#[derive(Debug)]
struct Field {
    path: Vec<String>,
    value: Expression,
}

/// The range of the values that are added.
#[derive(Clone, Copy, Debug)]
enum Bounds {
    /// From the least to the greatest value of all documents.
    Full,
    /// From the least to the greatest value of each partition.
    Partition,
    /// From `low` up to, but not including, `high`.
    Between { low: Number, high: Number },
}

impl Densify {
    pub(super) fn operator<'p>(&'p self, context: &'p Context) -> Box<dyn Operator + 'p> {
        Box::new(Densifying::new(self, context))
    }

    /// Returns a value of the field as a number: a date in milliseconds, if there is a unit; none for a missing or null value.
    ///
    /// # Errors
    /// 6053600 for a date without a unit, and for a number with a unit; 5733201 for any other value.
    fn axis(&self, value: RawBsonRef<'_>) -> Result<Option<Number>> {
        let wrong = |kind: &str, with: &str| {
            let text = format!("Encountered {kind} densify value in collection when step {with} a date unit.");
            Err(Error::new(Code(6_053_600), text))
        };
        match (value, Number::of(value), self.unit) {
            (RawBsonRef::Null | RawBsonRef::Undefined, ..) => Ok(None),
            (RawBsonRef::DateTime(date), _, Some(_)) => Ok(Some(Number::Long(date.timestamp_millis()))),
            (RawBsonRef::DateTime(_), _, None) => wrong("date", "does not have"),
            (_, Some(_), Some(_)) => wrong("numeric", "has"),
            (_, Some(number), None) => Ok(Some(number)),
            (other, None, _) => {
                let text = format!("Densify field type must be numeric or a date, but found {}", type_name(other));
                Err(Error::new(Code(5_733_201), text))
            }
        }
    }

    /// Returns the value one step later; none if there is no such date.
    fn after(&self, current: Number) -> Option<Number> {
        match (self.unit, current) {
            (Some(unit), Number::Long(millis)) => add_units(millis, unit, self.step.to_i64_exact()?).map(Number::Long),
            _ => Some(current.add(self.step)),
        }
    }
}
