//! Equality of values in schemas, which does not depend on the order of fields.

use bson::{RawArray, RawBsonRef, RawDocument};

use crate::{Context, Result, order, path};

/// Tells whether two values are equal, whatever the order of the fields of documents is.
pub(super) fn same(one: RawBsonRef<'_>, other: RawBsonRef<'_>) -> bool {
    match (one, other) {
        (RawBsonRef::Document(one), RawBsonRef::Document(other)) => same_fields(one, other),
        (RawBsonRef::Array(one), RawBsonRef::Array(other)) => same_items(one, other),
        (one, other) => order::compare(one, other).is_eq(),
    }
}

fn same_fields(one: &RawDocument, other: &RawDocument) -> bool {
    one.iter_elements().count() == other.iter_elements().count()
        && one.into_iter().all(|element| {
            element.is_ok_and(|(name, value)| path::field(other, name.as_str()).is_some_and(|found| same(value, found)))
        })
}

fn same_items(one: &RawArray, other: &RawArray) -> bool {
    let (mut ones, mut others) = (one.into_iter(), other.into_iter());
    loop {
        match (ones.next(), others.next()) {
            (None, None) => return true,
            (Some(Ok(one)), Some(Ok(other))) if same(one, other) => {}
            _ => return false,
        }
    }
}

/// Returns an item that an array has twice.
pub(super) fn duplicate<'a>(array: &'a RawArray, context: &Context) -> Result<Option<RawBsonRef<'a>>> {
    let items = array.into_iter().collect::<std::result::Result<Vec<_>, _>>()?;
    // Equal values but documents are beside each other in the order. Documents, also in arrays, are compared one by one.
    let (mut nested, mut plain): (Vec<_>, Vec<_>) =
        items.into_iter().partition(|item| matches!(item, RawBsonRef::Document(_) | RawBsonRef::Array(_)));
    plain.sort_by(|one, other| order::compare(*one, *other));
    for pair in plain.windows(2) {
        if let [one, other] = pair
            && order::compare(*one, *other).is_eq()
        {
            return Ok(Some(*one));
        }
    }
    while let Some(item) = nested.pop() {
        context.steps(nested.len() as u64)?;
        if nested.iter().any(|other| same(item, *other)) {
            return Ok(Some(item));
        }
    }
    Ok(None)
}
