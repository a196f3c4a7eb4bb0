//! The keys of numbers: one order over four types, without rounding.
//!
//! The double nearest to the number on the side of zero comes first; it is the number itself for every int, every double
//! and most longs. Where it is not, the exact decimal digits follow, which order all numbers between that double and the
//! next. A long has at most 19 digits and a decimal at most 34, so that this is short and always exact.

use std::cmp::Ordering;

use bson::RawBsonRef;

use super::{TypeBitsSink, invert, kind, tag};
use crate::{decimal::Decimal, number::Number};

/// The double is exactly the number.
pub(super) const EXACT: u8 = 0;
/// An exponent and digits follow.
pub(super) const DIGITS: u8 = 1;
/// The largest long up to which all longs, positive and negative, are exact as doubles, which have 53 bits.
const EXACT_LONG_MAX: u64 = 1 << 53;
/// The number that is added to the exponent of the digits, so that it is never negative: decimals go down to 10^-6176.
const EXPONENT_BIAS: i32 = 8192;

pub(super) fn append(value: RawBsonRef<'_>, out: &mut Vec<u8>, bits: &mut impl TypeBitsSink) {
    let Some(number) = Number::of(value) else { return };
    append_kind(value, number, bits);
    if is_nan(number) {
        out.push(tag::NAN);
        return;
    }
    match number.compare(&Number::Int(0)) {
        Ordering::Equal => out.push(tag::ZERO),
        Ordering::Greater => {
            out.push(tag::POSITIVE);
            append_magnitude(number, out);
        }
        Ordering::Less => {
            out.push(tag::NEGATIVE);
            let start = out.len();
            append_magnitude(number, out);
            invert(out.get_mut(start..).unwrap_or_default());
        }
    }
}

fn append_kind(value: RawBsonRef<'_>, number: Number, bits: &mut impl TypeBitsSink) {
    match (value, number) {
        (RawBsonRef::Decimal128(stored), _) => {
            bits.push_bits(&[kind::DECIMAL]);
            bits.push_bits(&stored.bytes());
        }
        (_, Number::Double(double)) if double.is_nan() => {
            bits.push_bits(&[kind::DOUBLE_BITS]);
            bits.push_bits(&double.to_bits().to_be_bytes());
        }
        (_, Number::Double(double)) if double == 0.0 && double.is_sign_negative() => {
            bits.push_bits(&[kind::NEGATIVE_ZERO]);
        }
        (_, Number::Double(_)) => bits.push_bits(&[kind::DOUBLE]),
        (_, Number::Long(_)) => bits.push_bits(&[kind::LONG]),
        _ => bits.push_bits(&[kind::INT]),
    }
}

fn is_nan(number: Number) -> bool {
    match number {
        Number::Double(value) => value.is_nan(),
        Number::Decimal(value) => value.is_nan(),
        Number::Int(_) | Number::Long(_) => false,
    }
}

fn append_magnitude(number: Number, out: &mut Vec<u8>) {
    // Doubles and ints convert exactly; the others may have been rounded, up or down.
    let (double, digits) = match number {
        Number::Int(value) => (f64::from(value).abs(), None),
        Number::Double(value) => (value.abs(), None),
        Number::Long(value) if value.unsigned_abs() <= EXACT_LONG_MAX => ((value as f64).abs(), None),
        Number::Long(value) => floor((value as f64).abs(), value.unsigned_abs().into(), 0),
        Number::Decimal(Decimal::Finite { coefficient, exponent, .. }) => {
            let Number::Decimal(decimal) = number else { return };
            floor(decimal.to_f64().abs(), coefficient, exponent)
        }
        Number::Decimal(_) => (f64::INFINITY, None),
    };
    out.extend_from_slice(&double.to_bits().to_be_bytes());
    match digits {
        None => out.push(EXACT),
        Some((coefficient, exponent)) => {
            out.push(DIGITS);
            append_digits(coefficient, exponent, out);
        }
    }
}

/// Returns the largest double not above `coefficient * 10^exponent`, given the nearest one, and the number's digits if
/// that double is not the number.
fn floor(nearest: f64, coefficient: u128, exponent: i32) -> (f64, Option<(u128, i32)>) {
    let exact = Number::Decimal(Decimal::new(false, coefficient, exponent));
    let double = match Number::Double(nearest).compare(&exact) {
        Ordering::Equal => return (nearest, None),
        Ordering::Less => nearest,
        Ordering::Greater => f64::from_bits(nearest.to_bits().saturating_sub(1)),
    };
    (double, Some((coefficient, exponent)))
}

/// Appends `0.d1d2d3.. * 10^e`, with `d1` not zero: the exponent, then the digits without zeros at the end. Each digit is
/// stored plus one, so that the closing zero is below all of them.
fn append_digits(coefficient: u128, exponent: i32, out: &mut Vec<u8>) {
    let digits = coefficient.to_string();
    let point = exponent + digits.len() as i32;
    out.extend_from_slice(&((point + EXPONENT_BIAS) as u16).to_be_bytes());
    out.extend(digits.trim_end_matches('0').bytes().map(|digit| digit - b'0' + 1));
    out.push(0);
}

pub(super) fn unbias(stored: u16) -> i32 {
    i32::from(stored) - EXPONENT_BIAS
}
