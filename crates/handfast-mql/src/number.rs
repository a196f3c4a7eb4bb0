//! Numbers of BSON's four numeric types, their arithmetic and their exact comparison.
//!
//! MongoDB's rule of promotion: the result has the widest type of the operands, in the order int, long, double, decimal;
//! an int that overflows becomes a long. What happens when a long overflows differs: an aggregation expression continues
//! with a double ([`Number::add`]), an update fails ([`Number::checked_add`]).
//!
//! Comparisons do not round: a long and a double, or a double and a decimal, compare by their mathematical values.

mod exact;

use std::cmp::Ordering;

use bson::{RawBson, RawBsonRef};

use crate::bson_type;
use crate::decimal::{Decimal, Rounding};

/// A number of one of the four types.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// 32 bits: `int`.
    Int(i32),
    /// 64 bits: `long`.
    Long(i64),
    /// A binary floating-point number: `double`.
    Double(f64),
    /// A decimal floating-point number: `decimal`.
    Decimal(Decimal),
}

use Number as N;

impl Number {
    /// Returns the number that a value is; none if it is of another type.
    pub fn of(value: RawBsonRef<'_>) -> Option<Self> {
        match value {
            RawBsonRef::Int32(value) => Some(N::Int(value)),
            RawBsonRef::Int64(value) => Some(N::Long(value)),
            RawBsonRef::Double(value) => Some(N::Double(value)),
            RawBsonRef::Decimal128(value) => Some(N::Decimal(Decimal::decode(value))),
            _ => None,
        }
    }

    /// Returns the value of this number.
    pub fn to_bson(self) -> RawBsonRef<'static> {
        match self {
            N::Int(value) => RawBsonRef::Int32(value),
            N::Long(value) => RawBsonRef::Int64(value),
            N::Double(value) => RawBsonRef::Double(value),
            N::Decimal(value) => RawBsonRef::Decimal128(value.encode()),
        }
    }

    /// Returns MongoDB's alias of the type: `int`, `long`, `double` or `decimal`.
    pub fn type_name(self) -> &'static str {
        bson_type::type_name(self.to_bson())
    }

    /// Compares by mathematical value. `NaN` equals itself and comes before everything.
    pub fn compare(&self, other: &Self) -> Ordering {
        match (*self, *other) {
            (N::Int(a), N::Int(b)) => a.cmp(&b),
            (N::Double(a), N::Double(b)) => exact::compare_doubles(a, b),
            (N::Decimal(a), N::Decimal(b)) => a.compare(b),
            (N::Double(a), N::Decimal(b)) => exact::compare_double_decimal(a, b),
            (N::Decimal(a), N::Double(b)) => exact::compare_double_decimal(b, a).reverse(),
            (N::Decimal(a), N::Int(_) | N::Long(_)) => a.compare(Decimal::from(other.integer())),
            (N::Int(_) | N::Long(_), N::Decimal(b)) => Decimal::from(self.integer()).compare(b),
            (N::Double(a), N::Int(_) | N::Long(_)) => exact::compare_double_integer(a, other.integer()),
            (N::Int(_) | N::Long(_), N::Double(b)) => exact::compare_double_integer(b, self.integer()).reverse(),
            (N::Int(_) | N::Long(_), N::Int(_) | N::Long(_)) => self.integer().cmp(&other.integer()),
        }
    }

    /// Adds as expressions do: an int overflows into a long, a long into a double.
    #[must_use]
    #[expect(
        clippy::should_implement_trait,
        reason = "one family of named operations; operators would hide the promotion"
    )]
    pub fn add(self, other: Self) -> Self {
        self.checked_add(other).unwrap_or_else(|| N::Double(self.integer() as f64 + other.integer() as f64))
    }

    /// Returns the difference, as expressions subtract.
    #[must_use]
    pub fn subtract(self, other: Self) -> Self {
        self.checked_subtract(other).unwrap_or_else(|| N::Double(self.integer() as f64 - other.integer() as f64))
    }

    /// Returns the product, as expressions multiply.
    #[must_use]
    pub fn multiply(self, other: Self) -> Self {
        self.checked_multiply(other).unwrap_or_else(|| N::Double(self.integer() as f64 * other.integer() as f64))
    }

    /// Returns the sum, as `$inc` adds: an int overflows into a long; none if a long overflows.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.combine(other, i64::checked_add, |a, b| a + b, Decimal::add)
    }

    /// Returns the difference; none if a long overflows.
    pub fn checked_subtract(self, other: Self) -> Option<Self> {
        self.combine(other, i64::checked_sub, |a, b| a - b, Decimal::subtract)
    }

    /// Returns the product, as `$mul` multiplies: an int overflows into a long; none if a long overflows.
    pub fn checked_multiply(self, other: Self) -> Option<Self> {
        self.combine(other, i64::checked_mul, |a, b| a * b, Decimal::multiply)
    }

    /// Returns the quotient: a decimal if either is one, else a double. None if the divisor is zero.
    pub fn divide(self, other: Self) -> Option<Self> {
        if other.is_zero() {
            return None;
        }
        Some(match (self, other) {
            (N::Decimal(_), _) | (_, N::Decimal(_)) => N::Decimal(self.to_decimal().divide(other.to_decimal())),
            _ => N::Double(self.to_f64() / other.to_f64()),
        })
    }

    /// Returns the remainder of the division whose quotient is cut towards zero, with the dividend's sign and the widest type.
    /// `None` if the divisor is zero.
    pub fn remainder(self, other: Self) -> Option<Self> {
        if other.is_zero() {
            return None;
        }
        // The only overflow, the smallest long by -1, has the remainder 0.
        self.combine(other, |a, b| Some(a.checked_rem(b).unwrap_or(0)), |a, b| a % b, Decimal::remainder)
    }

    fn combine(
        self,
        other: Self,
        integers: impl Fn(i64, i64) -> Option<i64>,
        doubles: impl Fn(f64, f64) -> f64,
        decimals: impl Fn(Decimal, Decimal) -> Decimal,
    ) -> Option<Self> {
        Some(match (self, other) {
            (N::Decimal(_), _) | (_, N::Decimal(_)) => N::Decimal(decimals(self.to_decimal(), other.to_decimal())),
            (N::Double(_), _) | (_, N::Double(_)) => N::Double(doubles(self.to_f64(), other.to_f64())),
            (N::Int(a), N::Int(b)) => {
                let result = integers(i64::from(a), i64::from(b))?;
                i32::try_from(result).map_or(N::Long(result), N::Int)
            }
            _ => N::Long(integers(self.integer(), other.integer())?),
        })
    }

    /// Returns the value of an int or a long; other types do not get here.
    fn integer(self) -> i64 {
        match self {
            N::Int(value) => i64::from(value),
            N::Long(value) => value,
            N::Double(_) | N::Decimal(_) => 0,
        }
    }

    /// Returns the number with the other sign. The smallest int becomes a long, the smallest long a double.
    #[must_use]
    pub fn negate(self) -> Self {
        match self {
            N::Int(value) => value.checked_neg().map_or_else(|| N::Long(-i64::from(value)), N::Int),
            N::Long(value) => value.checked_neg().map_or_else(|| N::Double(-(value as f64)), N::Long),
            N::Double(value) => N::Double(-value),
            N::Decimal(value) => N::Decimal(value.negate()),
        }
    }

    /// Tells whether it is zero of either sign.
    pub fn is_zero(self) -> bool {
        match self {
            N::Int(value) => value == 0,
            N::Long(value) => value == 0,
            N::Double(value) => value == 0.0,
            N::Decimal(value) => value.is_zero(),
        }
    }

    /// Tells whether it is not a number.
    pub fn is_nan(self) -> bool {
        match self {
            N::Int(_) | N::Long(_) => false,
            N::Double(value) => value.is_nan(),
            N::Decimal(value) => value.is_nan(),
        }
    }

    /// Tells whether it is neither infinite nor NaN.
    pub fn is_finite(self) -> bool {
        match self {
            N::Int(_) | N::Long(_) => true,
            N::Double(value) => value.is_finite(),
            N::Decimal(value) => value.is_finite(),
        }
    }

    /// Tells whether it is less than zero.
    pub fn is_negative(self) -> bool {
        match self {
            N::Int(value) => value < 0,
            N::Long(value) => value < 0,
            N::Double(value) => value < 0.0,
            N::Decimal(value) => value.is_negative() && !value.is_zero(),
        }
    }

    /// Returns the nearest double.
    pub fn to_f64(self) -> f64 {
        match self {
            N::Int(value) => f64::from(value),
            N::Long(value) => value as f64,
            N::Double(value) => value,
            N::Decimal(value) => value.to_f64(),
        }
    }

    /// Returns the decimal: exact for integers, 15 digits of a double (see [`Decimal::from_f64`]).
    pub fn to_decimal(self) -> Decimal {
        match self {
            N::Int(value) => Decimal::from(value),
            N::Long(value) => Decimal::from(value),
            N::Double(value) => Decimal::from_f64(value),
            N::Decimal(value) => value,
        }
    }

    /// Returns the integer, if it is one and fits: `5`, `5.0` and `NumberDecimal("5.00")` are.
    pub fn to_i64_exact(self) -> Option<i64> {
        match self {
            N::Int(value) => Some(i64::from(value)),
            N::Long(value) => Some(value),
            N::Double(value) => exact::double_to_i64(value).filter(|_| value.fract() == 0.0),
            N::Decimal(value) => value.to_i64_exact(),
        }
    }

    /// Returns the integer after cutting towards zero; none if it is infinite, NaN or does not fit.
    pub fn to_i64_truncated(self) -> Option<i64> {
        match self {
            N::Int(value) => Some(i64::from(value)),
            N::Long(value) => Some(value),
            N::Double(value) => exact::double_to_i64(value),
            N::Decimal(value) => value.to_i64(Rounding::Truncate),
        }
    }
}

impl From<Number> for RawBson {
    fn from(number: Number) -> Self {
        RawBson::from(number.to_bson())
    }
}

#[cfg(test)]
pub(crate) mod tests;
