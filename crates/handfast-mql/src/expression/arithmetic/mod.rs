//! Arithmetic: `$add` to `$mod`, roots and powers, bits. The module `number` has the rules of promotion; the result for null is null.

pub(crate) mod rounding;
#[cfg(test)]
mod tests;

use bson::{DateTime, RawBsonRef};

use super::{
    node::{Arity, Function},
    value::Value,
};
use crate::{
    decimal::{Decimal, Rounding},
    error::{Code, Error, Result},
    number::Number,
};

pub(crate) const FUNCTIONS: &[Function] = &[
    Function::many("$add", Arity::AtLeast(0), add),
    Function::two("$subtract", subtract),
    Function::many("$multiply", Arity::AtLeast(0), multiply),
    Function::two("$divide", divide),
    Function::two("$mod", modulo),
    Function::one("$abs", |value| one("$abs", &value, absolute)),
    Function::one("$sqrt", |value| one("$sqrt", &value, square_root)),
    Function::one("$exp", |value| one("$exp", &value, |number| Ok(exponential(number)))),
    Function::one("$ln", |value| one("$ln", &value, |number| logarithm("$ln", 28_766, number, f64::ln))),
    Function::one("$log10", |value| one("$log10", &value, |number| logarithm("$log10", 28_761, number, f64::log10))),
    Function::two("$log", logarithm_to_base),
    Function::two("$pow", power),
    Function::many("$bitAnd", Arity::AtLeast(0), |values| bits("$bitAnd", &values, -1, |a, b| a & b)),
    Function::many("$bitOr", Arity::AtLeast(0), |values| bits("$bitOr", &values, 0, |a, b| a | b)),
    Function::many("$bitXor", Arity::AtLeast(0), |values| bits("$bitXor", &values, 0, |a, b| a ^ b)),
    Function::one("$bitNot", bit_not),
];

pub(super) fn number_of(value: &Value<'_>) -> Option<Number> {
    value.get().and_then(Number::of)
}

pub(super) fn as_value<'a>(number: Number) -> Value<'a> {
    Value::Ref(number.to_bson())
}

/// Applies a function of one number; null stays null, anything else is an error.
pub(super) fn one<'a>(
    operator: &str,
    value: &Value<'_>,
    apply: impl FnOnce(Number) -> Result<Number>,
) -> Result<Value<'a>> {
    if value.is_nullish() {
        return Ok(Value::NULL);
    }
    match number_of(value) {
        Some(number) => apply(number).map(as_value),
        None => {
            Err(Error::new(Code(28_765), format!("{operator} only supports numeric types, not {}", value.type_name())))
        }
    }
}

/// Applies a function of doubles. Decimals are converted to the nearest double and back.
pub(super) fn through_double(number: Number, apply: fn(f64) -> f64) -> Number {
    let result = apply(number.to_f64());
    match number {
        Number::Decimal(_) => Number::Decimal(Decimal::from_f64_all_digits(result)),
        _ => Number::Double(result),
    }
}

fn exponential(number: Number) -> Number {
    match number {
        Number::Decimal(value) => Number::Decimal(value.exponential()),
        other => through_double(other, f64::exp),
    }
}

fn add<'a>(arguments: Vec<Value<'a>>) -> Result<Value<'a>> {
    let mut total = Total::default();
    let mut moment: Option<DateTime> = None;
    for argument in &arguments {
        match argument.get() {
            None | Some(RawBsonRef::Null | RawBsonRef::Undefined) => return Ok(Value::NULL),
            Some(RawBsonRef::DateTime(date)) => {
                if moment.replace(date).is_some() {
                    return Err(Error::new(Code(16_612), "only one date allowed in an $add expression"));
                }
            }
            Some(value) => match Number::of(value) {
                Some(number) => total.add(number),
                None => {
                    return Err(Error::new(
                        Code::TypeMismatch,
                        format!("$add only supports numeric or date types, not {}", argument.type_name()),
                    ));
                }
            },
        }
    }
    let total = total.get();
    let Some(moment) = moment else { return Ok(as_value(total)) };
    // The sum of the numbers is rounded, not that with the date: -0.5 is one millisecond, before 1970 and after.
    let moment = whole_millis(total).and_then(|millis| moment.timestamp_millis().checked_add(millis));
    moment.map(|millis| DateTime::from_millis(millis).into()).ok_or_else(|| date_overflow("$add"))
}

/// The sum of an `$add`. Decimals alone keep the exponent of their sum, which that of a zero beside them would replace.
#[derive(Default)]
struct Total {
    others: Option<crate::accumulator::Sum>,
    decimals: Option<Decimal>,
}

impl Total {
    fn add(&mut self, number: Number) {
        match number {
            Number::Decimal(value) => {
                self.decimals = Some(self.decimals.map_or(value, |decimals| decimals.add(value)));
            }
            other => self.others.get_or_insert_default().add(other),
        }
    }

    fn get(self) -> Number {
        match (self.others, self.decimals) {
            (None, Some(decimals)) => Number::Decimal(decimals),
            (others, decimals) => {
                let mut sum = others.unwrap_or_default();
                if let Some(decimals) = decimals {
                    sum.add(Number::Decimal(decimals));
                }
                sum.total()
            }
        }
    }
}

/// Returns a date from milliseconds, rounded to whole ones.
fn date_of<'a>(millis: Number, operator: &str) -> Result<Value<'a>> {
    whole_millis(millis).map(|millis| DateTime::from_millis(millis).into()).ok_or_else(|| date_overflow(operator))
}

/// Returns a number rounded to a whole one: half of a double away from zero, half of a decimal to the even neighbour. `None` if it does not
/// fit 64 bits.
fn whole_millis(millis: Number) -> Option<i64> {
    let whole = match millis {
        Number::Double(millis) => Number::Double(millis.round()),
        Number::Decimal(millis) => Number::Decimal(millis.round(0, Rounding::HalfEven)),
        other => other,
    };
    whole.to_i64_exact()
}

fn date_overflow(operator: &str) -> Error {
    Error::new(Code::Overflow, format!("date overflow in {operator}"))
}

fn subtract<'a>(left: Value<'a>, right: Value<'a>) -> Result<Value<'a>> {
    if left.is_nullish() || right.is_nullish() {
        return Ok(Value::NULL);
    }
    let wrong =
        || Error::new(Code::TypeMismatch, format!("can't $subtract {} from {}", right.type_name(), left.type_name()));
    if let (Some(RawBsonRef::DateTime(left)), Some(right)) = (left.get(), right.get()) {
        if let RawBsonRef::DateTime(right) = right {
            let difference = left.timestamp_millis().checked_sub(right.timestamp_millis());
            return difference.map(Value::from).ok_or_else(|| date_overflow("$subtract"));
        }
        let millis = Number::of(right).ok_or_else(wrong)?;
        return date_of(Number::Long(left.timestamp_millis()).subtract(millis), "$subtract");
    }
    match (number_of(&left), number_of(&right)) {
        (Some(left), Some(right)) => Ok(as_value(left.subtract(right))),
        _ => Err(wrong()),
    }
}

fn multiply<'a>(arguments: Vec<Value<'a>>) -> Result<Value<'a>> {
    let mut product = Number::Int(1);
    for argument in &arguments {
        if argument.is_nullish() {
            return Ok(Value::NULL);
        }
        let number = number_of(argument).ok_or_else(|| {
            Error::new(
                Code::TypeMismatch,
                format!("$multiply only supports numeric types, not {}", argument.type_name()),
            )
        })?;
        product = product.multiply(number);
    }
    Ok(as_value(product))
}

/// Reads two numbers; `None` if either is null.
fn two(operator: &str, code: Code, left: &Value<'_>, right: &Value<'_>) -> Result<Option<(Number, Number)>> {
    if left.is_nullish() || right.is_nullish() {
        return Ok(None);
    }
    match (number_of(left), number_of(right)) {
        (Some(left), Some(right)) => Ok(Some((left, right))),
        _ => Err(Error::new(
            code,
            format!("{operator} only supports numeric types, not {} and {}", left.type_name(), right.type_name()),
        )),
    }
}

fn divide<'a>(left: Value<'a>, right: Value<'a>) -> Result<Value<'a>> {
    let Some((left, right)) = two("$divide", Code::TypeMismatch, &left, &right)? else { return Ok(Value::NULL) };
    match left.divide(right) {
        Some(quotient) => Ok(as_value(quotient)),
        None => Err(Error::new(Code::BadValue, "can't $divide by zero")),
    }
}

fn modulo<'a>(left: Value<'a>, right: Value<'a>) -> Result<Value<'a>> {
    let Some((left, right)) = two("$mod", Code(16_611), &left, &right)? else { return Ok(Value::NULL) };
    match left.remainder(right) {
        // The result for doubles without a fraction is still a double.
        Some(remainder) => Ok(as_value(remainder)),
        None => Err(Error::new(Code(16_610), "can't $mod by zero")),
    }
}

fn absolute(number: Number) -> Result<Number> {
    Ok(match number {
        Number::Int(value) => value.checked_abs().map_or(Number::Long(i64::from(value).abs()), Number::Int),
        Number::Long(value) => Number::Long(
            value.checked_abs().ok_or_else(|| Error::new(Code(28_680), "can't take $abs of long long min"))?,
        ),
        Number::Double(value) => Number::Double(value.abs()),
        Number::Decimal(value) => Number::Decimal(value.absolute()),
    })
}

fn square_root(number: Number) -> Result<Number> {
    if number.is_negative() {
        return Err(Error::new(Code(28_714), "$sqrt's argument must be greater than or equal to 0"));
    }
    let Number::Decimal(decimal) = number else { return Ok(through_double(number, f64::sqrt)) };
    Ok(Number::Decimal(decimal_square_root(decimal)))
}

/// Computes the root by Newton's method, from the double's root: each step doubles the correct digits, 16 to 32 to 64.
fn decimal_square_root(value: Decimal) -> Decimal {
    if !value.is_finite() || value.is_zero() {
        return value;
    }
    // Scaled by an even power of ten into the range of doubles, so that the start is close.
    let Decimal::Finite { coefficient, exponent, .. } = value else { return value };
    let half = exponent.div_euclid(2);
    let scaled = Decimal::new(false, coefficient, exponent - 2 * half);
    let mut root = Decimal::from_f64_all_digits(scaled.to_f64().sqrt());
    let two = Decimal::from(2);
    for _ in 0..3 {
        root = root.add(scaled.divide(root)).divide(two);
    }
    root.multiply(Decimal::new(false, 1, half)).normalize()
}

fn logarithm(operator: &str, code: i32, number: Number, apply: fn(f64) -> f64) -> Result<Number> {
    if number.is_negative() || number.is_zero() {
        let shown = as_value(number).show();
        return Err(Error::new(Code(code), format!("{operator}'s argument must be a positive number, but is {shown}")));
    }
    Ok(through_double(number, apply))
}

fn logarithm_to_base<'a>(value: Value<'a>, base: Value<'a>) -> Result<Value<'a>> {
    if value.is_nullish() || base.is_nullish() {
        return Ok(Value::NULL);
    }
    let Some(number) = number_of(&value) else {
        return Err(Error::new(Code(28_756), format!("$log's argument must be numeric, not {}", value.type_name())));
    };
    let Some(base_number) = number_of(&base) else {
        return Err(Error::new(Code(28_757), format!("$log's base must be numeric, not {}", base.type_name())));
    };
    if number.is_negative() || number.is_zero() {
        return Err(Error::new(
            Code(28_758),
            format!("$log's argument must be a positive number, but is {}", value.show()),
        ));
    }
    if base_number.is_negative() || base_number.is_zero() || base_number.compare(&Number::Int(1)).is_eq() {
        return Err(Error::new(
            Code(28_759),
            format!("$log's base must be a positive number not equal to 1, but is {}", base.show()),
        ));
    }
    let result = number.to_f64().ln() / base_number.to_f64().ln();
    Ok(as_value(widest(number, base_number, result)))
}

/// Returns a double result, as a decimal if either operand was one.
fn widest(left: Number, right: Number, result: f64) -> Number {
    match (left, right) {
        (Number::Decimal(_), _) | (_, Number::Decimal(_)) => Number::Decimal(Decimal::from_f64_all_digits(result)),
        _ => Number::Double(result),
    }
}

fn power<'a>(base: Value<'a>, exponent: Value<'a>) -> Result<Value<'a>> {
    if base.is_nullish() || exponent.is_nullish() {
        return Ok(Value::NULL);
    }
    let Some(base_number) = number_of(&base) else {
        return Err(Error::new(Code(28_762), format!("$pow's base must be numeric, not {}", base.type_name())));
    };
    let Some(exponent_number) = number_of(&exponent) else {
        return Err(Error::new(Code(28_763), format!("$pow's exponent must be numeric, not {}", exponent.type_name())));
    };
    if base_number.is_zero() && exponent_number.is_negative() {
        return Err(Error::new(Code(28_764), "$pow cannot take a base of 0 and a negative exponent"));
    }
    Ok(as_value(raise_to_power(base_number, exponent_number)))
}

fn raise_to_power(base: Number, exponent: Number) -> Number {
    let double = || base.to_f64().powf(exponent.to_f64());
    match (base, exponent) {
        (Number::Decimal(_), _) | (_, Number::Decimal(_)) => match exponent.to_i64_exact() {
            Some(whole) if whole.unsigned_abs() <= DECIMAL_POWER_MAX => Number::Decimal(decimal_power(base, whole)),
            _ => widest(base, exponent, double()),
        },
        (Number::Int(_) | Number::Long(_), Number::Int(_) | Number::Long(_)) => {
            match (base.to_i64_exact(), exponent.to_i64_exact()) {
                (Some(base_whole), Some(exponent_whole)) => integer_power(base, base_whole, exponent, exponent_whole)
                    .unwrap_or_else(|| Number::Double(double())),
                _ => Number::Double(double()),
            }
        }
        _ => Number::Double(double()),
    }
}

/// The largest exponent that is computed in decimal. With a larger one, the power of any decimal but 1 and 0 is infinite or zero, as
/// the power of its double is.
const DECIMAL_POWER_MAX: u64 = 100_000;
fn decimal_power(base: Number, exponent: i64) -> Decimal {
    let mut result = Decimal::ONE;
    let mut square = base.to_decimal();
    let mut left = exponent.unsigned_abs();
    while left > 0 {
        if left & 1 == 1 {
            result = result.multiply(square);
        }
        left >>= 1;
        if left > 0 {
            square = square.multiply(square);
        }
    }
    if exponent < 0 { Decimal::ONE.divide(result) } else { result }
}

/// Returns an exact whole power: an int if both are ints and it fits, else a long; `None` if it is no whole number or too big.
fn integer_power(base: Number, base_whole: i64, exponent: Number, exponent_whole: i64) -> Option<Number> {
    let power = match (base_whole, exponent_whole) {
        (1, _) => 1,
        (-1, exponent) => {
            if exponent % 2 == 0 {
                1
            } else {
                -1
            }
        }
        (base, exponent) => match u32::try_from(exponent) {
            Ok(exponent) => base.checked_pow(exponent)?,
            Err(_) => return None,
        },
    };
    let ints = matches!((base, exponent), (Number::Int(_), Number::Int(_)));
    Some(match i32::try_from(power) {
        Ok(power) if ints => Number::Int(power),
        _ => Number::Long(power),
    })
}

fn bits<'a>(operator: &str, values: &[Value<'_>], start: i64, combine: fn(i64, i64) -> i64) -> Result<Value<'a>> {
    let mut result = start;
    let mut long = false;
    for value in values {
        match value.get() {
            None | Some(RawBsonRef::Null | RawBsonRef::Undefined) => return Ok(Value::NULL),
            Some(RawBsonRef::Int32(number)) => result = combine(result, i64::from(number)),
            Some(RawBsonRef::Int64(number)) => {
                long = true;
                result = combine(result, number);
            }
            Some(_) => {
                return Err(Error::new(Code::TypeMismatch, format!("{operator} only supports int and long operands.")));
            }
        }
    }
    // Ints are extended by their sign, so that the result of ints is an int.
    Ok(match i32::try_from(result) {
        Ok(result) if !long => result.into(),
        _ => result.into(),
    })
}

fn bit_not<'a>(value: Value<'a>) -> Result<Value<'a>> {
    match value.get() {
        None | Some(RawBsonRef::Null | RawBsonRef::Undefined) => Ok(Value::NULL),
        Some(RawBsonRef::Int32(number)) => Ok((!number).into()),
        Some(RawBsonRef::Int64(number)) => Ok((!number).into()),
        Some(_) if number_of(&value).is_some() => {
            let text = format!("$bitNot only supports int and long, not: {}.", value.type_name());
            Err(Error::new(Code::TypeMismatch, text))
        }
        Some(_) => {
            let text = format!("$bitNot only supports numeric types, not {}", value.type_name());
            Err(Error::new(Code(28_765), text))
        }
    }
}
