//! `$push`, with `$each`, `$position`, `$sort` and `$slice`: values are added, then the array is sorted, then it is cut.

use std::cmp::Ordering;

use bson::RawBsonRef;

use crate::element::{Element, OwnedElement, elements, find};
use crate::{Code, Collation, Context, Error, Result, bson_type, order};

use super::super::growth::array_bytes;
use super::super::tree::{Container, Value};
use super::{Scope, Target, id_field};

/// The values of a `$push` and its modifiers.
#[derive(Debug)]
pub(in crate::update) struct Push {
    values: Vec<OwnedElement>,
    /// The position, which counts from the end if it is negative.
    position: Option<i64>,
    sort: Option<PushSort>,
    /// The first or, if negative, the last elements.
    slice: Option<i64>,
}

#[derive(Debug)]
enum PushSort {
    /// The elements themselves are compared.
    Whole(Direction),
    /// Fields of the elements are compared, each by a path and a direction.
    Fields(Vec<(Vec<String>, Direction)>),
}

#[derive(Clone, Copy, Debug)]
enum Direction {
    Ascending,
    Descending,
}

impl Push {
    pub(super) fn compile(operand: Element<'_>) -> Result<Self> {
        let plain = |value: RawBsonRef<'_>| Push {
            values: vec![OwnedElement::new(value)],
            position: None,
            sort: None,
            slice: None,
        };
        let Some(clauses) = operand.as_document()? else { return Ok(plain(operand.value()?)) };
        if find(clauses, "$each")?.is_none() {
            return Ok(plain(operand.value()?));
        }
        let mut push = Push { values: Vec::new(), position: None, sort: None, slice: None };
        for clause in elements(clauses) {
            let clause = clause?;
            match clause.name() {
                "$each" => push.values = each(clause)?,
                "$position" => push.position = Some(integer("position", ", not of type:", clause.value()?)?),
                "$slice" => push.slice = Some(integer("slice", " but was given type:", clause.value()?)?),
                "$sort" => push.sort = Some(PushSort::compile(clause.value()?)?),
                other => return Err(bad(format!("Unrecognized clause in $push: {other}"))),
            }
        }
        Ok(push)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = Element<'_>> {
        self.values.iter().map(OwnedElement::element)
    }

    pub(super) fn apply<'a>(&'a self, target: Target<'_, 'a>, scope: &Scope<'_, '_>) -> Result<bool> {
        if target.at.is_none() {
            let mut array = Container::array(self.values().map(Value::Borrowed));
            target.growth.reserve(self.growth_bytes(&mut array, scope.context)?)?;
            return target.assign(Value::Open(array));
        }
        let name = target.name.as_str();
        let (array, growth) = target.into_array(|value| {
            bad(format!(
                "The field '{name}' must be an array but is of type {} in document {{{}}}",
                bson_type::type_name(value),
                id_field(scope.document)
            ))
        })?;
        array.insert(insertion_index(self.position, array.len()), self.values().map(Value::Borrowed));
        growth.reserve(self.growth_bytes(array, scope.context)?)?;
        // Sorting and slicing may have undone the change: the caller compares the bytes.
        Ok(true)
    }

    /// Sorts and cuts the array that the values are in. Gives the bytes by which it is larger than before them, at least:
    /// elements that are cut off do not count.
    fn growth_bytes(&self, array: &mut Container<'_>, context: &Context) -> Result<usize> {
        if let Some(sort) = &self.sort {
            // Each element is compared as often as the number of elements has digits in base two.
            let length = array.len() as u64;
            context.steps(length.saturating_mul(length.checked_ilog2().unwrap_or(0).into()))?;
            let order = sort.order(array, context.collation())?;
            array.reorder(&order);
        }
        let length = array.len();
        let cut = match self.slice {
            Some(count) if count >= 0 => array.keep_range(0..length.min(saturating(count))),
            Some(count) => array.keep_range(length.saturating_sub(saturating(count))..length),
            None => 0,
        };
        Ok(array_bytes(self.values()).saturating_sub(cut))
    }
}

/// Returns the index before which `$position` puts values.
fn insertion_index(position: Option<i64>, length: usize) -> usize {
    match position {
        Some(index) if index >= 0 => length.min(saturating(index)),
        Some(index) => length.saturating_sub(saturating(index)),
        None => length,
    }
}

fn saturating(count: i64) -> usize {
    usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX)
}

fn bad(message: impl Into<String>) -> Error {
    Error::new(Code::BadValue, message)
}

fn each(clause: Element<'_>) -> Result<Vec<OwnedElement>> {
    let Some(values) = clause.as_array()? else {
        let kind = bson_type::type_name(clause.value()?);
        return Err(bad(format!("The argument to $each in $push must be an array but it was of type: {kind}")));
    };
    elements(values).map(|value| Ok(OwnedElement::new(value?.value()?))).collect()
}

fn integer(clause: &str, but: &str, value: RawBsonRef<'_>) -> Result<i64> {
    whole_number(value).ok_or_else(|| {
        bad(format!("The value for ${clause} must be an integer value{but} {}", bson_type::type_name(value)))
    })
}

/// Returns the number, if it is one without a fraction, of any type.
pub(super) fn whole_number(value: RawBsonRef<'_>) -> Option<i64> {
    match value {
        RawBsonRef::Int32(number) => Some(i64::from(number)),
        RawBsonRef::Int64(number) => Some(number),
        // 2^63 itself does not fit.
        RawBsonRef::Double(number) if number.fract() == 0.0 && number.abs() < 9_223_372_036_854_775_808.0 => {
            Some(number as i64)
        }
        RawBsonRef::Decimal128(number) => number.to_string().parse().ok(),
        _ => None,
    }
}

impl Direction {
    fn of(value: RawBsonRef<'_>) -> Option<Self> {
        match whole_number(value)? {
            1 => Some(Direction::Ascending),
            -1 => Some(Direction::Descending),
            _ => None,
        }
    }

    fn apply(self, ordering: Ordering) -> Ordering {
        match self {
            Direction::Ascending => ordering,
            Direction::Descending => ordering.reverse(),
        }
    }
}

impl PushSort {
    fn compile(value: RawBsonRef<'_>) -> Result<Self> {
        let invalid =
            "The $sort is invalid: use 1/-1 to sort the whole element, or {field:1/-1} to sort embedded fields";
        let RawBsonRef::Document(pattern) = value else {
            return Direction::of(value).map(PushSort::Whole).ok_or_else(|| bad(invalid));
        };
        let mut fields = Vec::new();
        for field in pattern.iter() {
            let (path, direction) = field?;
            let path: Vec<String> = path.as_str().split('.').map(str::to_owned).collect();
            if path.iter().all(String::is_empty) && path.len() == 1 {
                return Err(bad("The $sort field cannot be empty"));
            }
            if path.iter().any(String::is_empty) {
                return Err(bad(format!(
                    "The $sort field is a dotted field but has an empty part: {}",
                    path.join(".")
                )));
            }
            let direction =
                Direction::of(direction).ok_or_else(|| bad("The $sort element value must be either 1 or -1"))?;
            fields.push((path, direction));
        }
        if fields.is_empty() {
            return Err(bad("The $sort pattern is empty when it should be a set of fields."));
        }
        Ok(PushSort::Fields(fields))
    }

    /// Returns the indexes of the elements in the order of the sort, which is stable.
    fn order(&self, array: &Container<'_>, collation: Option<&Collation>) -> Result<Vec<usize>> {
        let mut order: Vec<usize> = (0..array.len()).collect();
        let values: Vec<RawBsonRef<'_>> = order
            .iter()
            .map(|&at| array.element(at).map_or(Ok(RawBsonRef::Null), |element| element.value()))
            .collect::<Result<_>>()?;
        match self {
            PushSort::Whole(direction) => {
                order.sort_by(|&a, &b| direction.apply(order::compare_under(values[a], values[b], collation)));
            }
            PushSort::Fields(fields) => {
                let keys: Vec<Vec<RawBsonRef<'_>>> = values
                    .iter()
                    .map(|&value| fields.iter().map(|(path, _)| field_at(value, path)).collect())
                    .collect::<Result<_>>()?;
                order.sort_by(|&a, &b| {
                    let pairs = keys[a].iter().zip(&keys[b]).zip(fields);
                    pairs
                        .map(|((&a, &b), (_, direction))| direction.apply(order::compare_under(a, b, collation)))
                        .find(|ordering| ordering.is_ne())
                        .unwrap_or(Ordering::Equal)
                });
            }
        }
        Ok(order)
    }
}

/// Returns the value at a path of embedded documents, `null` if there is none.
fn field_at<'v>(value: RawBsonRef<'v>, path: &[String]) -> Result<RawBsonRef<'v>> {
    let mut value = value;
    for name in path {
        let inside = match value {
            RawBsonRef::Document(document) => find(document, name)?,
            _ => None,
        };
        value = match inside {
            Some(element) => element.value()?,
            None => return Ok(RawBsonRef::Null),
        };
    }
    Ok(value)
}
