//! A request for one `_id` and nothing else: what applications ask for most.
//!
//! A store may answer it by reading one key: no filter compiled, no plan chosen. That is what the long way would answer:
//! values that a filter compares by equality alone have equal keys exactly if they are equal, and no other document can
//! have that `_id`.

use bson::{RawBsonRef, RawDocument};

use crate::Find;

impl Find {
    /// The `_id` that it asks for, if it asks for nothing else.
    pub fn id_alone(&self) -> Option<RawBsonRef<'_>> {
        let plain = self.projection.is_empty()
            && self.sort.is_empty()
            && self.variables.is_empty()
            && self.skip == 0
            && self.limit != Some(0)
            && self.hint.is_none()
            && self.min.is_none()
            && self.max.is_none()
            && !self.return_key
            && !self.show_record_id;
        if plain { id_alone(&self.filter) } else { None }
    }
}

/// The `_id` that a filter asks for, if it asks for nothing else.
pub fn id_alone(filter: &RawDocument) -> Option<RawBsonRef<'_>> {
    let mut fields = filter.iter();
    let (name, value) = fields.next()?.ok()?;
    (name == "_id" && is_compared_whole(value) && fields.next().is_none()).then_some(value)
}

/// Whether a filter compares a value of this type for equality and does nothing else with it: a document may hold
/// operators, an array is also looked for among elements, a pattern is matched, null also means missing.
fn is_compared_whole(value: RawBsonRef<'_>) -> bool {
    matches!(
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
    )
}
