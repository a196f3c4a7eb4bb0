//! `$ceil`, `$floor`, `$round`, `$trunc`.

use super::{as_value, number_of, one};
use crate::{
    decimal::{Decimal, Rounding},
    error::{Code, Error, Result},
    expression::{
        convert::integer_of,
        node::{Arity, Function},
        value::Value,
    },
    number::Number,
};

pub(crate) const FUNCTIONS: &[Function] = &[
    Function::one("$ceil", |value| one("$ceil", &value, |number| Ok(whole(number, f64::ceil, Rounding::Ceiling)))),
    Function::one("$floor", |value| one("$floor", &value, |number| Ok(whole(number, f64::floor, Rounding::Floor)))),
    Function::many("$round", Arity::Between(1, 2), |values| to_places("$round", &values, Rounding::HalfEven)),
    Function::many("$trunc", Arity::Between(1, 2), |values| to_places("$trunc", &values, Rounding::Truncate)),
];

fn whole(number: Number, double: fn(f64) -> f64, rounding: Rounding) -> Number {
    match number {
        Number::Double(value) => Number::Double(double(value)),
        Number::Decimal(value) => Number::Decimal(value.to_whole(rounding)),
        integer => integer,
    }
}

fn to_places<'a>(operator: &str, values: &[Value<'_>], rounding: Rounding) -> Result<Value<'a>> {
    let [value, precision @ ..] = values else { return Ok(Value::NULL) };
    let places = match precision.first() {
        None => 0,
        Some(precision) if precision.is_nullish() => return Ok(Value::NULL),
        Some(precision) => {
            let Some(places) = precision.get().and_then(integer_of) else {
                return Err(Error::new(
                    Code(51_082),
                    format!("precision argument to  {operator} must be a integral value"),
                ));
            };
            i32::try_from(places).ok().filter(|places| (-20..=100).contains(places)).ok_or_else(|| {
                Error::new(
                    Code(51_083),
                    format!("cannot apply {operator} with precision value {places} value must be in [-20, 100]"),
                )
            })?
        }
    };
    if value.is_nullish() {
        return Ok(Value::NULL);
    }
    let Some(number) = number_of(value) else {
        return Err(Error::new(
            Code(51_081),
            format!("{operator} only supports numeric types, not {}", value.type_name()),
        ));
    };
    let rounded = match number {
        Number::Double(value) => Number::Double(round_double(value, places, rounding)),
        Number::Decimal(value) => Number::Decimal(value.round(places, rounding)),
        Number::Int(value) => match round_integer(i64::from(value), places, rounding) {
            Some(result) => i32::try_from(result).map_or(Number::Long(result), Number::Int),
            None => return Err(overflow(operator, number)),
        },
        Number::Long(value) => match round_integer(value, places, rounding) {
            Some(result) => Number::Long(result),
            None => return Err(overflow(operator, number)),
        },
    };
    Ok(as_value(rounded))
}

fn overflow(operator: &str, number: Number) -> Error {
    Error::new(
        Code(51_080),
        format!("invalid conversion from Decimal128 result in {operator} resulting from {}", as_value(number).show()),
    )
}

fn round_integer(value: i64, places: i32, rounding: Rounding) -> Option<i64> {
    if places >= 0 {
        return Some(value);
    }
    Number::Decimal(Decimal::from(value).round(places, rounding)).to_i64_exact()
}

/// Rounds a double by the value that it stores: 2.675 is 2.67499999999999982, so to two places it is 2.67.
fn round_double(value: f64, places: i32, rounding: Rounding) -> f64 {
    if !value.is_finite() || value == 0.0 {
        return value;
    }
    if places == 0 {
        return match rounding {
            Rounding::Truncate => value.trunc(),
            _ => value.round_ties_even(),
        };
    }
    Decimal::from_f64_all_digits(value).round(places, rounding).to_f64()
}
