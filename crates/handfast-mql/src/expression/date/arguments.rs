//! The arguments of operators on dates: dates, time zones, units.

use bson::{DateTime, RawBsonRef, oid::ObjectId};

use super::{unit::Unit, zone::Zone};
use crate::{
    error::{Code, Error, Result},
    expression::{
        convert::integer_of,
        node::{Node, Scope},
        value::{Value, type_name},
    },
};

/// Returns the instant of a date, a timestamp or an ObjectId, in milliseconds since 1970.
pub(super) fn millis_of(value: RawBsonRef<'_>) -> Option<i64> {
    match value {
        RawBsonRef::DateTime(time) => Some(time.timestamp_millis()),
        RawBsonRef::Timestamp(stamp) => Some(i64::from(stamp.time) * 1000),
        RawBsonRef::ObjectId(id) => Some(object_id_millis(id)),
        _ => None,
    }
}

/// Returns the time of an ObjectId in milliseconds. Its first four bytes are a signed number of seconds: that of an id with a first byte
/// of 0x80 or more is before 1970, as in MongoDB.
pub(crate) fn object_id_millis(id: ObjectId) -> i64 {
    let [a, b, c, d, ..] = id.bytes();
    i64::from(i32::from_be_bytes([a, b, c, d])) * 1000
}

/// Returns the instant of a value, or the error that it has none; `None` for null.
pub(super) fn instant(value: &Value<'_>) -> Result<Option<i64>> {
    match value.get() {
        None | Some(RawBsonRef::Null | RawBsonRef::Undefined) => Ok(None),
        Some(value) => millis_of(value).map(Some).ok_or_else(|| {
            Error::new(Code(16_006), format!("can't convert from BSON type {} to Date", type_name(value)))
        }),
    }
}

/// Returns the time zone an argument names: UTC if there is no argument, `None` for null.
pub(super) fn zone(operator: &str, node: Option<&Node>, scope: Scope<'_>) -> Result<Option<Zone>> {
    let Some(node) = node else { return Ok(Some(Zone::UTC)) };
    let value = node.evaluate(scope)?;
    if value.is_nullish() {
        return Ok(None);
    }
    match value.as_str() {
        Some(name) => Zone::parse(name).map(Some),
        None => Err(Error::new(
            Code(40_517),
            format!("{operator} requires the timezone to be a string, but got {}", value.type_name()),
        )),
    }
}

/// Returns the unit an argument names, `None` for null.
pub(super) fn unit(operator: &str, node: &Node, scope: Scope<'_>) -> Result<Option<Unit>> {
    let value = node.evaluate(scope)?;
    if value.is_nullish() {
        return Ok(None);
    }
    match value.as_str() {
        Some(name) => Unit::parse(name).map(Some),
        None => Err(Error::new(
            Code(5_439_013),
            format!("{operator} requires 'unit' to be a string, but got {}", value.type_name()),
        )),
    }
}

/// Returns a whole number argument, `None` for null.
pub(super) fn integer(value: &Value<'_>, error: impl FnOnce() -> Error) -> Result<Option<i64>> {
    if value.is_nullish() {
        return Ok(None);
    }
    value.get().and_then(integer_of).map(Some).ok_or_else(error)
}
pub(super) fn date_value<'a>(millis: i64) -> Value<'a> {
    DateTime::from_millis(millis).into()
}
