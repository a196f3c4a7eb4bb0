//! Operators on arrays.

pub(crate) mod lazy;
#[cfg(test)]
mod tests;

use bson::{RawArray, RawArrayBuf, RawBsonRef, RawDocumentBuf};

use super::{
    convert::integer_of,
    limits,
    node::{Arity, Function},
    string::{IntegerCodes, PositionCodes, count_value, is_number, position},
    value::{self, Value, type_name},
};
use crate::{
    collation::Collation,
    error::{Code, Error, Result},
    order,
};

pub(crate) const FUNCTIONS: &[Function] = &[
    Function::two("$arrayElemAt", element_at),
    Function::one("$size", size),
    Function::two_under("$in", contains),
    Function::many_under("$indexOfArray", Arity::Between(2, 4), index_of),
    Function::many("$concatArrays", Arity::AtLeast(0), concat),
    Function::many("$slice", Arity::Between(2, 3), slice),
    Function::one("$reverseArray", reverse),
    Function::one("$isArray", |value| Ok(value.as_array().is_some().into())),
    Function::many("$range", Arity::Between(2, 3), range),
    Function::one("$arrayToObject", array_to_object),
    Function::one("$objectToArray", object_to_array),
];

/// Returns the array, or the error that it is none.
fn array_of<'v>(value: &'v Value<'_>, code: i32, message: impl FnOnce(&str) -> String) -> Result<&'v RawArray> {
    value.as_array().ok_or_else(|| Error::new(Code(code), message(value.type_name())))
}

/// Returns a 32-bit whole number argument, or the error that it is none.
fn whole(value: &Value<'_>, codes: IntegerCodes, what: &str) -> Result<i64> {
    let Some(number) = value.get().filter(|value| is_number(*value)) else {
        return Err(Error::new(
            Code(codes.no_number),
            format!("{what} must be a numeric value, but is {}", value.type_name()),
        ));
    };
    integer_of(number).filter(|number| i32::try_from(*number).is_ok()).ok_or_else(|| {
        Error::new(
            Code(codes.no_integer),
            format!("{what} must be representable as a 32-bit integer: {}", value::show(number)),
        )
    })
}

pub(crate) fn count(array: &RawArray) -> usize {
    array.iter_elements().count()
}

/// Returns the item at an index that counts from the end if negative.
pub(crate) fn item_at<'a>(array: &'a RawArray, index: i64) -> Result<Option<RawBsonRef<'a>>> {
    let index = if index < 0 { index + count(array) as i64 } else { index };
    let Ok(index) = usize::try_from(index) else { return Ok(None) };
    // Elements before the index are skipped, not parsed.
    match array.iter_elements().nth(index) {
        Some(element) => Ok(Some(element?.value()?)),
        None => Ok(None),
    }
}

fn element_at<'a>(array: Value<'a>, index: Value<'a>) -> Result<Value<'a>> {
    if array.is_nullish() || index.is_nullish() {
        return Ok(Value::NULL);
    }
    array_of(&array, 28_689, |kind| format!("$arrayElemAt's first argument must be an array, but is {kind}"))?;
    let index =
        whole(&index, IntegerCodes { no_number: 28_690, no_integer: 28_691 }, "$arrayElemAt's second argument")?;
    at(array, index)
}

/// Returns the item at an index of a value that is an array.
pub(crate) fn at<'a>(array: Value<'a>, index: i64) -> Result<Value<'a>> {
    array.narrow(|value| match value {
        RawBsonRef::Array(array) => item_at(array, index),
        _ => Ok(None),
    })
}

fn size<'a>(value: Value<'a>) -> Result<Value<'a>> {
    let array =
        array_of(&value, 17_124, |kind| format!("The argument to $size must be an array, but was of type: {kind}"))?;
    Ok(count_value(count(array)))
}

fn contains<'a>(wanted: Value<'a>, array: Value<'a>, collation: Option<&Collation>) -> Result<Value<'a>> {
    let array = array_of(&array, 40_081, |kind| format!("$in requires an array as a second argument, found: {kind}"))?;
    for item in value::items(array) {
        if value::compare(wanted.get(), Some(item?), collation).is_eq() {
            return Ok(true.into());
        }
    }
    Ok(false.into())
}

fn index_of<'a>(arguments: Vec<Value<'a>>, collation: Option<&Collation>) -> Result<Value<'a>> {
    const CODES: PositionCodes = PositionCodes { no_integer: 9_711_600, negative: 9_711_601 };
    let [array, wanted, range @ ..] = &arguments[..] else { return Ok(Value::NULL) };
    if array.is_nullish() {
        return Ok(Value::NULL);
    }
    let array =
        array_of(array, 40_090, |kind| format!("$indexOfArray requires an array as a first argument, found: {kind}"))?;
    let start = range.first().map_or(Ok(0), |value| position("$indexOfArray", "starting", value, CODES))?;
    let end = range.get(1).map_or(Ok(usize::MAX), |value| position("$indexOfArray", "ending", value, CODES))?;
    for (index, item) in value::items(array).enumerate().take(end).skip(start) {
        if value::compare(wanted.get(), Some(item?), collation).is_eq() {
            return Ok(count_value(index));
        }
    }
    Ok(Value::from(-1))
}

fn concat<'a>(arguments: Vec<Value<'a>>) -> Result<Value<'a>> {
    let mut all = RawArrayBuf::new();
    for argument in &arguments {
        if argument.is_nullish() {
            return Ok(Value::NULL);
        }
        let array = array_of(argument, 28_664, |kind| format!("$concatArrays only supports arrays, not {kind}"))?;
        for item in value::items(array) {
            value::push(&mut all, item?)?;
        }
    }
    Ok(all.into())
}

fn slice<'a>(arguments: Vec<Value<'a>>) -> Result<Value<'a>> {
    if arguments.iter().any(Value::is_nullish) {
        return Ok(Value::NULL);
    }
    let [array, numbers @ ..] = &arguments[..] else { return Ok(Value::NULL) };
    let array =
        array_of(array, 28_724, |kind| format!("First argument to $slice must be an array, but is of type: {kind}"))?;
    let first = numbers.first().map_or(Ok(0), |value| {
        whole(value, IntegerCodes { no_number: 28_725, no_integer: 28_726 }, "Second argument to $slice")
    })?;
    let length = count(array) as i64;
    // A position or count from the end stops at the beginning.
    let from_end = |distance: i64| (length + distance).max(0);
    let (start, taken) = match numbers.get(1) {
        Some(third) => {
            let taken =
                whole(third, IntegerCodes { no_number: 28_727, no_integer: 28_728 }, "Third argument to $slice")?;
            if taken <= 0 {
                return Err(Error::new(Code(28_729), format!("Third argument to $slice must be positive: {taken}")));
            }
            (if first < 0 { from_end(first) } else { first }, taken)
        }
        None if first < 0 => (from_end(first), length),
        None => (0, first),
    };
    let mut part = RawArrayBuf::new();
    for item in value::items(array).skip(start as usize).take(taken as usize) {
        part.push(item?);
    }
    Ok(part.into())
}

fn reverse<'a>(value: Value<'a>) -> Result<Value<'a>> {
    if value.is_nullish() {
        return Ok(Value::NULL);
    }
    let array = array_of(&value, 34_435, |kind| {
        format!("The argument to $reverseArray must be an array, but was of type: {kind}")
    })?;
    let items = value::items(array).collect::<Result<Vec<_>>>()?;
    Ok(items.into_iter().rev().collect::<RawArrayBuf>().into())
}

fn range<'a>(arguments: Vec<Value<'a>>) -> Result<Value<'a>> {
    let number = |index: usize, what: &str, codes: IntegerCodes| -> Result<Option<i64>> {
        let Some(value) = arguments.get(index) else { return Ok(None) };
        let Some(number) = value.get().filter(|value| is_number(*value)) else {
            return Err(Error::new(
                Code(codes.no_number),
                format!("$range requires a numeric {what} value, found value of type: {}", value.type_name()),
            ));
        };
        integer_of(number).filter(|number| i32::try_from(*number).is_ok()).map(Some).ok_or_else(|| {
            Error::new(
                Code(codes.no_integer),
                format!(
                    "$range requires a {what} value that can be represented as a 32-bit integer, found value: {}",
                    value::show(number)
                ),
            )
        })
    };
    let start = number(0, "starting", IntegerCodes { no_number: 34_443, no_integer: 34_444 })?.unwrap_or(0);
    let end = number(1, "ending", IntegerCodes { no_number: 34_445, no_integer: 34_446 })?.unwrap_or(0);
    let step = number(2, "step", IntegerCodes { no_number: 34_447, no_integer: 34_448 })?.unwrap_or(1);
    if step == 0 {
        return Err(Error::new(Code(34_449), "$range requires a non-zero step value"));
    }
    let mut numbers = RawArrayBuf::new();
    let mut current = start;
    while if step > 0 { current < end } else { current > end } {
        value::push(&mut numbers, RawBsonRef::Int32(current as i32))?;
        current += step;
    }
    Ok(numbers.into())
}

fn object_to_array<'a>(value: Value<'a>) -> Result<Value<'a>> {
    if value.is_nullish() {
        return Ok(Value::NULL);
    }
    let Some(document) = value.as_document() else {
        return Err(Error::new(
            Code(40_390),
            format!("$objectToArray requires a document input, found: {}", value.type_name()),
        ));
    };
    let mut pairs = RawArrayBuf::new();
    for field in value::fields(document) {
        let (key, item) = field?;
        let mut pair = RawDocumentBuf::new();
        value::append(&mut pair, "k", RawBsonRef::String(key.as_str()))?;
        value::append(&mut pair, "v", item)?;
        value::push(&mut pairs, RawBsonRef::Document(&pair))?;
    }
    Ok(pairs.into())
}

fn array_to_object<'a>(value: Value<'a>) -> Result<Value<'a>> {
    if value.is_nullish() {
        return Ok(Value::NULL);
    }
    let array = array_of(&value, 40_386, |kind| format!("$arrayToObject requires an array input, found: {kind}"))?;
    let mut fields: Vec<(&str, RawBsonRef<'_>)> = Vec::new();
    let mut positions = std::collections::HashMap::new();
    let mut form: Option<&'static str> = None;
    for item in value::items(array) {
        let item = item?;
        let kind = type_name(item);
        match form {
            Some(known) if known != kind => {
                let code = if known == "array" { 40_391 } else { 40_396 };
                return Err(Error::new(
                    Code(code),
                    format!(
                        "$arrayToObject requires a consistent input format. Elements must all be arrays or all be \
                         objects. {known} was detected, now found: {kind}"
                    ),
                ));
            }
            _ => form = Some(kind),
        }
        let (key, value) = match item {
            RawBsonRef::Array(pair) => pair_of_array(pair)?,
            RawBsonRef::Document(pair) => pair_of_document(pair)?,
            _ => {
                return Err(Error::new(
                    Code(40_398),
                    format!("Unrecognised input type format for $arrayToObject: {kind}"),
                ));
            }
        };
        // A key that comes twice keeps its first position and its last value.
        match positions.get(key) {
            Some(position) => {
                let position: &usize = position;
                fields[*position].1 = value;
            }
            None => {
                positions.insert(key, fields.len());
                fields.push((key, value));
            }
        }
    }
    let mut document = RawDocumentBuf::new();
    for (key, value) in fields {
        value::append(&mut document, key, value)?;
    }
    Ok(document.into())
}

fn pair_of_array(pair: &RawArray) -> Result<(&str, RawBsonRef<'_>)> {
    let items = value::items(pair).take(3).collect::<Result<Vec<_>>>()?;
    let [key, value] = items[..] else {
        return Err(Error::new(
            Code(40_397),
            format!("$arrayToObject requires an array of size 2 arrays,found array of size: {}", count(pair)),
        ));
    };
    let RawBsonRef::String(key) = key else {
        return Err(Error::new(
            Code(40_395),
            format!(
                "$arrayToObject requires an array of key-value pairs, where the key must be of type string. \
                 Found key type: {}",
                type_name(key)
            ),
        ));
    };
    Ok((key, value))
}

fn pair_of_document(pair: &bson::RawDocument) -> Result<(&str, RawBsonRef<'_>)> {
    let count = pair.iter_elements().take(3).count();
    if count != 2 {
        return Err(Error::new(
            Code(40_392),
            format!("$arrayToObject requires an object keys of 'k' and 'v'. Found incorrect number of keys:{count}"),
        ));
    }
    let (Some(key), Some(value)) = (pair.get("k")?, pair.get("v")?) else {
        return Err(Error::new(
            Code(40_393),
            format!(
                "$arrayToObject requires an object with keys 'k' and 'v'. Missing either or both keys from: {}",
                value::show(RawBsonRef::Document(pair))
            ),
        ));
    };
    let RawBsonRef::String(key) = key else {
        return Err(Error::new(
            Code(40_394),
            format!(
                "$arrayToObject requires an object with keys 'k' and 'v', where the value of 'k' must be of type \
                 string. Found type: {}",
                type_name(key)
            ),
        ));
    };
    Ok((key, value))
}

/// Sorts items in the order of values, keeping equal ones as they were.
pub(crate) fn sort_items(items: &mut [RawBsonRef<'_>], collation: Option<&Collation>) {
    items.sort_by(|left, right| order::compare_under(*left, *right, collation));
}

/// Returns an array of items, within the bound for values.
pub(crate) fn collect<'i>(items: impl IntoIterator<Item = RawBsonRef<'i>>) -> Result<RawArrayBuf> {
    let mut array = RawArrayBuf::new();
    for item in items {
        array.push(item);
        limits::check_bytes(array.as_bytes().len())?;
    }
    Ok(array)
}
