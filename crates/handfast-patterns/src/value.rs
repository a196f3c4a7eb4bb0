//! Functions on values of documents.

#[cfg(test)]
mod tests;

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use handfast_mql::key;
use serde::Serialize;

use crate::steps::raw;
use crate::{Error, Result};

/// Returns what a value is serialized to. A sub-document such as `{"$oid": ".."}` stays one: `bson::serialize_to_bson` makes of it the value
/// that it stands for in Extended JSON.
pub(crate) fn serialized(value: &impl Serialize) -> bson::error::Result<Bson> {
    #[derive(Serialize)]
    struct Wrapped<'v, V> {
        value: &'v V,
    }
    let mut wrapped = Document::try_from(bson::serialize_to_raw_document_buf(&Wrapped { value })?)?;
    Ok(wrapped.remove("value").unwrap_or(Bson::Null))
}

/// Returns a value as relaxed Extended JSON. It is read back as the same value, with two exceptions: an integer may get another width, and a
/// sub-document with the names of Extended JSON (`{"$oid": ".."}`) becomes the value that it stands for.
pub fn extended_json(value: &Bson) -> serde_json::Value {
    /// Above it, JSON's numbers are not exact (2^53).
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    /// The last millisecond of the year 9999, after which the text of a date is not of RFC 3339.
    const TEXT_MILLIS_MAX: i64 = 253_402_300_799_999;
    match value {
        Bson::Document(document) => {
            let fields = document.iter().map(|(name, value)| (name.clone(), extended_json(value)));
            fields.collect::<serde_json::Map<_, _>>().into()
        }
        Bson::Array(values) => values.iter().map(extended_json).collect(),
        Bson::DateTime(date) if date.timestamp_millis() > TEXT_MILLIS_MAX => value.clone().into_canonical_extjson(),
        Bson::Double(number) if number.is_finite() && number.abs() > EXACT_MAX => {
            serde_json::json!({ "$numberDouble": format!("{number:e}") })
        }
        other => other.clone().into_relaxed_extjson(),
    }
}

/// Returns the time `age` before `now`.
pub(crate) fn before(now: DateTime, age: Duration) -> DateTime {
    let millis = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
    DateTime::from_millis(now.timestamp_millis().saturating_sub(millis))
}

/// Returns the time `age` after `now`.
pub(crate) fn after(now: DateTime, age: Duration) -> DateTime {
    let millis = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
    DateTime::from_millis(now.timestamp_millis().saturating_add(millis))
}

/// Returns two conditions on a date, one of which holds if its writer counts as silent: the date is at least `age`
/// old, or more than `age` ahead of the clock. They are separate so that an index on the date serves both. No date
/// matches both, and with an `age` of zero every date matches one.
///
/// A date that is so far ahead was written under a clock that has been corrected since, or the clock here is wrong. It
/// says as little about its writer as an old date does, until that time has come. The writer may still be alive, and
/// each pattern has conditions of its own for that case: a claim, a state, a version (docs/decisions/0028-clocks.md).
pub(crate) fn lapsed(now: DateTime, age: Duration) -> [Document; 2] {
    [doc! { "$lte": before(now, age) }, doc! { "$gt": after(now, age) }]
}

/// Returns whether a date matches [`lapsed`].
pub(crate) fn is_lapsed(date: DateTime, now: DateTime, age: Duration) -> bool {
    date <= before(now, age) || date > after(now, age)
}

/// Returns bytes that are equal for ids that the store considers equal (1 and 1.0).
pub(crate) fn key_of(id: &Bson) -> Result<Vec<u8>> {
    let wrapped = raw(&doc! { "": id.clone() })?;
    let mut encoded = Vec::new();
    if let Some(Ok((_, id))) = wrapped.iter().next() {
        key::encode(id, &mut encoded);
    }
    Ok(encoded)
}

/// Returns whether the store considers two ids equal.
pub(crate) fn same_id(one: &Bson, other: &Bson) -> bool {
    one == other || matches!((key_of(one), key_of(other)), (Ok(one), Ok(other)) if one == other)
}

/// Returns the condition that a field has this value. A filter takes a document whose first name begins with `$` for
/// operators and a regular expression for a pattern, which would match other documents than the one that a caller
/// names. Other values are conditions of their own, by which a store finds an `_id` without choosing a plan.
pub(crate) fn equal(value: &Bson) -> Bson {
    if is_condition(value) { doc! { "$eq": value.clone() }.into() } else { value.clone() }
}

/// Returns the condition that a field has one of these values. It leaves out a value that `$in` takes for a pattern or
/// refuses: no `_id` can be one.
pub(crate) fn one_of(values: impl IntoIterator<Item = Bson>) -> Document {
    doc! { "$in": values.into_iter().filter(|value| !is_condition(value)).collect::<Vec<_>>() }
}

/// Returns whether a filter takes a value for a condition and not for a value to be compared with.
pub(crate) fn is_condition(value: &Bson) -> bool {
    match value {
        Bson::RegularExpression(_) => true,
        Bson::Document(document) => document.keys().next().is_some_and(|name| name.starts_with('$')),
        _ => false,
    }
}

/// Returns the integer at a path; 0 if the field is missing. Any numeric type will do, because shells write numbers in
/// several.
pub(crate) fn integer(document: &Document, path: &str) -> Result<i64> {
    match at_path(document, path) {
        None => Ok(0),
        Some(Bson::Int32(number)) => Ok(i64::from(*number)),
        Some(Bson::Int64(number)) => Ok(*number),
        Some(Bson::Double(number)) if number.fract() == 0.0 && number.abs() < 9e15 => Ok(*number as i64),
        Some(other) => Err(Error::invalid(format!("its {path} is {other}, not an integer"))),
    }
}

/// Returns the integer at a path, which must be 0 or more; 0 if the field is missing.
pub(crate) fn count(document: &Document, path: &str) -> Result<u32> {
    let number = integer(document, path)?;
    u32::try_from(number).map_err(|_| Error::invalid(format!("its {path} is {number}, not from 0 to {}", u32::MAX)))
}

/// Returns the time at a path, which is stored as a number of milliseconds; zero if the field is missing.
pub(crate) fn millis(document: &Document, path: &str) -> Result<Duration> {
    let number = integer(document, path)?;
    let millis = u64::try_from(number);
    millis.map(Duration::from_millis).map_err(|_| Error::invalid(format!("its {path} is {number}, less than 0")))
}

/// Returns the string of a field.
pub(crate) fn string<'a>(document: &'a Document, field: &str) -> Result<&'a str> {
    typed(document, field, "a string", Bson::as_str)
}

/// Returns the value that the string of a field stands for, such as a state.
pub(crate) fn parsed<T: FromStr<Err: Display>>(document: &Document, field: &str) -> Result<T> {
    let text = string(document, field)?;
    text.parse::<T>().map_err(|error| Error::invalid(format!("its {field} is {text}, but {error}")))
}

/// Returns the date of a field.
pub(crate) fn date(document: &Document, field: &str) -> Result<DateTime> {
    typed(document, field, "a date", |value| value.as_datetime().copied())
}

/// Returns the ObjectId of a field.
pub(crate) fn object_id(document: &Document, field: &str) -> Result<ObjectId> {
    typed(document, field, "an ObjectId", Bson::as_object_id)
}

/// Returns the Boolean value of a field.
pub(crate) fn boolean(document: &Document, field: &str) -> Result<bool> {
    typed(document, field, "true or false", Bson::as_bool)
}

/// Returns the document of a field.
pub(crate) fn subdocument<'a>(document: &'a Document, field: &str) -> Result<&'a Document> {
    typed(document, field, "a document", Bson::as_document)
}

/// Returns the array of a field.
pub(crate) fn array<'a>(document: &'a Document, field: &str) -> Result<&'a [Bson]> {
    typed(document, field, "an array", |value| value.as_array().map(Vec::as_slice))
}

/// Returns the value of a field, as `read` converts it.
///
/// # Errors
/// [`Error::Invalid`] if the field is missing or has another type than `expected`. The message names all of these.
pub(crate) fn typed<'a, T>(
    document: &'a Document,
    field: &str,
    expected: &str,
    read: impl FnOnce(&'a Bson) -> Option<T>,
) -> Result<T> {
    match document.get(field) {
        None => Err(Error::invalid(format!("its {field} is missing; it must be {expected}"))),
        Some(value) => read(value).ok_or_else(|| Error::invalid(format!("its {field} is {value}, not {expected}"))),
    }
}

/// Returns the value at a path through documents, such as `a.b`. The path does not lead into arrays.
pub(crate) fn at_path<'a>(document: &'a Document, path: &str) -> Option<&'a Bson> {
    match path.split_once('.') {
        None => document.get(path),
        Some((first, rest)) => at_path(document.get(first)?.as_document()?, rest),
    }
}

/// Sets the value at a path through documents, and makes those that are missing.
///
/// # Errors
/// [`Error::Invalid`] if a value on the path is not a document.
pub(crate) fn set_path(document: &mut Document, path: &str, value: Bson) -> Result<()> {
    let Some((first, rest)) = path.split_once('.') else {
        document.insert(path, value);
        return Ok(());
    };
    match document.entry(first.to_owned()).or_insert_with(|| Bson::Document(Document::new())) {
        Bson::Document(inner) => set_path(inner, rest, value),
        other => Err(Error::invalid(format!("{first} is {other}, and {path} leads through it"))),
    }
}

/// Removes the value at a path through documents.
pub(crate) fn remove_path(document: &mut Document, path: &str) {
    match path.split_once('.') {
        None => _ = document.remove(path),
        Some((first, rest)) => {
            if let Some(Bson::Document(inner)) = document.get_mut(first) {
                remove_path(inner, rest);
            }
        }
    }
}

/// Returns whether two values have the same bytes: 1 and 1.0 do not, a NaN and itself do.
pub(crate) fn identical(one: Option<&Bson>, other: Option<&Bson>) -> bool {
    let bytes = |value: Option<&Bson>| value.map(|value| raw(&doc! { "": value.clone() }).ok());
    one == other || bytes(one) == bytes(other)
}
