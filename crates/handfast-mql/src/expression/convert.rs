//! `$convert` and its short forms: conversions between types, by MongoDB's table.

use std::fmt::Write;

use bson::{
    Decimal128, RawBsonRef,
    oid::ObjectId,
    spec::{BinarySubtype, ElementType},
};

use super::{
    binary::{self, ByteOrder, Format},
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
    Function::one("$toBool", |value| short(value, TargetType::Bool)),
    Function::one("$toInt", |value| short(value, TargetType::Int)),
    Function::one("$toLong", |value| short(value, TargetType::Long)),
    Function::one("$toDouble", |value| short(value, TargetType::Double)),
    Function::one("$toDecimal", |value| short(value, TargetType::Decimal)),
    Function::one("$toString", |value| short(value, TargetType::String)),
    Function::one("$toObjectId", |value| short(value, TargetType::ObjectId)),
    Function::one("$toDate", |value| short(value, TargetType::Date)),
];

pub(crate) fn compile(compiler: &mut Compiler<'_>, name: &str, argument: RawBsonRef<'_>) -> Result<Option<Node>> {
    if name != "$convert" {
        return Ok(None);
    }
    let errors = NamedErrors { no_object: Code::FailedToParse, unknown: Code::FailedToParse };
    let names = ["input", "to", "format", "byteOrder", "onError", "onNull"];
    let [input, to, format, byte_order, on_error, on_null] = compiler.named("$convert", argument, names, &errors)?;
    Ok(Some(Node::lazy(Convert {
        input: required(input, "$convert", "input", Code::FailedToParse.0)?,
        to: required(to, "$convert", "to", Code::FailedToParse.0)?,
        format,
        byte_order,
        on_error,
        on_null,
    })))
}

#[derive(Debug)]
struct Convert {
    input: Node,
    to: Node,
    format: Option<Node>,
    byte_order: Option<Node>,
    on_error: Option<Node>,
    on_null: Option<Node>,
}

impl LazyOperator for Convert {
    fn evaluate<'a>(&'a self, scope: Scope<'a>) -> Result<Value<'a>> {
        let to = self.to.evaluate(scope)?;
        let input = self.input.evaluate(scope)?;
        let argument = |node: &'a Option<Node>| node.as_ref().map_or(Ok(Value::Missing), |node| node.evaluate(scope));
        let form = Form {
            format: Format::of(&argument(&self.format)?)?,
            byte_order: ByteOrder::of(&argument(&self.byte_order)?)?,
            is_short: false,
        };
        let target = if to.is_nullish() { None } else { Some(Target::of(&to)?) };
        if input.is_nullish() {
            return self.on_null.as_ref().map_or(Ok(Value::NULL), |node| node.evaluate(scope));
        }
        let Some(target) = target else { return Ok(Value::NULL) };
        match (convert(input, target, form), &self.on_error) {
            (Err(error), Some(node)) if error.code() == Code::ConversionFailure => node.evaluate(scope),
            (result, _) => result,
        }
    }
}
/// The form of numbers and texts in binary values.
#[derive(Clone, Copy, Debug, Default)]
struct Form {
    format: Option<Format>,
    byte_order: ByteOrder,
    /// The conversion is one of the short forms, as `$toString`, which choose the format.
    is_short: bool,
}

/// The argument `to`.
#[derive(Clone, Copy, Debug)]
struct Target {
    target_type: TargetType,
    /// The subtype of a binary value.
    subtype: BinarySubtype,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TargetType {
    Double,
    String,
    ObjectId,
    Bool,
    Date,
    Int,
    Long,
    Decimal,
    Binary,
}

impl Target {
    /// Reads a type, or a document `{type, subtype}`.
    fn of(to: &Value<'_>) -> Result<Target> {
        let Some(document) = to.as_document() else {
            return Ok(Target { target_type: TargetType::of(to)?, subtype: BinarySubtype::Generic });
        };
        let (mut target_type, mut subtype) = (None, BinarySubtype::Generic);
        for field in value::fields(document) {
            let (key, item) = field?;
            match key.as_str() {
                "type" => target_type = Some(TargetType::of(&Value::Ref(item))?),
                "subtype" => subtype = binary::subtype(&Value::Ref(item))?,
                other => {
                    return Err(Error::new(
                        Code::FailedToParse,
                        format!("Unrecognized field in $convert's 'to' argument: {other}"),
                    ));
                }
            }
        }
        let target_type = target_type.ok_or_else(|| {
            Error::new(Code::FailedToParse, "Missing 'type' field in the object of $convert's 'to' argument")
        })?;
        Ok(Target { target_type, subtype })
    }
}

impl TargetType {
    /// Reads MongoDB's alias or number of a type.
    fn of(to: &Value<'_>) -> Result<TargetType> {
        if let Some(name) = to.as_str() {
            let known = BsonType::of_alias(name)
                .ok_or_else(|| Error::new(Code::BadValue, format!("Unknown type name: {name}")))?;
            return TargetType::of_type(known.element_type).ok_or_else(|| unsupported_target(name));
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
        if number == MISSING_TYPE {
            return Err(unsupported_target("missing"));
        }
        let known = BsonType::of_number(number).ok_or_else(|| {
            Error::new(
                Code::FailedToParse,
                format!("In $convert, numeric value for 'to' does not correspond to a BSON type: {}", to.show()),
            )
        })?;
        TargetType::of_type(known.element_type).ok_or_else(|| unsupported_target(&number.to_string()))
    }

    fn of_type(element_type: ElementType) -> Option<TargetType> {
        Some(match element_type {
            ElementType::Double => TargetType::Double,
            ElementType::String => TargetType::String,
            ElementType::ObjectId => TargetType::ObjectId,
            ElementType::Boolean => TargetType::Bool,
            ElementType::DateTime => TargetType::Date,
            ElementType::Int32 => TargetType::Int,
            ElementType::Int64 => TargetType::Long,
            ElementType::Decimal128 => TargetType::Decimal,
            ElementType::Binary => TargetType::Binary,
            _ => return None,
        })
    }

    fn element_type(self) -> ElementType {
        match self {
            TargetType::Double => ElementType::Double,
            TargetType::String => ElementType::String,
            TargetType::ObjectId => ElementType::ObjectId,
            TargetType::Bool => ElementType::Boolean,
            TargetType::Date => ElementType::DateTime,
            TargetType::Int => ElementType::Int32,
            TargetType::Long => ElementType::Int64,
            TargetType::Decimal => ElementType::Decimal128,
            TargetType::Binary => ElementType::Binary,
        }
    }
}

fn unsupported_target(name: &str) -> Error {
    failure(format!("Unsupported conversion to {name} in $convert with no onError value"))
}

/// MongoDB's number for the type of a missing value.
const MISSING_TYPE: i64 = 0;

pub(crate) fn failure(message: String) -> Error {
    Error::new(Code::ConversionFailure, message)
}

fn short(value: Value<'_>, target_type: TargetType) -> Result<Value<'_>> {
    if value.is_nullish() {
        return Ok(Value::NULL);
    }
    let form = Form { is_short: true, ..Form::default() };
    convert(value, Target { target_type, subtype: BinarySubtype::Generic }, form)
}

fn convert(value: Value<'_>, Target { target_type: target, subtype }: Target, form: Form) -> Result<Value<'_>> {
    let source = value.or_null();
    let unsupported = || {
        failure(format!(
            "Unsupported conversion from {} to {} in $convert with no onError value",
            type_name(source),
            bson_type::alias(target.element_type())
        ))
    };
    match target {
        TargetType::Bool => Ok(value::is_true(source).into()),
        TargetType::String => text(value, form),
        TargetType::Binary => match source {
            RawBsonRef::Binary(binary) if binary.subtype == subtype => Ok(value),
            RawBsonRef::String(text) => {
                binary::of_text(text, Format::required(form.format, "string", "binData")?, subtype)
            }
            other => Number::of(other)
                .and_then(|number| binary::of_number(number, form.byte_order, subtype))
                .ok_or_else(unsupported),
        },
        TargetType::ObjectId => match source {
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
        TargetType::Date => match source {
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
        TargetType::Double | TargetType::Int | TargetType::Long | TargetType::Decimal => {
            number(source, target, form.byte_order, unsupported)
        }
    }
}

fn overflow(source: RawBsonRef<'_>) -> Error {
    failure(format!("Conversion would overflow target type in $convert with no onError value: {}", value::show(source)))
}

fn number<'a>(
    source: RawBsonRef<'_>,
    target: TargetType,
    byte_order: ByteOrder,
    unsupported: impl Fn() -> Error,
) -> Result<Value<'a>> {
    let number = match source {
        RawBsonRef::Binary(binary) => match target {
            TargetType::Int => Number::Long(binary::to_whole(binary.bytes, byte_order, 4)?),
            TargetType::Long => Number::Long(binary::to_whole(binary.bytes, byte_order, 8)?),
            TargetType::Double => Number::Double(binary::to_double(binary.bytes, byte_order)?),
            _ => return Err(unsupported()),
        },
        RawBsonRef::String(text) => return parse_number(text, target),
        RawBsonRef::Boolean(yes) => Number::Int(i32::from(yes)),
        // A date is a count of milliseconds, but does not fit an int.
        RawBsonRef::DateTime(time) if target != TargetType::Int => Number::Long(time.timestamp_millis()),
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
        TargetType::Int => i32::try_from(whole()?).map_err(|_| overflow(source))?.into(),
        TargetType::Long => whole()?.into(),
        TargetType::Decimal => decimal(match number {
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

fn parse_number<'a>(text: &str, target: TargetType) -> Result<Value<'a>> {
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
        TargetType::Int => text.parse::<i32>().map_err(|_| failed(NO_NUMBER))?.into(),
        TargetType::Long => text.parse::<i64>().map_err(|_| failed(NO_NUMBER))?.into(),
        TargetType::Decimal => decimal(text.parse().map_err(|_| failed("Failed to parse string to decimal"))?),
        _ => {
            let double: f64 = text.parse().map_err(|_| failed(NO_NUMBER))?;
            if double.is_infinite() && !text.to_ascii_lowercase().contains("inf") {
                return Err(failed("Out of range"));
            }
            double.into()
        }
    })
}

fn text(value: Value<'_>, form: Form) -> Result<Value<'_>> {
    let text = match value.or_null() {
        RawBsonRef::String(_) => return Ok(value),
        RawBsonRef::Symbol(text) => text.to_owned(),
        RawBsonRef::Double(number) => double_text(number),
        RawBsonRef::Int32(number) => number.to_string(),
        RawBsonRef::Int64(number) => number.to_string(),
        RawBsonRef::Decimal128(number) => decimal_text(number),
        RawBsonRef::Boolean(yes) => yes.to_string(),
        RawBsonRef::Binary(binary) if form.is_short => binary::to_own_text(binary),
        RawBsonRef::Binary(binary) => binary::to_text(binary, Format::required(form.format, "binData", "string")?)?,
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
