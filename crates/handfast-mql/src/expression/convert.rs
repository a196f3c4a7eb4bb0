//! `$convert` and its short forms: conversions between types, by MongoDB's table.

use std::fmt::Write;

use bson::{Decimal128, RawBsonRef, oid::ObjectId, spec::ElementType};

use super::{
    compile::{Compiler, NamedErrors, required},
    date::{self, parse_text},
    node::{Function, LazyOperator, Node, Scope},
    value::{self, Value, type_name},
};
use crate::{
    bson_type::{self, BsonType},
    decimal::Decimal,
    error::{Code, Error, Result},
    number::Number,
};

pub(crate) const FUNCTIONS: &[Function] = &[
    Function::one("$toBool", |value| short(value, Target::Bool)),
    Function::one("$toInt", |value| short(value, Target::Int)),
    Function::one("$toLong", |value| short(value, Target::Long)),
    Function::one("$toDouble", |value| short(value, Target::Double)),
    Function::one("$toDecimal", |value| short(value, Target::Decimal)),
    Function::one("$toString", |value| short(value, Target::String)),
    Function::one("$toObjectId", |value| short(value, Target::ObjectId)),
    Function::one("$toDate", |value| short(value, Target::Date)),
];

pub(crate) fn compile(compiler: &mut Compiler<'_>, name: &str, argument: RawBsonRef<'_>) -> Result<Option<Node>> {
    if name != "$convert" {
        return Ok(None);
    }
    let errors = NamedErrors { no_object: Code::FailedToParse, unknown: Code::FailedToParse };
    let names = ["input", "to", "onError", "onNull"];
    let [input, to, on_error, on_null] = compiler.named("$convert", argument, names, &errors)?;
    Ok(Some(Node::lazy(Convert {
        input: required(input, "$convert", "input", Code::FailedToParse.0)?,
        to: required(to, "$convert", "to", Code::FailedToParse.0)?,
        on_error,
        on_null,
    })))
}

#[derive(Debug)]
struct Convert {
    input: Node,
    to: Node,
    on_error: Option<Node>,
    on_null: Option<Node>,
}

impl LazyOperator for Convert {
    fn evaluate<'a>(&'a self, scope: Scope<'a>) -> Result<Value<'a>> {
        let to = self.to.evaluate(scope)?;
        let input = self.input.evaluate(scope)?;
        let target = if to.is_nullish() { None } else { Some(Target::of(&to)?) };
        if input.is_nullish() {
            return self.on_null.as_ref().map_or(Ok(Value::NULL), |node| node.evaluate(scope));
        }
        let Some(target) = target else { return Ok(Value::NULL) };
        match (convert(input, target), &self.on_error) {
            (Err(error), Some(node)) if error.code() == Code::ConversionFailure => node.evaluate(scope),
            (result, _) => result,
        }
    }
}
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Double,
    String,
    ObjectId,
    Bool,
    Date,
    Int,
    Long,
    Decimal,
}

impl Target {
    /// Reads MongoDB's alias or number of a type.
    fn of(to: &Value<'_>) -> Result<Target> {
        if let Some(name) = to.as_str() {
            let known = BsonType::of_alias(name)
                .ok_or_else(|| Error::new(Code::BadValue, format!("Unknown type name: {name}")))?;
            return Target::of_type(known.element_type).ok_or_else(|| unsupported_target(name));
        }
        let number = to.get().and_then(Number::of).ok_or_else(|| {
            Error::new(
                Code::FailedToParse,
                format!("$convert's 'to' argument must be a string or number, but is {}", to.type_name()),
            )
        })?;
        let number = number.to_i64_exact().ok_or_else(|| {
            Error::new(
                Code::FailedToParse,
                format!("In $convert, numeric 'to' argument is not an integer: {}", to.show()),
            )
        })?;
        let known = BsonType::of_number(number).ok_or_else(|| {
            Error::new(
                Code::FailedToParse,
                format!("In $convert, numeric value for 'to' does not correspond to a BSON type: {}", to.show()),
            )
        })?;
        Target::of_type(known.element_type).ok_or_else(|| unsupported_target(&number.to_string()))
    }

    fn of_type(element_type: ElementType) -> Option<Target> {
        Some(match element_type {
            ElementType::Double => Target::Double,
            ElementType::String => Target::String,
            ElementType::ObjectId => Target::ObjectId,
            ElementType::Boolean => Target::Bool,
            ElementType::DateTime => Target::Date,
            ElementType::Int32 => Target::Int,
            ElementType::Int64 => Target::Long,
            ElementType::Decimal128 => Target::Decimal,
            _ => return None,
        })
    }

    fn element_type(self) -> ElementType {
        match self {
            Target::Double => ElementType::Double,
            Target::String => ElementType::String,
            Target::ObjectId => ElementType::ObjectId,
            Target::Bool => ElementType::Boolean,
            Target::Date => ElementType::DateTime,
            Target::Int => ElementType::Int32,
            Target::Long => ElementType::Int64,
            Target::Decimal => ElementType::Decimal128,
        }
    }
}

fn unsupported_target(name: &str) -> Error {
    failure(format!("Unsupported conversion to {name} in $convert with no onError value"))
}

fn failure(message: String) -> Error {
    Error::new(Code::ConversionFailure, message)
}

fn short(value: Value<'_>, target: Target) -> Result<Value<'_>> {
    if value.is_nullish() { Ok(Value::NULL) } else { convert(value, target) }
}

fn convert(value: Value<'_>, target: Target) -> Result<Value<'_>> {
    let source = value.or_null();
    let unsupported = || {
        failure(format!(
            "Unsupported conversion from {} to {} in $convert with no onError value",
            type_name(source),
            bson_type::alias(target.element_type())
        ))
    };
    match target {
        Target::Bool => Ok(value::is_true(source).into()),
        Target::String => text(value),
        Target::ObjectId => match source {
            RawBsonRef::ObjectId(id) => Ok(Value::Ref(RawBsonRef::ObjectId(id))),
            RawBsonRef::String(text) => match ObjectId::parse_str(text) {
                Ok(id) => Ok(Value::Ref(RawBsonRef::ObjectId(id))),
                Err(_) => Err(failure(format!(
                    "Failed to parse objectId '{text}' in $convert with no onError value: Invalid string length or \
                     character for parsing to OID"
                ))),
            },
            _ => Err(unsupported()),
        },
        Target::Date => match source {
            RawBsonRef::Int64(_) | RawBsonRef::Double(_) | RawBsonRef::Decimal128(_) => {
                let millis = Number::of(source).and_then(Number::to_i64_truncated).ok_or_else(|| overflow(source))?;
                Ok(bson::DateTime::from_millis(millis).into())
            }
            RawBsonRef::DateTime(time) => Ok(time.into()),
            RawBsonRef::Timestamp(stamp) => Ok(bson::DateTime::from_millis(i64::from(stamp.time) * 1000).into()),
            RawBsonRef::ObjectId(id) => Ok(bson::DateTime::from_millis(date::object_id_millis(id)).into()),
            RawBsonRef::String(text) => Ok(bson::DateTime::from_millis(parse_text(text)?).into()),
            _ => Err(unsupported()),
        },
        Target::Double | Target::Int | Target::Long | Target::Decimal => number(source, target, unsupported),
    }
}

fn overflow(source: RawBsonRef<'_>) -> Error {
    failure(format!("Conversion would overflow target type in $convert with no onError value: {}", value::show(source)))
}

fn number<'a>(source: RawBsonRef<'_>, target: Target, unsupported: impl Fn() -> Error) -> Result<Value<'a>> {
    let number = match source {
        RawBsonRef::String(text) => return parse_number(text, target),
        RawBsonRef::Boolean(yes) => Number::Int(i32::from(yes)),
        // A date is a count of milliseconds, but does not fit an int.
        RawBsonRef::DateTime(time) if target != Target::Int => Number::Long(time.timestamp_millis()),
        other => Number::of(other).ok_or_else(&unsupported)?,
    };
    let whole = || -> Result<i64> {
        if !number.is_finite() {
            return Err(failure(format!(
                "Attempt to convert {} value to integer type in $convert with no onError value",
                if number.is_nan() { "NaN" } else { "infinity" }
            )));
        }
        number.to_i64_truncated().ok_or_else(|| overflow(source))
    };
    Ok(match target {
        Target::Int => i32::try_from(whole()?).map_err(|_| overflow(source))?.into(),
        Target::Long => whole()?.into(),
        Target::Decimal => decimal(match number {
            Number::Double(double) => Decimal::from_f64(double),
            other => other.to_decimal(),
        }),
        _ => {
            let double = number.to_f64();
            if number.is_finite() && double.is_infinite() {
                return Err(overflow(source));
            }
            double.into()
        }
    })
}

fn decimal<'a>(number: Decimal) -> Value<'a> {
    Value::Ref(RawBsonRef::Decimal128(number.encode()))
}

fn parse_number<'a>(text: &str, target: Target) -> Result<Value<'a>> {
    let failed =
        |why: &str| failure(format!("Failed to parse number '{text}' in $convert with no onError value: {why}"));
    if text.is_empty() {
        return Err(failed("No digits"));
    }
    if text.starts_with(|c: char| c.is_whitespace()) {
        return Err(failed("Leading whitespace"));
    }
    if text.starts_with("0x") || text.starts_with("0X") {
        return Err(failed("Hexadecimal strings are not supported"));
    }
    const NO_NUMBER: &str = "Did not consume whole string.";
    Ok(match target {
        Target::Int => text.parse::<i32>().map_err(|_| failed(NO_NUMBER))?.into(),
        Target::Long => text.parse::<i64>().map_err(|_| failed(NO_NUMBER))?.into(),
        Target::Decimal => decimal(text.parse().map_err(|_| failed("Failed to parse string to decimal"))?),
        _ => {
            let double: f64 = text.parse().map_err(|_| failed(NO_NUMBER))?;
            if double.is_infinite() && !text.to_ascii_lowercase().contains("inf") {
                return Err(failed("Out of range"));
            }
            double.into()
        }
    })
}

fn text(value: Value<'_>) -> Result<Value<'_>> {
    let text = match value.or_null() {
        RawBsonRef::String(_) => return Ok(value),
        RawBsonRef::Symbol(text) => text.to_owned(),
        RawBsonRef::Double(number) => double_text(number),
        RawBsonRef::Int32(number) => number.to_string(),
        RawBsonRef::Int64(number) => number.to_string(),
        RawBsonRef::Decimal128(number) => decimal_text(number),
        RawBsonRef::Boolean(yes) => yes.to_string(),
        RawBsonRef::ObjectId(id) => id.to_hex(),
        RawBsonRef::DateTime(time) => date::iso_text(time.timestamp_millis()),
        other => {
            return Err(failure(format!(
                "Unsupported conversion from {} to string in $convert with no onError value",
                type_name(other)
            )));
        }
    };
    Ok(text.into())
}

pub(crate) fn decimal_text(number: Decimal128) -> String {
    Decimal::decode(number).to_string()
}

/// Returns a double as MongoDB writes it in strings: the shortest digits that read back the same, whole numbers without a point.
pub(crate) fn double_text(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let magnitude = number.abs();
    // Very large and very small numbers in scientific form: 1e+21, 1e-7.
    if magnitude != 0.0 && !(1e-6..1e21).contains(&magnitude) {
        let text = format!("{number:e}");
        return match text.split_once('e') {
            Some((digits, exponent)) if !exponent.starts_with('-') => format!("{digits}e+{exponent}"),
            _ => text,
        };
    }
    let mut text = String::new();
    let _ = write!(text, "{number}");
    text
}

/// Returns the whole number that a value is, if it is a number without a fraction within 64 bits.
pub(crate) fn integer_of(value: RawBsonRef<'_>) -> Option<i64> {
    Number::of(value)?.to_i64_exact()
}

/// Converts a number to 64 bits: drops the fraction, and returns the nearest bound for a number out of range.
pub(crate) fn saturating_i64(value: RawBsonRef<'_>) -> i64 {
    match Number::of(value) {
        None => 0,
        Some(number) => number.to_i64_truncated().unwrap_or_else(|| match number {
            number if number.is_nan() => 0,
            number if number.is_negative() => i64::MIN,
            _ => i64::MAX,
        }),
    }
}
