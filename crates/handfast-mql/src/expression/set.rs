//! Operators that read arrays as sets: equal values (in the order of values, so `1` and `1.0`) count once.

use std::collections::HashSet;

use bson::RawBsonRef;

use super::{
    array::{collect, sort_items},
    node::{Arity, Function},
    value::{self, Value},
};
use crate::{
    collation::Collation,
    error::{Code, Error, Result},
    key, order,
};

pub(crate) const FUNCTIONS: &[Function] = &[
    Function::many_under("$setUnion", Arity::AtLeast(0), union),
    Function::many_under("$setIntersection", Arity::AtLeast(0), intersection),
    Function::two_under("$setDifference", difference),
    Function::many_under("$setEquals", Arity::AtLeast(2), equals),
    Function::two_under("$setIsSubset", is_subset),
    Function::one("$anyElementTrue", |value| elements_true(&value, "$anyElementTrue", 17_041, true)),
    Function::one("$allElementsTrue", |value| elements_true(&value, "$allElementsTrue", 17_040, false)),
];

/// Returns the items of an array, sorted, each once (the first of equal ones).
fn set_of<'v>(
    value: &'v Value<'_>,
    collation: Option<&Collation>,
    code: i32,
    message: impl FnOnce(&str) -> String,
) -> Result<Vec<RawBsonRef<'v>>> {
    let Some(array) = value.as_array() else {
        return Err(Error::new(Code(code), message(value.type_name())));
    };
    let mut items = value::items(array).collect::<Result<Vec<_>>>()?;
    sort_items(&mut items, collation);
    items.dedup_by(|later, first| order::compare_under(*later, *first, collation).is_eq());
    Ok(items)
}

fn holds(set: &[RawBsonRef<'_>], item: RawBsonRef<'_>, collation: Option<&Collation>) -> bool {
    set.binary_search_by(|known| order::compare_under(*known, item, collation)).is_ok()
}

fn union<'a>(arguments: Vec<Value<'a>>, collation: Option<&Collation>) -> Result<Value<'a>> {
    let mut all = Vec::new();
    for argument in &arguments {
        if argument.is_nullish() {
            return Ok(Value::NULL);
        }
        all.extend(set_of(argument, collation, 17_043, |kind| {
            format!("All operands of $setUnion must be arrays. One argument is of type: {kind}")
        })?);
    }
    sort_items(&mut all, collation);
    all.dedup_by(|later, first| order::compare_under(*later, *first, collation).is_eq());
    Ok(collect(all)?.into())
}

fn intersection<'a>(arguments: Vec<Value<'a>>, collation: Option<&Collation>) -> Result<Value<'a>> {
    let mut common: Option<Vec<RawBsonRef<'_>>> = None;
    for argument in &arguments {
        if argument.is_nullish() {
            return Ok(Value::NULL);
        }
        let set = set_of(argument, collation, 17_047, |kind| {
            format!("All operands of $setIntersection must be arrays. One argument is of type: {kind}")
        })?;
        common = Some(match common {
            None => set,
            Some(mut common) => {
                common.retain(|item| holds(&set, *item, collation));
                common
            }
        });
    }
    Ok(collect(common.unwrap_or_default())?.into())
}

fn difference<'a>(left: Value<'a>, right: Value<'a>, collation: Option<&Collation>) -> Result<Value<'a>> {
    if left.is_nullish() || right.is_nullish() {
        return Ok(Value::NULL);
    }
    let Some(items) = left.as_array() else {
        return Err(Error::new(
            Code(17_048),
            format!("both operands of $setDifference must be arrays. First argument is of type: {}", left.type_name()),
        ));
    };
    let right = set_of(&right, collation, 17_049, |kind| {
        format!("both operands of $setDifference must be arrays. Second argument is of type: {kind}")
    })?;
    // The items stay in the order of the first array.
    let mut seen = HashSet::new();
    let mut kept = Vec::new();
    for item in value::items(items) {
        let item = item?;
        if holds(&right, item, collation) {
            continue;
        }
        if seen.insert(key::encoded_under(item, collation)) {
            kept.push(item);
        }
    }
    Ok(collect(kept)?.into())
}

fn equals<'a>(arguments: Vec<Value<'a>>, collation: Option<&Collation>) -> Result<Value<'a>> {
    let mut sets = Vec::new();
    for (index, argument) in arguments.iter().enumerate() {
        sets.push(set_of(argument, collation, 17_044, |kind| {
            format!("All operands of $setEquals must be arrays. {}-th argument is of type: {kind}", index + 1)
        })?);
    }
    let same = |left: &Vec<RawBsonRef<'_>>, right: &Vec<RawBsonRef<'_>>| {
        left.len() == right.len()
            && left.iter().zip(right).all(|(a, b)| order::compare_under(*a, *b, collation).is_eq())
    };
    Ok(sets.windows(2).all(|pair| same(&pair[0], &pair[1])).into())
}

fn is_subset<'a>(left: Value<'a>, right: Value<'a>, collation: Option<&Collation>) -> Result<Value<'a>> {
    let left = set_of(&left, collation, 17_046, |kind| {
        format!("both operands of $setIsSubset must be arrays. First argument is of type: {kind}")
    })?;
    let right = set_of(&right, collation, 17_042, |kind| {
        format!("both operands of $setIsSubset must be arrays. Second argument is of type: {kind}")
    })?;
    Ok(left.iter().all(|item| holds(&right, *item, collation)).into())
}

/// Tells whether the array has an item that decides the result: a true one (`any`) or a false one (`all`).
fn elements_true<'a>(value: &Value<'_>, operator: &str, code: i32, any: bool) -> Result<Value<'a>> {
    let Some(array) = value.as_array() else {
        return Err(Error::new(
            Code(code),
            format!("{operator}'s argument must be an array, but is {}", value.type_name()),
        ));
    };
    for item in value::items(array) {
        if value::is_true(item?) == any {
            return Ok(any.into());
        }
    }
    Ok((!any).into())
}
