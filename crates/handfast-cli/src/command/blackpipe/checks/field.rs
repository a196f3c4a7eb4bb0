//! The fields that are checked, as they are written, and the sums that are expected of them.

use std::fmt;
use std::str::FromStr;

use bson::{Decimal128, RawBson, RawBsonRef};
use handfast_mql::order;

use super::shown;

/// A field of a collection: `accounts.balance`. Only the collections of a run show where the name of the collection ends, because both may
/// have dots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field(String);

impl Field {
    /// Returns each collection and path that it may mean, the longest collection first.
    pub(super) fn splits(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.rmatch_indices('.').filter_map(|(at, _)| Some((self.0.get(..at)?, self.0.get(at + 1..)?)))
    }
}

impl FromStr for Field {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_field = text.contains('.') && !text.contains('$') && text.split('.').all(|part| !part.is_empty());
        match is_field {
            true => Ok(Field(text.to_owned())),
            false => Err(format!("'{text}' is no field: write a collection and a field, such as accounts.balance")),
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A number as it is written.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Number(String);

impl Number {
    /// Returns the number as a value that is compared with another one: a decimal beside a decimal, because 0.3 is no double.
    pub(super) fn comparable_with(&self, other: RawBsonRef<'_>) -> RawBson {
        let decimal = || self.0.parse::<Decimal128>().ok().map(RawBson::Decimal128);
        let double = || self.0.parse().ok().map(RawBson::Double);
        let is_integer = !self.0.contains(['.', 'e', 'E']);
        let value = match other {
            RawBsonRef::Decimal128(_) => decimal(),
            _ if is_integer => self.0.parse().ok().map(RawBson::Int64).or_else(decimal),
            _ => double(),
        };
        value.or_else(double).unwrap_or(RawBson::Null)
    }
}

impl FromStr for Number {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let is_finite = text.parse().is_ok_and(f64::is_finite);
        if is_finite { Ok(Number(text.to_owned())) } else { Err(()) }
    }
}

/// A sum, and its value if it is given.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sum {
    pub(super) field: Field,
    pub(super) expected: Option<Number>,
}

impl FromStr for Sum {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((field, value)) = text.split_once('=') else {
            return Ok(Sum { field: text.parse()?, expected: None });
        };
        let wrong = |()| format!("'{value}' is no sum: write a number, such as {field}=100");
        Ok(Sum { field: field.parse()?, expected: Some(value.parse().map_err(wrong)?) })
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.field.fmt(f)?;
        match &self.expected {
            Some(Number(expected)) => write!(f, "={expected}"),
            None => Ok(()),
        }
    }
}

/// The double from which on not every integer is one, 2^53: a sum of this size may stay as it is when 1 is added.
const EXACT_MAX: f64 = (1_u64 << 53) as f64;
/// The decimal from which on not every integer is one: decimals have 34 digits.
const EXACT_DECIMAL_MAX: &str = "1E+34";

/// Returns why a sum may be the same although the values are other ones.
pub(super) fn hidden_differences(sum: RawBsonRef<'_>) -> Option<&'static str> {
    match sum {
        RawBsonRef::Double(sum) if sum.abs() < EXACT_MAX => None,
        RawBsonRef::Double(sum) if sum.is_finite() => {
            Some("a double of 2^53 or more, which may stay as it is when 1 is added: store integers or decimals")
        }
        RawBsonRef::Decimal128(_) if is_exact_decimal(sum) => None,
        RawBsonRef::Decimal128(_) if shown(sum).parse().is_ok_and(f64::is_finite) => Some(
            "a decimal of 10^34 or more, which may stay as it is when 1 is added: sum smaller values, or use --check",
        ),
        RawBsonRef::Double(_) | RawBsonRef::Decimal128(_) => Some("whatever the other values are"),
        _ => None,
    }
}

/// Returns whether a decimal is between the bounds; NaN is not.
fn is_exact_decimal(sum: RawBsonRef<'_>) -> bool {
    let compared = |bound: String| {
        let bound: Option<Decimal128> = bound.parse().ok();
        bound.map(|bound| order::compare(sum, RawBsonRef::Decimal128(bound)))
    };
    compared(EXACT_DECIMAL_MAX.to_owned()).is_some_and(std::cmp::Ordering::is_lt)
        && compared(format!("-{EXACT_DECIMAL_MAX}")).is_some_and(std::cmp::Ordering::is_gt)
}
