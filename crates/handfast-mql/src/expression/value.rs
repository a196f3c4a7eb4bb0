//! The result of an expression: no value, a value that is borrowed from the input, or a value that an operator made.
//!
//! Scalars are copied, strings, documents and arrays of the input are borrowed; only a value that an operator makes is
//! owned. `Missing` is no BSON value: an absent field, `$$REMOVE` and an index out of range give it. In the
//! order of values it comes before null, inside an array it becomes null, as a field of an object it leaves the field out.

use std::cmp::Ordering;

use bson::{
    DateTime, RawArray, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf,
    raw::{CStr, RawElement},
};

use super::limits;
pub(crate) use crate::bson_type::type_name;
use crate::{
    collation::Collation,
    error::{Code, Error, Result},
    order,
};

/// The result of an expression.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// The value of an absent field.
    Missing,
    /// A value that lives in the input, in the expression, or fits in the reference itself.
    Ref(RawBsonRef<'a>),
    /// A value that an operator made.
    Owned(RawBson),
}

impl<'a> Value<'a> {
    pub(crate) const NULL: Value<'static> = Value::Ref(RawBsonRef::Null);

    /// Returns the value by reference, `None` if missing.
    pub fn get(&self) -> Option<RawBsonRef<'_>> {
        match self {
            Value::Missing => None,
            Value::Ref(value) => Some(*value),
            Value::Owned(value) => Some(value.as_raw_bson_ref()),
        }
    }

    /// Returns the value by reference, null if missing.
    pub fn or_null(&self) -> RawBsonRef<'_> {
        self.get().unwrap_or(RawBsonRef::Null)
    }

    /// Returns the value itself, `None` if missing.
    pub fn into_owned(self) -> Option<RawBson> {
        match self {
            Value::Missing => None,
            Value::Ref(value) => Some(to_owned(value)),
            Value::Owned(value) => Some(value),
        }
    }

    /// Returns the bytes of a string, document, array or binary that an operator made.
    pub(crate) fn made_bytes(&self) -> Option<usize> {
        match self {
            Value::Owned(RawBson::String(text)) => Some(text.len()),
            Value::Owned(RawBson::Array(array)) => Some(array.as_bytes().len()),
            Value::Owned(RawBson::Document(document)) => Some(document.as_bytes().len()),
            Value::Owned(RawBson::Binary(binary)) => Some(binary.bytes.len()),
            _ => None,
        }
    }

    /// Returns the value without borrowing from the input.
    pub(crate) fn detach<'b>(self) -> Value<'b> {
        match self {
            Value::Missing => Value::Missing,
            Value::Ref(value) => detach(value),
            Value::Owned(value) => Value::Owned(value),
        }
    }

    /// Tells whether there is no value.
    pub fn is_missing(&self) -> bool {
        matches!(self, Value::Missing)
    }

    /// Tells whether the value is missing, null or undefined, for which most operators return null.
    pub fn is_nullish(&self) -> bool {
        matches!(self.get(), None | Some(RawBsonRef::Null | RawBsonRef::Undefined))
    }

    /// Tells whether the value counts as true: everything but missing, null, undefined, false and numeric zero.
    pub fn is_true(&self) -> bool {
        self.get().is_some_and(is_true)
    }

    /// Returns the result of `$type`: `missing` or one of MongoDB's aliases.
    pub fn type_name(&self) -> &'static str {
        self.get().map_or("missing", type_name)
    }

    /// Returns the order of values, where missing comes before null and equals undefined.
    pub fn compare(&self, other: &Value<'_>, collation: Option<&Collation>) -> Ordering {
        compare(self.get(), other.get(), collation)
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        match self.get()? {
            RawBsonRef::String(text) | RawBsonRef::Symbol(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn as_array(&self) -> Option<&RawArray> {
        self.get()?.as_array()
    }

    /// Returns the array argument of an operator; `None` for null and missing values, for which the operator returns null.
    pub(crate) fn array_or_null(&self, no_array: impl FnOnce(&Self) -> Error) -> Result<Option<&RawArray>> {
        match self.as_array() {
            Some(array) => Ok(Some(array)),
            None if self.is_nullish() => Ok(None),
            None => Err(no_array(self)),
        }
    }

    pub(crate) fn as_document(&self) -> Option<&RawDocument> {
        self.get()?.as_document()
    }

    /// Returns a part of the value that `pick` finds: borrowed where the value is, else copied.
    pub(crate) fn narrow(
        self,
        pick: impl for<'x> FnOnce(RawBsonRef<'x>) -> Result<Option<RawBsonRef<'x>>>,
    ) -> Result<Value<'a>> {
        Ok(match self {
            Value::Missing => Value::Missing,
            Value::Ref(value) => pick(value)?.map_or(Value::Missing, Value::Ref),
            Value::Owned(value) => pick(value.as_raw_bson_ref())?.map_or(Value::Missing, detach),
        })
    }

    /// Returns how MongoDB prints the value in messages.
    pub(crate) fn show(&self) -> String {
        self.get().map_or_else(|| "missing".to_owned(), show)
    }
}

impl<'a> From<Option<RawBsonRef<'a>>> for Value<'a> {
    fn from(value: Option<RawBsonRef<'a>>) -> Self {
        value.map_or(Value::Missing, Value::Ref)
    }
}

impl<'a> From<RawBsonRef<'a>> for Value<'a> {
    fn from(value: RawBsonRef<'a>) -> Self {
        Value::Ref(value)
    }
}

macro_rules! scalars {
    ($($type:ty => $variant:ident),+ $(,)?) => {
        $(impl From<$type> for Value<'_> {
            fn from(value: $type) -> Self {
                Value::Ref(RawBsonRef::$variant(value))
            }
        })+
    };
}

scalars! {
    bool => Boolean,
    i32 => Int32,
    i64 => Int64,
    f64 => Double,
    DateTime => DateTime,
}

macro_rules! made {
    ($($type:ty => $variant:ident),+ $(,)?) => {
        $(impl From<$type> for Value<'_> {
            fn from(value: $type) -> Self {
                Value::Owned(RawBson::$variant(value))
            }
        })+
    };
}

made! {
    String => String,
    RawArrayBuf => Array,
    RawDocumentBuf => Document,
}
pub(crate) fn to_owned(value: RawBsonRef<'_>) -> RawBson {
    RawBson::from(value)
}

/// Returns the value without borrowing from the input: scalars stay in the reference, all else is copied.
pub(crate) fn detach<'b>(value: RawBsonRef<'_>) -> Value<'b> {
    Value::Ref(match value {
        RawBsonRef::Double(x) => RawBsonRef::Double(x),
        RawBsonRef::Int32(x) => RawBsonRef::Int32(x),
        RawBsonRef::Int64(x) => RawBsonRef::Int64(x),
        RawBsonRef::Boolean(x) => RawBsonRef::Boolean(x),
        RawBsonRef::Null => RawBsonRef::Null,
        RawBsonRef::Undefined => RawBsonRef::Undefined,
        RawBsonRef::DateTime(x) => RawBsonRef::DateTime(x),
        RawBsonRef::ObjectId(x) => RawBsonRef::ObjectId(x),
        RawBsonRef::Timestamp(x) => RawBsonRef::Timestamp(x),
        RawBsonRef::Decimal128(x) => RawBsonRef::Decimal128(x),
        other => return Value::Owned(to_owned(other)),
    })
}

pub(crate) fn is_true(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Null | RawBsonRef::Undefined => false,
        RawBsonRef::Boolean(x) => x,
        RawBsonRef::Int32(x) => x != 0,
        RawBsonRef::Int64(x) => x != 0,
        RawBsonRef::Double(x) => x != 0.0,
        RawBsonRef::Decimal128(_) => order::compare(value, RawBsonRef::Int32(0)) != Ordering::Equal,
        _ => true,
    }
}

pub(crate) fn compare(
    left: Option<RawBsonRef<'_>>,
    right: Option<RawBsonRef<'_>>,
    collation: Option<&Collation>,
) -> Ordering {
    match (left, right) {
        (None, None | Some(RawBsonRef::Undefined)) | (Some(RawBsonRef::Undefined), None) => Ordering::Equal,
        (None, Some(RawBsonRef::MinKey)) => Ordering::Greater,
        (Some(RawBsonRef::MinKey), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Less,
        (Some(_), None) => Ordering::Greater,
        (Some(left), Some(right)) => order::compare_under(left, right, collation),
    }
}

/// Returns how MongoDB prints a value in messages; long ones are cut.
pub(crate) fn show(value: RawBsonRef<'_>) -> String {
    const SHOWN_CHARS_MAX: usize = 200;
    let mut out = String::new();
    show_into(value, &mut out);
    if out.chars().count() > SHOWN_CHARS_MAX {
        out = out.chars().take(SHOWN_CHARS_MAX).collect();
        out.push_str("...");
    }
    out
}

fn show_into(value: RawBsonRef<'_>, out: &mut String) {
    const SHOWN_BYTES_ENOUGH: usize = 1000;
    if out.len() > SHOWN_BYTES_ENOUGH {
        return;
    }
    match value {
        RawBsonRef::String(text) => {
            out.push('"');
            out.push_str(text);
            out.push('"');
        }
        RawBsonRef::Array(array) => {
            out.push('[');
            for (index, item) in array.into_iter().flatten().enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                show_into(item, out);
            }
            out.push(']');
        }
        RawBsonRef::Document(document) => {
            out.push('{');
            for (index, (key, item)) in document.iter().flatten().enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                out.push_str(key.as_str());
                out.push_str(": ");
                show_into(item, out);
            }
            out.push('}');
        }
        RawBsonRef::Null => out.push_str("null"),
        RawBsonRef::Undefined => out.push_str("undefined"),
        RawBsonRef::Boolean(x) => out.push_str(if x { "true" } else { "false" }),
        RawBsonRef::Int32(x) => out.push_str(&x.to_string()),
        RawBsonRef::Int64(x) => out.push_str(&x.to_string()),
        RawBsonRef::Double(x) => out.push_str(&super::convert::double_text(x)),
        RawBsonRef::Decimal128(x) => out.push_str(&super::convert::decimal_text(x)),
        RawBsonRef::ObjectId(x) => out.push_str(&format!("ObjectId('{x}')")),
        RawBsonRef::DateTime(x) => out.push_str(&super::date::iso_text(x.timestamp_millis())),
        RawBsonRef::MinKey => out.push_str("MinKey"),
        RawBsonRef::MaxKey => out.push_str("MaxKey"),
        RawBsonRef::RegularExpression(x) => out.push_str(&format!("/{}/{}", x.pattern, x.options)),
        RawBsonRef::Timestamp(x) => out.push_str(&format!("Timestamp({}, {})", x.time, x.increment)),
        other => out.push_str(type_name(other)),
    }
}

/// Appends to a document; a key with a NUL byte, which BSON cannot hold, is an error.
pub(crate) fn append(document: &mut RawDocumentBuf, key: &str, value: RawBsonRef<'_>) -> Result<()> {
    document.append(key_of(key)?, value);
    limits::check_bytes(document.as_bytes().len())
}

/// Appends to an array, within the bound for values.
pub(crate) fn push(array: &mut RawArrayBuf, value: RawBsonRef<'_>) -> Result<()> {
    array.push(value);
    limits::check_bytes(array.as_bytes().len())
}

/// Returns a field name as BSON holds it.
pub(crate) fn key_of(key: &str) -> Result<&CStr> {
    <&CStr>::try_from(key)
        .map_err(|_| Error::new(Code(4_940_400), "field names cannot contain an embedded null byte".to_owned()))
}

/// Returns the elements of a document, broken bytes as errors of this crate.
pub(crate) fn elements(document: &RawDocument) -> impl Iterator<Item = Result<RawElement<'_>>> {
    document.iter_elements().map(|element| element.map_err(Error::from))
}

/// Returns the fields of a document, broken bytes as errors of this crate.
pub(crate) fn fields(document: &RawDocument) -> impl Iterator<Item = Result<(&CStr, RawBsonRef<'_>)>> {
    document.iter().map(|field| field.map_err(Error::from))
}

/// Returns the items of an array, broken bytes as errors of this crate.
pub(crate) fn items(array: &RawArray) -> impl Iterator<Item = Result<RawBsonRef<'_>>> {
    array.into_iter().map(|item| item.map_err(Error::from))
}
