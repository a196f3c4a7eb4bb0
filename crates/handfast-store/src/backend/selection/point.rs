//! Recognises a request for one `_id` without any other condition, the most frequent request of applications.
//!
//! A store may answer it by reading one key, without compiling a filter or choosing a plan. The result is the same: values that
//! a filter compares by equality alone have equal keys exactly if they are equal, and no other document can have that `_id`.

use bson::{RawBsonRef, RawDocument};
use handfast_mql::collation::{self, compares_text};

use crate::Find;

impl Find {
    /// Returns the `_id` that the find compares with, if it has no other condition.
    pub fn id_alone(&self) -> Option<RawBsonRef<'_>> {
        let plain = self.projection.is_empty()
            && self.sort.is_empty()
            && has_no_variables(&self.variables)
            && self.skip == 0
            && self.limit != Some(0)
            && self.hint.is_none()
            && self.min.is_none()
            && self.max.is_none()
            && !self.return_key
            && !self.show_record_id;
        if plain { alone(&self.filter) } else { None }
    }
}

/// Returns the `_id` that a filter compares with, if it has no other condition and no collation makes other values equal to it.
pub fn id_alone<'f>(filter: &'f RawDocument, variables: &RawDocument) -> Option<RawBsonRef<'f>> {
    alone(filter).filter(|id| is_one_value(*id, variables))
}

/// Returns whether only this value equals it, under the collation among these variables.
fn is_one_value(id: RawBsonRef<'_>, variables: &RawDocument) -> bool {
    !compares_text(id) || collation::is_simple(variables)
}

/// Returns whether a request has no variables but the simple collation.
fn has_no_variables(variables: &RawDocument) -> bool {
    variables.is_empty()
        || (variables.iter().count() == 1 && collation::is_named(variables) && collation::is_simple(variables))
}

fn alone(filter: &RawDocument) -> Option<RawBsonRef<'_>> {
    let mut fields = filter.iter();
    let (name, value) = fields.next()?.ok()?;
    (name == "_id" && is_compared_whole(value) && fields.next().is_none()).then_some(value)
}

/// Returns the `_id` that a filter compares with, whatever other conditions it has, if no collation makes other values equal to it.
pub fn named_id<'f>(filter: &'f RawDocument, variables: &RawDocument) -> Option<RawBsonRef<'f>> {
    let id = filter.get("_id").ok().flatten().filter(|value| is_compared_whole(*value));
    id.filter(|id| is_one_value(*id, variables))
}

/// Returns whether a filter with this value is a plain comparison. A document of operators is none, an array also matches elements,
/// a regular expression is matched, and null also matches a missing field.
fn is_compared_whole(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Document(document) => is_value(document),
        value => matches!(
            value,
            RawBsonRef::ObjectId(_)
                | RawBsonRef::String(_)
                | RawBsonRef::Int32(_)
                | RawBsonRef::Int64(_)
                | RawBsonRef::Double(_)
                | RawBsonRef::Decimal128(_)
                | RawBsonRef::Binary(_)
                | RawBsonRef::DateTime(_)
                | RawBsonRef::Boolean(_)
        ),
    }
}

/// Returns whether a document is a value: the language decides by its first name whether it is one of operators. No `_id` has a name `$..`.
fn is_value(document: &RawDocument) -> bool {
    match document.iter().next() {
        Some(Ok((name, _))) => !name.as_str().starts_with('$'),
        Some(Err(_)) => false,
        None => true,
    }
}
