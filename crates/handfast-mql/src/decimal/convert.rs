//! Decimals from and to text, doubles and integers.

use std::{fmt, str::FromStr};

use super::{Decimal, Rounding, finish, wide::U256};
use crate::{Code, Error, Result};

impl From<i64> for Decimal {
    fn from(value: i64) -> Self {
        Decimal::finite(value < 0, u128::from(value.unsigned_abs()), 0)
    }
}

impl From<i32> for Decimal {
    fn from(value: i32) -> Self {
        Decimal::from(i64::from(value))
    }
}

impl Decimal {
    /// Converts a double, rounded to 15 significant digits: the digits it was typed with, if it was typed with 15
    /// digits or less. MongoDB converts so wherever a double meets a decimal (`NumberDecimal(1000.55)` is documented to
    /// give `1000.55000000000`, not the 1000.549999999999954525 that the double stores).
    pub fn from_f64(value: f64) -> Self {
        Self::from_f64_with_digits(value, 15)
    }

    /// Converts a double, rounded to the 34 digits of the format.
    pub fn from_f64_all_digits(value: f64) -> Self {
        Self::from_f64_with_digits(value, 34)
    }

    fn from_f64_with_digits(value: f64, digits: usize) -> Self {
        if value.is_nan() {
            return Decimal::NaN;
        }
        if value.is_infinite() {
            return Decimal::Infinity { negative: value < 0.0 };
        }
        if value == 0.0 {
            return Decimal::finite(value.is_sign_negative(), 0, 0);
        }
        // The standard library's text form is exact in any number of digits.
        format!("{value:.*e}", digits - 1).parse().unwrap_or(Decimal::NaN)
    }

    /// Returns the nearest double: infinite or zero beyond its range.
    pub fn to_f64(self) -> f64 {
        match self {
            Decimal::NaN => f64::NAN,
            Decimal::Infinity { negative: false } => f64::INFINITY,
            Decimal::Infinity { negative: true } => f64::NEG_INFINITY,
            Decimal::Finite { negative, coefficient, exponent } => {
                // The standard library reads text correctly rounded.
                let sign = if negative { "-" } else { "" };
                format!("{sign}{coefficient}e{exponent}").parse().unwrap_or(f64::NAN)
            }
        }
    }

    /// Returns the integer, rounded in the given way; none if it is infinite, NaN or out of range.
    pub fn to_i64(self, rounding: Rounding) -> Option<i64> {
        match self.round(0, rounding).normalize() {
            Decimal::Finite { negative, coefficient, exponent } => {
                let magnitude = coefficient.checked_mul(10_u128.checked_pow(u32::try_from(exponent).ok()?)?)?;
                let magnitude = i128::try_from(magnitude).ok()?;
                i64::try_from(if negative { -magnitude } else { magnitude }).ok()
            }
            _ => None,
        }
    }

    /// Returns the integer, if it is one and in range.
    pub fn to_i64_exact(self) -> Option<i64> {
        self.to_i64(Rounding::Truncate).filter(|integer| self.compare(Decimal::from(*integer)).is_eq())
    }
}

/// The text form of the BSON Decimal128 specification: `1.5`, `-0`, `1E+3`, `1.05E-9`, `Infinity`, `NaN`.
impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (negative, coefficient, exponent) = match *self {
            Decimal::NaN => return f.write_str("NaN"),
            Decimal::Infinity { negative } => return f.write_str(if negative { "-Infinity" } else { "Infinity" }),
            Decimal::Finite { negative, coefficient, exponent } => (negative, coefficient, exponent),
        };
        if negative {
            f.write_str("-")?;
        }
        let digits = coefficient.to_string();
        let adjusted = exponent + digits.len() as i32 - 1;
        if exponent > 0 || adjusted < -6 {
            let (first, rest) = digits.split_at(1);
            f.write_str(first)?;
            if !rest.is_empty() {
                write!(f, ".{rest}")?;
            }
            return write!(f, "E{adjusted:+}");
        }
        let places = exponent.unsigned_abs() as usize;
        if places == 0 {
            return f.write_str(&digits);
        }
        // At least one digit before the point.
        let digits = format!("{digits:0>width$}", width = places + 1);
        let (whole, fraction) = digits.split_at(digits.len() - places);
        write!(f, "{whole}.{fraction}")
    }
}

/// Reads decimal text: digits with at most one point, an optional exponent, or `inf`, `infinity`, `nan` in any case.
/// More than 34 digits are rounded, half to even.
impl FromStr for Decimal {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let invalid = || Error::new(Code::BadValue, format!("not a decimal number: '{text}'"));
        let (negative, unsigned) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        if ["inf", "infinity"].iter().any(|name| unsigned.eq_ignore_ascii_case(name)) {
            return Ok(Decimal::Infinity { negative });
        }
        if unsigned.eq_ignore_ascii_case("nan") {
            return Ok(Decimal::NaN);
        }
        let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, parse_exponent(exponent).ok_or_else(invalid)?),
            None => (unsigned, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        if whole.is_empty() && fraction.is_empty() {
            return Err(invalid());
        }
        let mut coefficient = 0_u128;
        // The power of ten of the digits that are left out.
        let mut left_out = 0_i64;
        let mut sticky = false;
        for byte in whole.bytes().chain(fraction.bytes()) {
            if !byte.is_ascii_digit() {
                return Err(invalid());
            }
            let digit = u128::from(byte - b'0');
            // 36 digits are enough for rounding; of the others it matters only whether they are zero.
            if coefficient < 10_u128.pow(36) {
                coefficient = coefficient * 10 + digit;
            } else {
                left_out += 1;
                sticky |= digit != 0;
            }
        }
        let exponent = exponent.saturating_add(left_out).saturating_sub(fraction.len() as i64);
        // Far beyond the format on both sides, and far from overflow.
        let exponent = exponent.clamp(-20_000, 20_000) as i32;
        Ok(finish(negative, U256::new(coefficient), exponent, sticky))
    }
}

fn parse_exponent(text: &str) -> Option<i64> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // An exponent of more digits than can be read is out of range anyway.
    let exponent =
        digits.bytes().fold(0_i64, |sum, byte| sum.saturating_mul(10).saturating_add(i64::from(byte - b'0')));
    Some(if negative { -exponent } else { exponent })
}
