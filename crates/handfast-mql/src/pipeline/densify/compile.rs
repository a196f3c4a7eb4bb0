//! Compiles `{field, partitionByFields, range: {step, unit, bounds}}`.

use std::cmp::Ordering;

use bson::RawBsonRef;

use super::{Bounds, Densify, Field};
use crate::{
    context::CompileOptions,
    error::{Code, Error, Result},
    expression::{
        Expression,
        date::Unit,
        path::split,
        value::{self, show, type_name},
    },
    number::Number,
    pipeline::fill::field_names,
};

const STAGE: &str = "$densify";

fn failed(message: impl Into<String>) -> Error {
    Error::new(Code::FailedToParse, message)
}

fn missing(name: &str) -> Error {
    Error::new(Code(40_414), format!("BSON field '{STAGE}.{name}' is missing but a required field"))
}

fn mismatch(name: &str, found: RawBsonRef<'_>, expected: &str) -> Error {
    let text = format!("BSON field '{STAGE}.{name}' is the wrong type '{}', expected {expected}", type_name(found));
    Error::new(Code::TypeMismatch, text)
}

fn unknown(name: &str) -> Error {
    Error::new(Code(40_415), format!("BSON field '{STAGE}.{name}' is an unknown field."))
}

impl Field {
    fn compile(name: &str, options: &CompileOptions) -> Result<Field> {
        let path = split(name)?;
        Ok(Field { path, value: Expression::compile(RawBsonRef::String(&format!("${name}")), options)? })
    }
}

impl Densify {
    /// Compiles the argument of the stage.
    ///
    /// # Errors
    /// 40414 and 40415 for missing and unknown fields, `TypeMismatch` (14), 8993000 for fields that contain each other, 5733401, 5733402, 5733403,
    /// 5733408 and 6586400 for a range that is none, `FailedToParse` (9) for bounds that do not fit the unit.
    pub(in crate::pipeline) fn compile(argument: RawBsonRef<'_>, options: &CompileOptions) -> Result<Densify> {
        let RawBsonRef::Document(document) = argument else {
            let text = format!("The {STAGE} stage specification must be an object, found {}", type_name(argument));
            return Err(failed(text));
        };
        let (mut field, mut partition, mut range) = (None, Vec::new(), None);
        for item in value::fields(document) {
            let (key, item) = item?;
            match (key.as_str(), item) {
                ("field", RawBsonRef::String(name)) => field = Some(Field::compile(name, options)?),
                ("field", other) => return Err(mismatch("field", other, "type 'string'")),
                ("partitionByFields", item) => {
                    let names = field_names(STAGE, item)?;
                    partition = names.into_iter().map(|name| Field::compile(name, options)).collect::<Result<_>>()?;
                }
                ("range", item) => range = Some(Range::compile(item)?),
                (other, _) => return Err(unknown(other)),
            }
        }
        let field = field.ok_or_else(|| missing("field"))?;
        let Range { step, unit, bounds } = range.ok_or_else(|| missing("range"))?;
        let contain = |a: &[String], b: &[String]| a.iter().zip(b).all(|(a, b)| a == b);
        if partition.iter().any(|part| contain(&part.path, &field.path)) {
            let text = format!("{STAGE}: 'field' and 'partitionByFields' must not contain each other");
            return Err(Error::new(Code(8_993_000), text));
        }
        if matches!(bounds, Bounds::Partition) && partition.is_empty() {
            let text = "one may not specify the bounds as 'partition' without specifying a non-empty array of partitionByFields";
            return Err(Error::new(Code(5_733_408), text));
        }
        Ok(Densify { field, partition, step, unit, bounds })
    }
}

struct Range {
    step: Number,
    unit: Option<Unit>,
    bounds: Bounds,
}

impl Range {
    fn compile(source: RawBsonRef<'_>) -> Result<Range> {
        let RawBsonRef::Document(document) = source else { return Err(mismatch("range", source, "type 'object'")) };
        let (mut step, mut unit, mut bounds) = (None, None, None);
        for field in value::fields(document) {
            let (key, item) = field?;
            match (key.as_str(), item) {
                ("step", item) => {
                    step = Some(Number::of(item).ok_or_else(|| mismatch("range.step", item, "a number"))?);
                }
                ("unit", RawBsonRef::String(name)) => unit = Some(Unit::parse(name)?),
                ("unit", other) => return Err(mismatch("range.unit", other, "type 'string'")),
                ("bounds", item) => bounds = Some(item),
                (other, _) => return Err(unknown(&format!("range.{other}"))),
            }
        }
        let step = step.ok_or_else(|| missing("range.step"))?;
        if step.is_nan() || step.compare(&Number::Int(0)) != Ordering::Greater {
            let text = "the step parameter in a range statement must be a strictly positive numeric value";
            return Err(Error::new(Code(5_733_401), text));
        }
        if unit.is_some() && step.to_i64_exact().is_none() {
            let text = "The step parameter in a range statement must be a whole number when densifying a date range";
            return Err(Error::new(Code(6_586_400), text));
        }
        let bounds = read_bounds(bounds.ok_or_else(|| missing("range.bounds"))?, unit)?;
        Ok(Range { step, unit, bounds })
    }
}

fn read_bounds(source: RawBsonRef<'_>, unit: Option<Unit>) -> Result<Bounds> {
    match source {
        RawBsonRef::String("full") => Ok(Bounds::Full),
        RawBsonRef::String("partition") => Ok(Bounds::Partition),
        RawBsonRef::String(other) => {
            Err(failed(format!("Bounds string must be either 'full' or 'partition', but found '{other}'")))
        }
        RawBsonRef::Array(array) => {
            let items = value::items(array).collect::<Result<Vec<_>>>()?;
            let [low, high] = items[..] else {
                let text = "a bounding array in a range statement must have exactly two elements";
                return Err(Error::new(Code(5_733_403), text));
            };
            let (low, high) = (bound(low, unit)?, bound(high, unit)?);
            if low.compare(&high) == Ordering::Greater {
                let text = "a bounding array in a range statement must be an ascending two element array";
                return Err(Error::new(Code(5_733_402), text));
            }
            Ok(Bounds::Between { low, high })
        }
        other => Err(mismatch("range.bounds", other, "an array or a string")),
    }
}

fn bound(source: RawBsonRef<'_>, unit: Option<Unit>) -> Result<Number> {
    match (source, Number::of(source), unit) {
        (RawBsonRef::DateTime(date), _, Some(_)) => Ok(Number::Long(date.timestamp_millis())),
        (_, Some(number), None) => Ok(number),
        (other, _, Some(_)) => Err(failed(format!("with 'unit', the bounds must be dates, but found {}", show(other)))),
        (other, None, None) => {
            Err(failed(format!("without 'unit', the bounds must be numbers, but found {}", show(other))))
        }
    }
}
