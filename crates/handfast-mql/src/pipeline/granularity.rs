//! `granularity` of `$bucketAuto`: the bounds of buckets are preferred numbers, such as 1, 2, 5, 10, 20, 50, ..
//!
//! A series has numbers from 1 up to 10, and those multiplied by each power of ten. Both roundings are strict: a preferred number is
//! rounded to its neighbour, so that a bound above a value is never the value itself.
//! Sources: ISO 3 (R5 to R80), IEC 60063 (E6 to E192).

use bson::{RawBson, RawBsonRef};

use crate::{
    decimal::Decimal,
    error::{Code, Error, Result},
    expression::value::{show, type_name},
    number::Number,
};

/// A series of preferred numbers.
#[derive(Clone, Debug)]
pub(super) enum Granularity {
    PowersOfTwo,
    /// The numbers from 1 up to 10, in hundredths.
    Series(Vec<u16>),
}

const R80: &[u16] = &[
    100, 103, 106, 109, 112, 115, 118, 122, 125, 128, 132, 136, 140, 145, 150, 155, 160, 165, 170, 175, 180, 185, 190,
    195, 200, 206, 212, 218, 224, 230, 236, 243, 250, 258, 265, 272, 280, 290, 300, 307, 315, 325, 335, 345, 355, 365,
    375, 387, 400, 412, 425, 437, 450, 462, 475, 487, 500, 515, 530, 545, 560, 580, 600, 615, 630, 650, 670, 690, 710,
    730, 750, 775, 800, 825, 850, 875, 900, 925, 950, 975,
];
const E24: &[u16] = &[
    100, 110, 120, 130, 150, 160, 180, 200, 220, 240, 270, 300, 330, 360, 390, 430, 470, 510, 560, 620, 680, 750, 820,
    910,
];
const E192_LEN: u16 = 192;
/// The number that IEC 60063 rounds in another way: 9.20 and not 9.19.
const E192_EXCEPTION: (u16, u16) = (185, 920);

impl Granularity {
    /// Reads the name of a series.
    ///
    /// # Errors
    /// 40261 for anything but a string, 40257 for an unknown name.
    pub(super) fn read(source: RawBsonRef<'_>) -> Result<Granularity> {
        let RawBsonRef::String(name) = source else {
            let text =
                format!("The $bucketAuto 'granularity' field must be a string, but found type: {}.", type_name(source));
            return Err(Error::new(Code(40_261), text));
        };
        let every = |series: &[u16], step: usize| Granularity::Series(series.iter().step_by(step).copied().collect());
        Ok(match name {
            "POWERSOF2" => Granularity::PowersOfTwo,
            "1-2-5" => Granularity::Series(vec![100, 200, 500]),
            "R5" => every(R80, 16),
            "R10" => every(R80, 8),
            "R20" => every(R80, 4),
            "R40" => every(R80, 2),
            "R80" => every(R80, 1),
            "E6" => every(E24, 4),
            "E12" => every(E24, 2),
            "E24" => every(E24, 1),
            "E48" => every(&e192(), 4),
            "E96" => every(&e192(), 2),
            "E192" => every(&e192(), 1),
            other => return Err(Error::new(Code(40_257), format!("Unknown rounding granularity '{other}'"))),
        })
    }

    /// Returns the least preferred number that is greater than a number. That of 0 is 0.
    pub(super) fn above(&self, number: Number) -> RawBson {
        self.round(number, true)
    }

    /// Returns the greatest preferred number that is less than a number. That of 0 is 0.
    pub(super) fn below(&self, number: Number) -> RawBson {
        self.round(number, false)
    }

    fn round(&self, number: Number, up: bool) -> RawBson {
        if number.is_zero() || !number.is_finite() {
            return match number {
                Number::Decimal(_) => RawBson::from(number),
                other => RawBson::Double(other.to_f64()),
            };
        }
        let is_beyond = |candidate: &Number| {
            let order = candidate.compare(&number);
            if up { order.is_gt() } else { order.is_lt() }
        };
        let is_decimal = matches!(number, Number::Decimal(_));
        let rounded = match self {
            Granularity::PowersOfTwo => {
                let power = number.to_f64().log2().floor() as i32;
                // The logarithm may be off by a little, and a neighbour of the power is meant.
                let mut candidates = (power - 2..=power + 2).map(|power| power_of_two(power, is_decimal));
                if up { candidates.find(is_beyond) } else { candidates.rev().find(is_beyond) }
            }
            Granularity::Series(series) => {
                let power = number.to_f64().log10().floor() as i32;
                let numbers =
                    |power: i32| series.iter().map(move |hundredths| preferred(*hundredths, power, is_decimal));
                let mut candidates = (power - 1..=power + 1).flat_map(numbers);
                if up { candidates.find(is_beyond) } else { candidates.take_while(is_beyond).last() }
            }
        };
        RawBson::from(rounded.unwrap_or(number))
    }
}

fn e192() -> Vec<u16> {
    let number = |index: u16| match E192_EXCEPTION {
        (exception, hundredths) if exception == index => hundredths,
        _ => (100.0 * 10_f64.powf(f64::from(index) / f64::from(E192_LEN))).round() as u16,
    };
    (0..E192_LEN).map(number).collect()
}

/// Returns `hundredths / 100 * 10^power`.
fn preferred(hundredths: u16, power: i32, is_decimal: bool) -> Number {
    let exponent = power - 2;
    if is_decimal {
        return Number::Decimal(Decimal::new(false, u128::from(hundredths), exponent).normalize());
    }
    // One operation on two exact numbers gives the nearest double.
    let scale = 10_f64.powi(exponent.abs());
    Number::Double(if exponent < 0 { f64::from(hundredths) / scale } else { f64::from(hundredths) * scale })
}

fn power_of_two(power: i32, is_decimal: bool) -> Number {
    if !is_decimal {
        return Number::Double(2_f64.powi(power));
    }
    let one = Decimal::ONE;
    let two = |factor: Decimal, _| factor.multiply(Decimal::from(2));
    let whole = (0..power.abs()).fold(one, two);
    Number::Decimal(if power < 0 { one.divide(whole) } else { whole })
}

/// Returns the value of `groupBy` as a number that can be rounded.
///
/// # Errors
/// 40258 for a value that is no number, 40259 for NaN, 40260 for a negative number.
pub(super) fn groupable(value: RawBsonRef<'_>) -> Result<Number> {
    let only = "$bucketAuto can specify a 'granularity' with numeric boundaries only, but found";
    let Some(number) = Number::of(value) else {
        return Err(Error::new(Code(40_258), format!("{only} a value with type: {}", type_name(value))));
    };
    if number.is_nan() {
        return Err(Error::new(Code(40_259), format!("{only} a NaN")));
    }
    if number.is_negative() {
        let text = format!(
            "$bucketAuto can specify a 'granularity' with non-negative numbers only, but found {}",
            show(value)
        );
        return Err(Error::new(Code(40_260), text));
    }
    Ok(number)
}
