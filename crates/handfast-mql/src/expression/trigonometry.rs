//! Trigonometric functions of radians, as doubles; decimals are converted to the nearest double.

use super::{
    arithmetic::{as_value, number_of, one, through_double},
    node::Function,
    value::Value,
};
use crate::{
    error::{Code, Error, Result},
    number::Number,
};

pub(crate) const FUNCTIONS: &[Function] = &[
    Function::one("$sin", |value| bounded("$sin", &value, f64::sin, FINITE)),
    Function::one("$cos", |value| bounded("$cos", &value, f64::cos, FINITE)),
    Function::one("$tan", |value| bounded("$tan", &value, f64::tan, FINITE)),
    Function::one("$asin", |value| bounded("$asin", &value, f64::asin, UNIT)),
    Function::one("$acos", |value| bounded("$acos", &value, f64::acos, UNIT)),
    Function::one("$atan", |value| plain("$atan", &value, f64::atan)),
    Function::two("$atan2", arc_tangent_of_two),
    Function::one("$sinh", |value| plain("$sinh", &value, f64::sinh)),
    Function::one("$cosh", |value| plain("$cosh", &value, f64::cosh)),
    Function::one("$tanh", |value| plain("$tanh", &value, f64::tanh)),
    Function::one("$asinh", |value| plain("$asinh", &value, f64::asinh)),
    Function::one("$acosh", |value| bounded("$acosh", &value, f64::acosh, FROM_ONE)),
    Function::one("$atanh", |value| bounded("$atanh", &value, f64::atanh, UNIT)),
    Function::one("$degreesToRadians", |value| plain("$degreesToRadians", &value, f64::to_radians)),
    Function::one("$radiansToDegrees", |value| plain("$radiansToDegrees", &value, f64::to_degrees)),
];

/// The interval in which a function is defined, and its text in errors.
#[derive(Clone, Copy)]
struct Domain {
    contains: fn(f64) -> bool,
    text: &'static str,
}

const FINITE: Domain = Domain { contains: f64::is_finite, text: "(-inf,inf)" };
const UNIT: Domain = Domain { contains: |x| (-1.0..=1.0).contains(&x), text: "[-1,1]" };
const FROM_ONE: Domain = Domain { contains: |x| x >= 1.0, text: "[1,inf]" };

fn plain<'a>(operator: &str, value: &Value<'_>, apply: fn(f64) -> f64) -> Result<Value<'a>> {
    one(operator, value, |number| Ok(through_double(number, apply)))
}

fn bounded<'a>(operator: &str, value: &Value<'_>, apply: fn(f64) -> f64, domain: Domain) -> Result<Value<'a>> {
    one(operator, value, |number| {
        if number.is_nan() || (domain.contains)(number.to_f64()) {
            return Ok(through_double(number, apply));
        }
        Err(Error::new(
            Code(50_989),
            format!("cannot apply {operator} to {}, value must be in {}", value.show(), domain.text),
        ))
    })
}

fn arc_tangent_of_two<'a>(y: Value<'a>, x: Value<'a>) -> Result<Value<'a>> {
    if y.is_nullish() || x.is_nullish() {
        return Ok(Value::NULL);
    }
    let number = |value: &Value<'_>, code: i32| {
        number_of(value).ok_or_else(|| {
            Error::new(Code(code), format!("$atan2 only supports numeric types, not {}", value.type_name()))
        })
    };
    let (y, x) = (number(&y, 51_044)?, number(&x, 51_045)?);
    let angle = y.to_f64().atan2(x.to_f64());
    Ok(as_value(match (y, x) {
        (Number::Decimal(_), _) | (_, Number::Decimal(_)) => {
            Number::Decimal(crate::decimal::Decimal::from_f64_all_digits(angle))
        }
        _ => Number::Double(angle),
    }))
}
