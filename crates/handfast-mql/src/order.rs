//! The order of values of all types.
//!
//! MongoDB documents one order over all values ("Comparison/Sort Order" in its manual). First by type:
//!
//! ```text
//! MinKey < Null < numbers < String, Symbol < Object < Array < Binary < ObjectId < Boolean
//!        < Date < Timestamp < Regex < DBPointer < Code < Code with scope < MaxKey
//! ```
//!
//! then by value within the type:
//! - Undefined (deprecated) counts as null.
//! - Numbers by their mathematical value, whatever their type: `NumberInt(1)` equals `1.0` equals
//!   `NumberDecimal("1.00")`, and `NumberLong(2^53 + 1)` is more than the double next to it. `NaN` equals itself and comes
//!   before all others; `-0.0` equals `0`.
//! - Strings by their bytes, or by a [`Collation`].
//! - Objects field by field, in their stored order: type, then name, then value; one that is a prefix of the other comes
//!   first. Arrays element by element.
//! - Binary values by length, then subtype, then bytes.
//! - Timestamps unsigned, dates signed.
//!
//! Values are read in place; nothing is copied. The functions recurse over nesting: bytes from outside pass
//! [`depth::check`](crate::depth::check) first. Should bytes be malformed all the same, a document ends where its first error is.

use std::cmp::Ordering;

use bson::{RawArray, RawBsonRef, RawDocument};

use crate::collation::Collation;
use crate::element::db_pointer_parts;
use crate::number::Number;

/// Returns the place of a value's type in the order: equal for types that compare with each other (all numbers; String
/// and Symbol; Null and Undefined).
pub fn type_rank(value: RawBsonRef<'_>) -> u8 {
    match value {
        RawBsonRef::MinKey => 0,
        RawBsonRef::Undefined | RawBsonRef::Null => 5,
        RawBsonRef::Int32(_) | RawBsonRef::Int64(_) | RawBsonRef::Double(_) | RawBsonRef::Decimal128(_) => 10,
        RawBsonRef::String(_) | RawBsonRef::Symbol(_) => 15,
        RawBsonRef::Document(_) => 20,
        RawBsonRef::Array(_) => 25,
        RawBsonRef::Binary(_) => 30,
        RawBsonRef::ObjectId(_) => 35,
        RawBsonRef::Boolean(_) => 40,
        RawBsonRef::DateTime(_) => 45,
        RawBsonRef::Timestamp(_) => 47,
        RawBsonRef::RegularExpression(_) => 50,
        RawBsonRef::DbPointer(_) => 55,
        RawBsonRef::JavaScriptCode(_) => 60,
        RawBsonRef::JavaScriptCodeWithScope(_) => 65,
        RawBsonRef::MaxKey => 127,
    }
}

/// A way to compare strings. The functions below are compiled once for each, so that the comparison of bytes asks for no collation.
trait TextOrder {
    fn texts(&self, a: &str, b: &str) -> Ordering;
}

struct Bytes;

impl TextOrder for Bytes {
    fn texts(&self, a: &str, b: &str) -> Ordering {
        a.as_bytes().cmp(b.as_bytes())
    }
}

impl TextOrder for Collation {
    fn texts(&self, a: &str, b: &str) -> Ordering {
        Collation::compare(self, a, b)
    }
}

/// Compares two values of any types.
pub fn compare(a: RawBsonRef<'_>, b: RawBsonRef<'_>) -> Ordering {
    values(a, b, &Bytes)
}

/// Compares two values of any types, their strings (also those inside) by a collation.
pub fn compare_under(a: RawBsonRef<'_>, b: RawBsonRef<'_>, collation: Option<&Collation>) -> Ordering {
    match collation {
        None => values(a, b, &Bytes),
        Some(collation) => values(a, b, collation),
    }
}

/// Compares two documents field by field.
pub fn compare_documents(a: &RawDocument, b: &RawDocument) -> Ordering {
    documents(a, b, &Bytes)
}

/// Compares two arrays element by element. The names of the elements ("0", "1", ..) do not count.
pub fn compare_arrays(a: &RawArray, b: &RawArray) -> Ordering {
    arrays(a, b, &Bytes)
}

fn values(a: RawBsonRef<'_>, b: RawBsonRef<'_>, text: &impl TextOrder) -> Ordering {
    type_rank(a).cmp(&type_rank(b)).then_with(|| compare_within_rank(a, b, text))
}

fn documents(a: &RawDocument, b: &RawDocument, text: &impl TextOrder) -> Ordering {
    let (mut left, mut right) = (a.iter().map_while(Result::ok), b.iter().map_while(Result::ok));
    loop {
        let ((left_name, left_value), (right_name, right_value)) = match (left.next(), right.next()) {
            (Some(left), Some(right)) => (left, right),
            (left, right) => return left.is_some().cmp(&right.is_some()),
        };
        let order = type_rank(left_value)
            .cmp(&type_rank(right_value))
            .then_with(|| left_name.as_str().cmp(right_name.as_str()))
            .then_with(|| compare_within_rank(left_value, right_value, text));
        if order.is_ne() {
            return order;
        }
    }
}

fn arrays(a: &RawArray, b: &RawArray, text: &impl TextOrder) -> Ordering {
    let (mut left, mut right) = (a.into_iter().map_while(Result::ok), b.into_iter().map_while(Result::ok));
    loop {
        let (left_value, right_value) = match (left.next(), right.next()) {
            (Some(left), Some(right)) => (left, right),
            (left, right) => return left.is_some().cmp(&right.is_some()),
        };
        let order = values(left_value, right_value, text);
        if order.is_ne() {
            return order;
        }
    }
}

fn compare_within_rank(a: RawBsonRef<'_>, b: RawBsonRef<'_>, text: &impl TextOrder) -> Ordering {
    use RawBsonRef as V;
    if let (Some(a), Some(b)) = (Number::of(a), Number::of(b)) {
        return a.compare(&b);
    }
    match (a, b) {
        (V::String(a) | V::Symbol(a), V::String(b) | V::Symbol(b)) => text.texts(a, b),
        (V::Document(a), V::Document(b)) => documents(a, b, text),
        (V::Array(a), V::Array(b)) => arrays(a, b, text),
        (V::Binary(a), V::Binary(b)) => (a.bytes.len().cmp(&b.bytes.len()))
            .then_with(|| u8::from(a.subtype).cmp(&u8::from(b.subtype)))
            .then_with(|| a.bytes.cmp(b.bytes)),
        (V::ObjectId(a), V::ObjectId(b)) => a.bytes().cmp(&b.bytes()),
        (V::Boolean(a), V::Boolean(b)) => a.cmp(&b),
        (V::DateTime(a), V::DateTime(b)) => a.timestamp_millis().cmp(&b.timestamp_millis()),
        (V::Timestamp(a), V::Timestamp(b)) => (a.time, a.increment).cmp(&(b.time, b.increment)),
        (V::RegularExpression(a), V::RegularExpression(b)) => {
            (a.pattern.as_str()).cmp(b.pattern.as_str()).then_with(|| a.options.as_str().cmp(b.options.as_str()))
        }
        (V::DbPointer(_), V::DbPointer(_)) => db_pointer_parts(a).cmp(&db_pointer_parts(b)),
        (V::JavaScriptCode(a), V::JavaScriptCode(b)) => a.cmp(b),
        (V::JavaScriptCodeWithScope(a), V::JavaScriptCodeWithScope(b)) => {
            a.code.cmp(b.code).then_with(|| documents(a.scope, b.scope, text))
        }
        // MinKey, MaxKey, null and undefined have no values within their rank.
        _ => Ordering::Equal,
    }
}

#[cfg(test)]
mod tests;
