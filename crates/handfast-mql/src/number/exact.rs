//! Comparisons across types without rounding.

use std::cmp::Ordering;

use crate::decimal::Decimal;

/// 2^63: the first double beyond the longs.
const LONG_END: f64 = 9_223_372_036_854_775_808.0;

/// Compares doubles, with `NaN` equal to itself and first, and the zeros equal.
pub(super) fn compare_doubles(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| b.is_nan().cmp(&a.is_nan()))
}

/// Returns the integer part, if it is in the range of longs.
pub(super) fn double_to_i64(value: f64) -> Option<i64> {
    (-LONG_END..LONG_END).contains(&value).then_some(value as i64)
}

pub(super) fn compare_double_integer(a: f64, b: i64) -> Ordering {
    match double_to_i64(a) {
        // In range the integer part is exact; if it is the same, the fraction decides.
        Some(whole) => whole.cmp(&b).then_with(|| compare_doubles(a.fract(), 0.0)),
        None if a >= LONG_END => Ordering::Greater,
        // Below the range, or NaN.
        None => Ordering::Less,
    }
}

pub(super) fn compare_double_decimal(a: f64, b: Decimal) -> Ordering {
    let Decimal::Finite { negative, coefficient, exponent } = b else {
        let b = match b {
            Decimal::Infinity { negative: false } => f64::INFINITY,
            Decimal::Infinity { negative: true } => f64::NEG_INFINITY,
            _ => f64::NAN,
        };
        return compare_doubles(a, b);
    };
    if !a.is_finite() || a == 0.0 || coefficient == 0 || negative != (a < 0.0) {
        // Sign, zero, infinity or NaN decide.
        let sign = if coefficient == 0 {
            0.0
        } else if negative {
            -1.0
        } else {
            1.0
        };
        return compare_doubles(a.clamp(-2.0, 2.0), sign);
    }
    let order = compare_magnitudes(a.abs(), coefficient, exponent);
    if negative { order.reverse() } else { order }
}

/// Compares a positive double with a positive decimal.
fn compare_magnitudes(a: f64, coefficient: u128, exponent: i32) -> Ordering {
    let (mantissa, power) = decompose(a);
    // If the logarithms of both, each known to less than one, are far apart, they decide. This limits the integers below.
    let a_log10 = f64::from(power) * std::f64::consts::LOG10_2 + (mantissa as f64).log10();
    let b_log10 = f64::from(exponent) + (coefficient as f64).log10();
    if (a_log10 - b_log10).abs() > 1.0 {
        return compare_doubles(a_log10, b_log10);
    }
    // mantissa * 2^power against coefficient * 10^exponent, with the negative powers moved to the other side.
    let mut left = Natural::new(u128::from(mantissa));
    let mut right = Natural::new(coefficient);
    let (twos, tens) = (power.unsigned_abs(), exponent.unsigned_abs());
    (if exponent < 0 { &mut left } else { &mut right }).multiply_by_power_of_ten(tens);
    (if power < 0 { &mut right } else { &mut left }).shift_left(twos);
    left.compare(&right)
}

/// Returns a positive finite double as `mantissa * 2^power`.
fn decompose(value: f64) -> (u64, i32) {
    let bits = value.to_bits();
    let (mantissa, exponent) = (bits & ((1 << 52) - 1), (bits >> 52 & 0x7ff) as i32);
    if exponent == 0 { (mantissa, -1074) } else { (mantissa | 1 << 52, exponent - 1075) }
}

/// 64-bit limbs of a [`Natural`].
///
/// The largest number that comes up, given that both sides are within a factor of ten before powers move: a mantissa of 53
/// bits times 10^358 (the smallest exponent of a decimal of 34 digits near the smallest double, 2^-1074): 1243 bits. The
/// other side, 113 bits shifted by 1074, has 1187.
const LIMBS: usize = 21;

/// A natural number of up to 1344 bits, on the stack.
struct Natural([u64; LIMBS]);

impl Natural {
    fn new(value: u128) -> Self {
        let mut limbs = [0; LIMBS];
        limbs[0] = value as u64;
        limbs[1] = (value >> 64) as u64;
        Natural(limbs)
    }

    fn multiply_by_power_of_ten(&mut self, mut power: u32) {
        const STEP: u32 = 19;
        while power > 0 {
            let step = power.min(STEP);
            self.multiply(10_u64.pow(step));
            power -= step;
        }
    }

    fn multiply(&mut self, factor: u64) {
        let mut carry = 0_u128;
        for limb in &mut self.0 {
            carry += u128::from(*limb) * u128::from(factor);
            *limb = carry as u64;
            carry >>= 64;
        }
        debug_assert_eq!(carry, 0, "bound of LIMBS");
    }

    fn shift_left(&mut self, mut bits: u32) {
        while bits > 0 {
            let step = bits.min(63);
            self.multiply(1 << step);
            bits -= step;
        }
    }

    fn compare(&self, other: &Self) -> Ordering {
        self.0.iter().rev().cmp(other.0.iter().rev())
    }
}
