//! `$cmp`, `$eq`, `$ne`, `$gt`, `$gte`, `$lt`, `$lte`: the order of values across all types; nothing is converted.

use std::cmp::Ordering;

use super::{node::Function, value::Value};
use crate::{collation::Collation, error::Result};

pub(crate) const FUNCTIONS: &[Function] = &[
    Function::two_under("$cmp", |left, right, collation| Ok((left.compare(&right, collation) as i32).into())),
    Function::two_under("$eq", |left, right, collation| is(&left, &right, collation, Ordering::is_eq)),
    Function::two_under("$ne", |left, right, collation| is(&left, &right, collation, Ordering::is_ne)),
    Function::two_under("$gt", |left, right, collation| is(&left, &right, collation, Ordering::is_gt)),
    Function::two_under("$gte", |left, right, collation| is(&left, &right, collation, Ordering::is_ge)),
    Function::two_under("$lt", |left, right, collation| is(&left, &right, collation, Ordering::is_lt)),
    Function::two_under("$lte", |left, right, collation| is(&left, &right, collation, Ordering::is_le)),
];

fn is<'a>(
    left: &Value<'_>,
    right: &Value<'_>,
    collation: Option<&Collation>,
    holds: fn(Ordering) -> bool,
) -> Result<Value<'a>> {
    Ok(holds(left.compare(right, collation)).into())
}
