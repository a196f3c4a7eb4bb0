//! Operators on strings. As in MongoDB, `..Bytes` counts UTF-8 bytes and `..CP`
//! counts code points; case is changed for ASCII letters only.

pub(crate) mod lazy;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use bson::{RawArrayBuf, RawBsonRef};

use super::{
    convert::{decimal_text, double_text, integer_of},
    date,
    node::{Arity, Function},
    value::{self, Value, type_name},
};
use crate::error::{Code, Error, Result};

pub(crate) const FUNCTIONS: &[Function] = &[
    Function::many("$concat", Arity::AtLeast(0), concat),
    Function::one("$toLower", |text| changed_case(&text, str::make_ascii_lowercase)),
    Function::one("$toUpper", |text| changed_case(&text, str::make_ascii_uppercase)),
    Function::two("$strcasecmp", compare_ignoring_case),
    Function::one("$strLenBytes", |text| length("$strLenBytes", 34_473, &text, str::len)),
    Function::one("$strLenCP", |text| length("$strLenCP", 34_471, &text, |text| text.chars().count())),
    Function::many("$substr", Arity::Exactly(3), substring_bytes),
    Function::many("$substrBytes", Arity::Exactly(3), substring_bytes),
    Function::many("$substrCP", Arity::Exactly(3), substring_code_points),
    Function::many("$indexOfBytes", Arity::Between(2, 4), index_of_bytes),
    Function::many("$indexOfCP", Arity::Between(2, 4), index_of_code_points),
    Function::two("$split", split),
];

fn concat<'a>(arguments: Vec<Value<'a>>) -> Result<Value<'a>> {
    let mut joined = String::new();
    for argument in &arguments {
        if argument.is_nullish() {
            return Ok(Value::NULL);
        }
        let Some(text) = argument.as_str() else {
            return Err(Error::new(
                Code(16_702),
                format!("$concat only supports strings, not {}", argument.type_name()),
            ));
        };
        joined.push_str(text);
        super::limits::check_bytes(joined.len())?;
    }
    Ok(joined.into())
}

/// Reads the text of `$toLower`, `$substr` and the like: strings, numbers, dates; a missing value is the empty text.
pub(crate) fn coerce<'v>(value: &'v Value<'_>) -> Result<Cow<'v, str>> {
    let Some(value) = value.get() else { return Ok(Cow::Borrowed("")) };
    Ok(match value {
        RawBsonRef::Null | RawBsonRef::Undefined => Cow::Borrowed(""),
        RawBsonRef::String(text) | RawBsonRef::Symbol(text) | RawBsonRef::JavaScriptCode(text) => Cow::Borrowed(text),
        RawBsonRef::Int32(number) => Cow::Owned(number.to_string()),
        RawBsonRef::Int64(number) => Cow::Owned(number.to_string()),
        RawBsonRef::Double(number) => Cow::Owned(double_text(number)),
        RawBsonRef::Decimal128(number) => Cow::Owned(decimal_text(number)),
        RawBsonRef::DateTime(time) => Cow::Owned(date::iso_text(time.timestamp_millis())),
        RawBsonRef::Timestamp(stamp) => Cow::Owned(date::iso_text(i64::from(stamp.time) * 1000)),
        other => {
            return Err(Error::new(
                Code(16_007),
                format!("can't convert from BSON type {} to String", type_name(other)),
            ));
        }
    })
}

fn changed_case<'a>(text: &Value<'_>, change: fn(&mut str)) -> Result<Value<'a>> {
    let mut text = coerce(text)?.into_owned();
    change(&mut text);
    Ok(text.into())
}

fn compare_ignoring_case<'a>(left: Value<'a>, right: Value<'a>) -> Result<Value<'a>> {
    let (left, right) = (coerce(&left)?.to_ascii_uppercase(), coerce(&right)?.to_ascii_uppercase());
    Ok((left.cmp(&right) as i32).into())
}

fn length<'a>(operator: &str, code: i32, text: &Value<'_>, count: fn(&str) -> usize) -> Result<Value<'a>> {
    match text.as_str() {
        Some(text) => Ok(count_value(count(text))),
        None => {
            Err(Error::new(Code(code), format!("{operator} requires a string argument, found: {}", text.type_name())))
        }
    }
}

/// Returns a length or position as an int; texts of over 2 GB cannot exist here.
pub(crate) fn count_value<'a>(count: usize) -> Value<'a> {
    i32::try_from(count).map_or_else(|_| Value::from(count as i64), Value::from)
}

/// MongoDB's codes of errors in an integer argument.
#[derive(Clone, Copy)]
pub(crate) struct IntegerCodes {
    pub(crate) no_number: i32,
    /// The number has a fraction, or does not fit 32 bits.
    pub(crate) no_integer: i32,
}

fn whole(operator: &str, what: &str, value: &Value<'_>, codes: IntegerCodes) -> Result<i64> {
    let Some(number) = value.get().filter(|value| is_number(*value)) else {
        return Err(Error::new(
            Code(codes.no_number),
            format!("{operator}: {what} must be a numeric type (is BSON type {})", value.type_name()),
        ));
    };
    integer_of(number).filter(|number| i32::try_from(*number).is_ok()).map_or_else(
        || {
            Err(Error::new(
                Code(codes.no_integer),
                format!("{operator}: {what} cannot be represented as a 32-bit integral value: {}", value::show(number)),
            ))
        },
        Ok,
    )
}

pub(crate) fn is_number(value: RawBsonRef<'_>) -> bool {
    matches!(value, RawBsonRef::Int32(_) | RawBsonRef::Int64(_) | RawBsonRef::Double(_) | RawBsonRef::Decimal128(_))
}

/// Reads a number of `$substrBytes`, which truncates instead of asking for whole ones.
fn truncated(what: &str, value: &Value<'_>, code: i32) -> Result<i64> {
    match value.get() {
        Some(number) if is_number(number) => Ok(super::convert::saturating_i64(number)),
        _ => Err(Error::new(
            Code(code),
            format!("$substrBytes: {what} must be a numeric type (is BSON type {})", value.type_name()),
        )),
    }
}

fn substring_bytes<'a>(arguments: Vec<Value<'a>>) -> Result<Value<'a>> {
    let [text, start, length] = &arguments[..] else { return Ok(Value::NULL) };
    let text = coerce(text)?;
    let start = truncated("starting index", start, 16_034)?;
    let length = truncated("length", length, 16_035)?;
    let Ok(start) = usize::try_from(start) else {
        return Err(Error::new(
            Code(50_752),
            format!("$substrBytes: starting index must be non-negative (got: {start})"),
        ));
    };
    if start >= text.len() {
        return Ok(String::new().into());
    }
    // A negative length means "to the end".
    let end = usize::try_from(length).map_or(text.len(), |length| start.saturating_add(length).min(text.len()));
    if !text.is_char_boundary(start) {
        return Err(Error::new(
            Code(28_656),
            "$substrBytes: Invalid range, starting index is a UTF-8 continuation byte.",
        ));
    }
    match text.get(start..end) {
        Some(part) => Ok(part.to_owned().into()),
        None => Err(Error::new(
            Code(28_657),
            "$substrBytes: Invalid range, ending index is in the middle of a UTF-8 character.",
        )),
    }
}

fn substring_code_points<'a>(arguments: Vec<Value<'a>>) -> Result<Value<'a>> {
    let [text, start, length] = &arguments[..] else { return Ok(Value::NULL) };
    let text = coerce(text)?;
    let start = whole("$substrCP", "starting index", start, IntegerCodes { no_number: 34_450, no_integer: 34_451 })?;
    let length = whole("$substrCP", "length", length, IntegerCodes { no_number: 34_452, no_integer: 34_453 })?;
    let Ok(length) = usize::try_from(length) else {
        return Err(Error::new(Code(34_454), "$substrCP: length must be a nonnegative integer."));
    };
    let Ok(start) = usize::try_from(start) else {
        return Err(Error::new(Code(34_455), "$substrCP: the starting index must be nonnegative integer."));
    };
    Ok(text.chars().skip(start).take(length).collect::<String>().into())
}

/// The arguments of `$indexOf..`: two texts and the range; `None` if the answer is null.
struct Search<'v> {
    text: &'v str,
    token: &'v str,
    start: usize,
    end: usize,
}

/// MongoDB's codes for texts of `$indexOf..` that are no strings.
struct SearchCodes {
    text: i32,
    token: i32,
}

fn search<'v>(operator: &str, arguments: &'v [Value<'_>], codes: SearchCodes) -> Result<Option<Search<'v>>> {
    let [text, token, range @ ..] = arguments else { return Ok(None) };
    if text.is_nullish() {
        return Ok(None);
    }
    let Some(text) = text.as_str() else {
        return Err(Error::new(
            Code(codes.text),
            format!("{operator} requires a string as the first argument, found: {}", text.type_name()),
        ));
    };
    let Some(token) = token.as_str() else {
        return Err(Error::new(
            Code(codes.token),
            format!("{operator} requires a string as the second argument, found: {}", token.type_name()),
        ));
    };
    let start = range.first().map_or(Ok(0), |value| position(operator, "starting", value, TEXT_POSITION))?;
    let end = range.get(1).map_or(Ok(usize::MAX), |value| position(operator, "ending", value, TEXT_POSITION))?;
    Ok(Some(Search { text, token, start, end }))
}

/// The codes for a position that is no whole number, or negative.
#[derive(Clone, Copy)]
pub(crate) struct PositionCodes {
    pub(crate) no_integer: i32,
    pub(crate) negative: i32,
}

/// The codes of positions in a text.
const TEXT_POSITION: PositionCodes = PositionCodes { no_integer: 40_096, negative: 40_097 };

/// Reads a position in a text or array: a whole number that is not negative.
pub(crate) fn position(operator: &str, what: &str, value: &Value<'_>, codes: PositionCodes) -> Result<usize> {
    let Some(number) = value.get().and_then(integer_of).and_then(|number| i32::try_from(number).ok()) else {
        return Err(Error::new(
            Code(codes.no_integer),
            format!(
                "{operator} requires an integral {what} index, found a value of type: {}, with value: {}",
                value.type_name(),
                value.show()
            ),
        ));
    };
    usize::try_from(number).map_err(|_| {
        Error::new(Code(codes.negative), format!("{operator} requires a nonnegative {what} index, found: {number}"))
    })
}

fn index_of_bytes<'a>(arguments: Vec<Value<'a>>) -> Result<Value<'a>> {
    let Some(Search { text, token, start, end }) =
        search("$indexOfBytes", &arguments, SearchCodes { text: 40_091, token: 40_092 })?
    else {
        return Ok(Value::NULL);
    };
    let end = end.min(text.len());
    let found = if start > end {
        None
    } else {
        let haystack = &text.as_bytes()[start..end];
        find_bytes(haystack, token.as_bytes()).map(|index| index + start)
    };
    Ok(found.map_or(Value::from(-1), count_value))
}

fn find_bytes(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    if needle.is_empty() {
        return Some(0);
    }
    // The text is UTF-8, but a range may begin inside a character: search by bytes.
    match (std::str::from_utf8(haystack), std::str::from_utf8(needle)) {
        (Ok(haystack), Ok(needle)) => haystack.find(needle),
        _ => haystack.windows(needle.len()).position(|window| window == needle),
    }
}

fn index_of_code_points<'a>(arguments: Vec<Value<'a>>) -> Result<Value<'a>> {
    let Some(Search { text, token, start, end }) =
        search("$indexOfCP", &arguments, SearchCodes { text: 40_093, token: 40_094 })?
    else {
        return Ok(Value::NULL);
    };
    let byte_of = |position: usize| text.char_indices().nth(position).map(|(byte, _)| byte);
    let Some(first) = byte_of(start).or_else(|| (text.chars().count() == start).then_some(text.len())) else {
        return Ok(Value::from(-1));
    };
    let last = if end == usize::MAX { text.len() } else { byte_of(end).unwrap_or(text.len()) };
    let found = text.get(first..last).and_then(|part| part.find(token));
    Ok(found.map_or(Value::from(-1), |byte| count_value(start + text[first..first + byte].chars().count())))
}

fn split<'a>(text: Value<'a>, separator: Value<'a>) -> Result<Value<'a>> {
    if text.is_nullish() || separator.is_nullish() {
        return Ok(Value::NULL);
    }
    let Some(input) = text.as_str() else {
        return Err(Error::new(
            Code(40_085),
            format!(
                "$split requires an expression that evaluates to a string as a first argument, found: {}",
                text.type_name()
            ),
        ));
    };
    let Some(separator) = separator.as_str() else {
        return Err(Error::new(
            Code(40_086),
            format!(
                "$split requires an expression that evaluates to a string as a second argument, found: {}",
                separator.type_name()
            ),
        ));
    };
    if separator.is_empty() {
        return Err(Error::new(Code(40_087), "$split requires a non-empty separator"));
    }
    let mut parts = RawArrayBuf::new();
    for part in input.split(separator) {
        value::push(&mut parts, RawBsonRef::String(part))?;
    }
    Ok(parts.into())
}
