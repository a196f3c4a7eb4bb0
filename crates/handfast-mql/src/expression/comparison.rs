//! `$cmp`, `$eq`, `$ne`, `$gt`, `$gte`, `$lt`, `$lte`: the order of values across all types; nothing is converted.

use std::cmp::Ordering;

use super::{node::Function, value::Value};
use crate::error::Result;

pub(crate) const FUNCTIONS: &[Function] = &[
    Function::two("$cmp", |left, right| Ok((left.compare(&right) as i32).into())),
    Function::two("$eq", |left, right| is(&left, &right, Ordering::is_eq)),
    Function::two("$ne", |left, right| is(&left, &right, Ordering::is_ne)),
    Function::two("$gt", |left, right| is(&left, &right, Ordering::is_gt)),
    Function::two("$gte", |left, right| is(&left, &right, Ordering::is_ge)),
    Function::two("$lt", |left, right| is(&left, &right, Ordering::is_lt)),
    Function::two("$lte", |left, right| is(&left, &right, Ordering::is_le)),
];

fn is<'a>(left: &Value<'_>, right: &Value<'_>, holds: fn(Ordering) -> bool) -> Result<Value<'a>> {
    Ok(holds(left.compare(right)).into())
}
