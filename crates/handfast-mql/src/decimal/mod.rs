//! Decimal128: decimal floating point with 34 digits (IEEE 754-2008), as BSON stores it.
//!
//! A finite value is `sign * coefficient * 10^exponent` with a coefficient below 10^34 and an exponent from -6176 to
//! 6111. `1`, `1.0` and `1.00` are the same number in different forms (a *cohort*); arithmetic keeps the form as
//! IEEE 754 asks: `1.10 + 2.20` is `3.30`.
//!
//! Every operation first computes its exact result as a coefficient, an exponent and a flag for a smaller remainder; then
//! the function `finish` rounds it, half to even, to the format. 256 bits hold every exact coefficient: a product has at
//! most 68 digits, a sum at most 73, as operands that are too far apart are handled before.
//!
//! `bson` stores the 16 bytes in the binary integer encoding (BID) and converts them from and to text, but does not
//! calculate. Source of the encoding and of the text form: the BSON Decimal128 specification.

mod convert;
mod exponential;
mod wide;

use std::cmp::Ordering;

use bson::Decimal128;

use wide::U256;

/// The largest number of digits of a coefficient.
pub const DIGITS_MAX: u32 = 34;
/// The largest coefficient: 34 nines.
pub const COEFFICIENT_MAX: u128 = 10_u128.pow(DIGITS_MAX) - 1;
/// The smallest exponent.
pub const EXPONENT_MIN: i32 = -6176;
/// The largest exponent.
pub const EXPONENT_MAX: i32 = 6111;
const BIAS: i32 = 6176;
const SIGN_BIT: u128 = 1 << 127;
const INFINITY_BITS: u128 = 0b11110 << 122;
const NAN_BITS: u128 = 0b11111 << 122;

/// The parts of a decimal number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decimal {
    /// `coefficient * 10^exponent`, negated if `negative`. Negative zero exists. Made by [`Decimal::new`] only, which keeps the bounds.
    #[non_exhaustive]
    Finite {
        /// Whether the number is less than zero, or negative zero.
        negative: bool,
        /// The digits, at most [`COEFFICIENT_MAX`].
        coefficient: u128,
        /// The power of ten, from [`EXPONENT_MIN`] to [`EXPONENT_MAX`].
        exponent: i32,
    },
    /// Plus or minus infinity.
    Infinity {
        /// Whether it is minus infinity.
        negative: bool,
    },
    /// NaN: not a number. Sign, payload and signalling of a stored NaN are not kept.
    NaN,
}

impl Decimal {
    /// The number zero with exponent 0.
    pub const ZERO: Decimal = Decimal::finite(false, 0, 0);
    /// The number one with exponent 0.
    pub const ONE: Decimal = Decimal::finite(false, 1, 0);

    const fn finite(negative: bool, coefficient: u128, exponent: i32) -> Self {
        Decimal::Finite { negative, coefficient, exponent }
    }

    /// Reads the stored form. A coefficient beyond 34 digits is zero, as IEEE 754 says.
    pub fn decode(stored: Decimal128) -> Self {
        let bits = u128::from_le_bytes(stored.bytes());
        let negative = bits & SIGN_BIT != 0;
        if bits & NAN_BITS == NAN_BITS {
            return Decimal::NaN;
        }
        if bits & NAN_BITS == INFINITY_BITS {
            return Decimal::Infinity { negative };
        }
        // Two leading ones mark the long form, whose coefficients all exceed 34 digits and therefore count as zero.
        let long = bits >> 125 & 0b11 == 0b11;
        let (exponent, coefficient) =
            if long { (bits >> 111 & 0x3fff, 0) } else { (bits >> 113 & 0x3fff, bits & ((1 << 113) - 1)) };
        let coefficient = if coefficient > COEFFICIENT_MAX { 0 } else { coefficient };
        Decimal::finite(negative, coefficient, exponent as i32 - BIAS)
    }

    /// Returns the stored form.
    pub fn encode(self) -> Decimal128 {
        let (negative, bits) = match self {
            Decimal::NaN => (false, NAN_BITS),
            Decimal::Infinity { negative } => (negative, INFINITY_BITS),
            Decimal::Finite { negative, coefficient, exponent } => {
                (negative, ((exponent + BIAS) as u128) << 113 | coefficient)
            }
        };
        Decimal128::from_bytes((bits | if negative { SIGN_BIT } else { 0 }).to_le_bytes())
    }

    /// Creates `coefficient * 10^exponent`, rounded into the format: to 34 digits half to even, to infinity or towards zero
    /// beyond the exponents.
    pub fn new(negative: bool, coefficient: u128, exponent: i32) -> Self {
        finish(negative, U256::new(coefficient), exponent, false)
    }

    /// Tells whether it is not a number.
    pub fn is_nan(self) -> bool {
        self == Decimal::NaN
    }

    /// Tells whether it is plus or minus infinity.
    pub fn is_infinite(self) -> bool {
        matches!(self, Decimal::Infinity { .. })
    }

    /// Tells whether it is neither infinite nor NaN.
    pub fn is_finite(self) -> bool {
        matches!(self, Decimal::Finite { .. })
    }

    /// Tells whether it is zero of either sign.
    pub fn is_zero(self) -> bool {
        matches!(self, Decimal::Finite { coefficient: 0, .. })
    }

    /// Tells whether it has a minus sign: less than zero, minus zero or minus infinity.
    pub fn is_negative(self) -> bool {
        matches!(self, Decimal::Finite { negative: true, .. } | Decimal::Infinity { negative: true })
    }

    /// Returns the number with the other sign.
    #[must_use]
    pub fn negate(self) -> Self {
        match self {
            Decimal::Finite { negative, coefficient, exponent } => Decimal::finite(!negative, coefficient, exponent),
            Decimal::Infinity { negative } => Decimal::Infinity { negative: !negative },
            Decimal::NaN => Decimal::NaN,
        }
    }

    /// Returns the number without its sign.
    #[must_use]
    pub fn absolute(self) -> Self {
        if self.is_negative() { self.negate() } else { self }
    }

    /// Compares by value: NaN equals itself and comes first, cohorts and the zeros are equal.
    pub fn compare(self, other: Self) -> Ordering {
        self.class().cmp(&other.class()).then_with(|| match (self, other) {
            (
                Decimal::Finite { negative, coefficient: a, exponent: a_exponent },
                Decimal::Finite { negative: b_negative, coefficient: b, exponent: b_exponent },
            ) if a != 0 && b != 0 => {
                let a = Finite { negative, coefficient: a, exponent: a_exponent };
                let b = Finite { negative: b_negative, coefficient: b, exponent: b_exponent };
                let order = compare_magnitudes(a, b);
                if negative { order.reverse() } else { order }
            }
            _ => Ordering::Equal,
        })
    }

    /// Returns the rank of NaN, minus infinity, numbers below zero, zero, numbers above zero, infinity: in this order.
    fn class(self) -> u8 {
        match self {
            Decimal::NaN => 0,
            Decimal::Infinity { negative: true } => 1,
            Decimal::Finite { coefficient: 0, .. } => 3,
            Decimal::Finite { negative: true, .. } => 2,
            Decimal::Finite { negative: false, .. } => 4,
            Decimal::Infinity { negative: false } => 5,
        }
    }

    /// Returns the sum.
    #[must_use]
    #[expect(
        clippy::should_implement_trait,
        reason = "one family of named operations; operators would hide the rounding"
    )]
    pub fn add(self, other: Self) -> Self {
        match (self, other) {
            (Decimal::NaN, _) | (_, Decimal::NaN) => Decimal::NaN,
            (Decimal::Infinity { negative: a }, Decimal::Infinity { negative: b }) if a != b => Decimal::NaN,
            (infinity @ Decimal::Infinity { .. }, _) | (_, infinity @ Decimal::Infinity { .. }) => infinity,
            (
                Decimal::Finite { negative, coefficient, exponent },
                Decimal::Finite { negative: other_negative, coefficient: other_coefficient, exponent: other_exponent },
            ) => add_finite(
                Finite { negative, coefficient, exponent },
                Finite { negative: other_negative, coefficient: other_coefficient, exponent: other_exponent },
            ),
        }
    }

    /// Returns the difference.
    #[must_use]
    pub fn subtract(self, other: Self) -> Self {
        self.add(other.negate())
    }

    /// Returns the product.
    #[must_use]
    pub fn multiply(self, other: Self) -> Self {
        let negative = self.is_negative() != other.is_negative();
        match (self, other) {
            (Decimal::NaN, _) | (_, Decimal::NaN) => Decimal::NaN,
            (
                Decimal::Finite { coefficient: a, exponent: a_exponent, .. },
                Decimal::Finite { coefficient: b, exponent: b_exponent, .. },
            ) => finish(negative, U256::product(a, b), a_exponent + b_exponent, false),
            // Infinity times zero has no value.
            _ if self.is_zero() || other.is_zero() => Decimal::NaN,
            _ => Decimal::Infinity { negative },
        }
    }

    /// Returns the quotient: infinite if only the divisor is zero, NaN if both are.
    #[must_use]
    pub fn divide(self, other: Self) -> Self {
        let negative = self.is_negative() != other.is_negative();
        match (self, other) {
            (Decimal::NaN, _) | (_, Decimal::NaN) | (Decimal::Infinity { .. }, Decimal::Infinity { .. }) => {
                Decimal::NaN
            }
            (Decimal::Infinity { .. }, _) => Decimal::Infinity { negative },
            (_, Decimal::Infinity { .. }) => finish(negative, U256::new(0), EXPONENT_MIN, false),
            (Decimal::Finite { coefficient: 0, .. }, Decimal::Finite { coefficient: 0, .. }) => Decimal::NaN,
            (_, Decimal::Finite { coefficient: 0, .. }) => Decimal::Infinity { negative },
            (
                Decimal::Finite { coefficient: a, exponent: a_exponent, .. },
                Decimal::Finite { coefficient: b, exponent: b_exponent, .. },
            ) => {
                // Long division, digit by digit: the rest stays below b < 10^34, so ten times the rest fits easily.
                let (mut quotient, mut rest, mut exponent) = (a / b, a % b, a_exponent - b_exponent);
                while rest != 0 && quotient <= COEFFICIENT_MAX {
                    rest *= 10;
                    quotient = quotient * 10 + rest / b;
                    rest %= b;
                    exponent -= 1;
                }
                finish(negative, U256::new(quotient), exponent, rest != 0)
            }
        }
    }

    /// Returns the remainder of a division whose quotient is cut towards zero; it has the dividend's sign. It is NaN if the dividend is
    /// infinite or the divisor zero.
    #[must_use]
    pub fn remainder(self, other: Self) -> Self {
        match (self, other) {
            (Decimal::NaN, _) | (_, Decimal::NaN) | (Decimal::Infinity { .. }, _) => Decimal::NaN,
            (_, Decimal::Infinity { .. }) => self,
            (_, Decimal::Finite { coefficient: 0, .. }) => Decimal::NaN,
            (
                Decimal::Finite { negative, coefficient: a, exponent: a_exponent },
                Decimal::Finite { coefficient: b, exponent: b_exponent, .. },
            ) => {
                let exponent = a_exponent.min(b_exponent);
                if a_exponent < b_exponent {
                    // A divisor that does not fit even here is greater than the dividend.
                    let scale = 10_u128.checked_pow((b_exponent - a_exponent) as u32);
                    let divisor = scale.and_then(|scale| b.checked_mul(scale));
                    return Decimal::finite(negative, divisor.map_or(a, |divisor| a % divisor), exponent);
                }
                // At most 12,287 steps: the span of the exponents.
                let mut rest = a % b;
                for _ in b_exponent..a_exponent {
                    if rest == 0 {
                        break;
                    }
                    rest = rest * 10 % b;
                }
                Decimal::finite(negative, rest, exponent)
            }
        }
    }

    /// Rounds to a multiple of `10^-places`; a value that needs no rounding stays as it is.
    #[must_use]
    pub fn round(self, places: i32, rounding: Rounding) -> Self {
        let Decimal::Finite { negative, coefficient, exponent } = self else { return self };
        let drop = 0_i32.saturating_sub(places).saturating_sub(exponent);
        if drop <= 0 {
            return self;
        }
        let rounded = shrink(U256::new(coefficient), drop as u32, false, rounding, negative);
        finish(negative, rounded, exponent.saturating_add(drop), false)
    }

    /// Rounds to a whole number with the exponent 0, as IEEE 754's `quantize` does: it is NaN for an infinity, and for a number with more than 34
    /// digits before the point.
    #[must_use]
    pub fn to_whole(self, rounding: Rounding) -> Self {
        match self.round(0, rounding) {
            Decimal::Finite { negative, coefficient: 0, .. } => Decimal::finite(negative, 0, 0),
            Decimal::Finite { negative, coefficient, exponent }
                if digits(coefficient).saturating_add(exponent) <= DIGITS_MAX as i32 =>
            {
                // Rounding leaves no negative exponent.
                Decimal::finite(negative, coefficient * 10_u128.pow(exponent as u32), 0)
            }
            _ => Decimal::NaN,
        }
    }

    /// Removes trailing zeros: returns the member of the cohort with the shortest coefficient; zero gets exponent 0.
    #[must_use]
    pub fn normalize(self) -> Self {
        match self {
            Decimal::Finite { negative, coefficient: 0, .. } => Decimal::finite(negative, 0, 0),
            Decimal::Finite { negative, mut coefficient, mut exponent } => {
                while coefficient % 10 == 0 && exponent < EXPONENT_MAX {
                    coefficient /= 10;
                    exponent += 1;
                }
                Decimal::finite(negative, coefficient, exponent)
            }
            other => other,
        }
    }
}

/// The direction of rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// Rounds to the nearest; a half to the even neighbour.
    HalfEven,
    /// Rounds towards zero.
    Truncate,
    /// Rounds towards minus infinity.
    Floor,
    /// Rounds towards plus infinity.
    Ceiling,
}

fn digits(coefficient: u128) -> i32 {
    coefficient.checked_ilog10().map_or(1, |log| log as i32 + 1)
}

/// The parts of a [`Decimal::Finite`].
#[derive(Clone, Copy)]
struct Finite {
    negative: bool,
    coefficient: u128,
    exponent: i32,
}

/// Compares two magnitudes that are not zero.
fn compare_magnitudes(a: Finite, b: Finite) -> Ordering {
    // The place of the first digit decides, unless it is the same: then the exponents differ by less than 34, and the
    // coefficient with the larger exponent can be written with the smaller one, within 34 digits.
    let magnitude = |number: Finite| digits(number.coefficient) + number.exponent;
    magnitude(a).cmp(&magnitude(b)).then_with(|| {
        let common = a.exponent.min(b.exponent);
        let scale = |number: Finite| number.coefficient * 10_u128.pow((number.exponent - common) as u32);
        scale(a).cmp(&scale(b))
    })
}

fn add_finite(a: Finite, b: Finite) -> Decimal {
    let (large, small) = if a.exponent >= b.exponent { (a, b) } else { (b, a) };
    let (mut distance, mut coefficient) = ((large.exponent - small.exponent) as u32, large.coefficient);
    let zero_negative = large.negative && small.negative;
    if coefficient == 0 && small.coefficient == 0 {
        return finish(zero_negative, U256::new(0), small.exponent, false);
    }
    if coefficient == 0 {
        return Decimal::finite(small.negative, small.coefficient, small.exponent);
    }
    // As many digits as the format has, so that what is smaller by more than 38 digits cannot change the rounding: it is
    // below 10^-5 of the last digit (and below half of it even where subtraction moves 10^33 down by one digit).
    let padding = ((DIGITS_MAX as i32 - digits(coefficient)) as u32).min(distance);
    coefficient *= 10_u128.pow(padding);
    distance -= padding;
    if distance > 38 {
        return finish(large.negative, U256::new(coefficient), small.exponent + distance as i32, false);
    }
    let (left, right) = (U256::product(coefficient, 10_u128.pow(distance)), U256::new(small.coefficient));
    if large.negative == small.negative {
        return finish(large.negative, left.plus(right), small.exponent, false);
    }
    match left.cmp(&right) {
        Ordering::Equal => finish(false, U256::new(0), small.exponent, false),
        Ordering::Greater => finish(large.negative, left.minus(right), small.exponent, false),
        Ordering::Less => finish(small.negative, right.minus(left), small.exponent, false),
    }
}

/// Rounds an exact result into the format. `sticky` tells whether the true value is slightly larger than the coefficient.
fn finish(negative: bool, coefficient: U256, exponent: i32, sticky: bool) -> Decimal {
    let excess = coefficient.digits() as i32 - DIGITS_MAX as i32;
    let drop = excess.max(EXPONENT_MIN - exponent).max(0);
    let rounded = shrink(coefficient, drop as u32, sticky, Rounding::HalfEven, negative);
    // Dropping down to 34 digits leaves less than 2^128.
    let mut coefficient = rounded.to_u128().unwrap_or(0);
    let mut exponent = exponent + drop;
    if coefficient > COEFFICIENT_MAX {
        // 34 nines and a half, rounded up.
        coefficient /= 10;
        exponent += 1;
    }
    if exponent > EXPONENT_MAX {
        if coefficient == 0 {
            exponent = EXPONENT_MAX;
        } else {
            let padding = exponent - EXPONENT_MAX;
            if padding > DIGITS_MAX as i32 - digits(coefficient) {
                return Decimal::Infinity { negative };
            }
            coefficient *= 10_u128.pow(padding as u32);
            exponent = EXPONENT_MAX;
        }
    }
    Decimal::finite(negative, coefficient, exponent)
}

/// Drops the last `count` digits.
fn shrink(mut value: U256, count: u32, mut sticky: bool, rounding: Rounding, negative: bool) -> U256 {
    const CHUNK: u32 = 19;
    let mut digit = 0;
    if count > 0 {
        // The dropped digits before the last one matter only in whether they are all zero.
        let mut left = count - 1;
        while left > 0 && !value.is_zero() {
            let step = left.min(CHUNK);
            let (quotient, rest) = value.div_rem(10_u64.pow(step));
            value = quotient;
            sticky |= rest != 0;
            left -= step;
        }
        (value, digit) = value.div_rem(10);
    }
    let up = match rounding {
        // Without dropped digits, the excess that `sticky` marks is less than half a unit.
        Rounding::HalfEven => digit > 5 || digit == 5 && (sticky || value.is_odd()),
        Rounding::Truncate => false,
        Rounding::Floor => negative && (digit > 0 || sticky),
        Rounding::Ceiling => !negative && (digit > 0 || sticky),
    };
    if up { value.plus(U256::new(1)) } else { value }
}

#[cfg(test)]
pub(crate) mod tests;
