//! The exponential function, rounded to the 34 digits of the format.
//!
//! ```text
//! e^x = 10^k * e^r      k whole, r = x - k * ln 10, 0 <= r < ln 10, so that 1 <= e^r < 10
//! e^r = 1 + r (1 + r/2 (1 + r/3 (..)))
//! ```
//!
//! Numbers are whole multiples of 10^-37. Each step rounds to half of that, and the steps inside are divided by their factorials, so
//! the error of e^r is less than 10 units: a hundredth of the 34th digit and less.

use super::{Decimal, EXPONENT_MIN, Rounding, finish, shrink, wide::U256};

/// The digits after the point.
const PLACES: i32 = 37;
/// The number one.
const ONE: u128 = 10_u128.pow(PLACES as u32);
/// ln 10, and its next ten digits.
const LN_10: u128 = 23_025_850_929_940_456_840_179_914_546_843_642_076;
const LN_10_REST: u128 = 110_148_863;
const REST_UNIT: u64 = 10_u64.pow(10);
/// The terms of the series: r^48 / 48! is less than 10^-43.
const TERMS: u64 = 48;
/// Beyond this, the result is infinite or zero: the largest decimal is e^14149, the smallest e^-14220.
const ARGUMENT_MAX: f64 = 15_000.0;

impl Decimal {
    /// Returns the power of e.
    #[must_use]
    pub fn exponential(self) -> Self {
        let (negative, coefficient, exponent) = match self {
            Decimal::NaN => return Decimal::NaN,
            Decimal::Infinity { negative: false } => return self,
            Decimal::Infinity { negative: true } => return Decimal::ZERO,
            Decimal::Finite { negative, coefficient, exponent } => (negative, coefficient, exponent),
        };
        if coefficient == 0 {
            return Decimal::ONE;
        }
        if self.to_f64().abs() > ARGUMENT_MAX {
            return if negative {
                finish(false, U256::new(0), EXPONENT_MIN, false)
            } else {
                Decimal::Infinity { negative: false }
            };
        }
        let magnitude = scaled(coefficient, exponent);
        if magnitude.is_zero() {
            return Decimal::ONE;
        }
        let (power_of_ten, rest) = reduced(negative, magnitude);
        Decimal::new(false, series(rest), power_of_ten - PLACES)
    }
}

/// Returns the multiple of 10^-37 for a magnitude below 10^5.
fn scaled(coefficient: u128, exponent: i32) -> U256 {
    let places = exponent + PLACES;
    if exponent >= 0 {
        U256::product(coefficient * 10_u128.pow(exponent as u32), ONE)
    } else if places >= 0 {
        U256::product(coefficient, 10_u128.pow(places as u32))
    } else {
        shrink(U256::new(coefficient), places.unsigned_abs(), false, Rounding::HalfEven, false)
    }
}

/// Returns k and r.
fn reduced(negative: bool, magnitude: U256) -> (i32, u128) {
    // The quotient may be one too small or too large where it is nearly whole.
    let estimate = to_f64(magnitude) / to_f64(U256::new(LN_10));
    let mut count = if negative { estimate.ceil() } else { estimate.floor() } as u32;
    loop {
        let multiple = multiple_of_ln_10(count);
        let rest = if negative {
            (multiple >= magnitude).then(|| multiple.minus(magnitude))
        } else {
            (magnitude >= multiple).then(|| magnitude.minus(multiple))
        };
        // Two multiples may be one unit further apart.
        let fits = rest.and_then(U256::to_u128).filter(|rest| *rest <= LN_10 + 1);
        match (fits, negative) {
            (Some(rest), false) => return (count as i32, rest),
            (Some(rest), true) => return (-(count as i32), rest),
            // Too few multiples lie below a positive number, or do not reach a negative one.
            (None, false) if rest.is_some() => count += 1,
            (None, true) if rest.is_none() => count += 1,
            _ => count = count.saturating_sub(1),
        }
    }
}

fn multiple_of_ln_10(count: u32) -> U256 {
    let count = u128::from(count);
    let (rest, _) = U256::new(LN_10_REST * count + u128::from(REST_UNIT) / 2).div_rem(REST_UNIT);
    U256::product(LN_10, count).plus(rest)
}

fn series(rest: u128) -> u128 {
    let mut sum = ONE;
    for term in (1..=TERMS).rev() {
        let half = U256::product(ONE / 2, u128::from(term));
        let product = U256::product(sum, rest).plus(half);
        // The quotient of a quotient is that by the product.
        let (quotient, _) = product.div_rem(10_u64.pow(18));
        let (quotient, _) = quotient.div_rem(10_u64.pow(19));
        let (quotient, _) = quotient.div_rem(term);
        sum = ONE + quotient.to_u128().unwrap_or(0);
    }
    sum
}

fn to_f64(value: U256) -> f64 {
    // Only magnitudes below 10^42 are converted.
    let (high, low) = value.div_rem(10_u64.pow(18));
    high.to_u128().unwrap_or(u128::MAX) as f64 * 1e18 + low as f64
}
