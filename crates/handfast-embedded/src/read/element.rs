//! What `$elemMatch` asks of one element of an array, as bounds on several fields of an index at once.
//!
//! ```text
//! index  {"changes.account": 1, "changes.seqId": 1}
//! filter {changes: {$elemMatch: {account: "A", seqId: {$gt: 7}}}}      ("A", 7) .. the end of "A"
//! filter {"changes.account": "A", "changes.seqId": {$gt: 7}}           all of "A": two elements may fulfil it
//! ```
//!
//! The keys of a document pair the values of one element, so the element that fulfils everything has its key within the
//! bounds. That holds for fields of the element itself; those further in may lie in another array, whose elements differ.

use handfast_mql::filter::{FieldNode, Filter, Node, Predicate};

use super::bounds::{Interval, of_predicate, tightest};
use crate::catalog::CollectionIndex;

/// The condition on an element.
pub(crate) struct Element<'f> {
    /// The path of the array.
    array: &'f str,
    condition: &'f Node,
}

impl<'f> Element<'f> {
    /// The one that bounds the first field with arrays of an index, and the most others.
    pub(crate) fn of(index: &CollectionIndex, filter: &'f Filter) -> Option<Self> {
        let first = index.multikey.trailing_zeros() as usize;
        let elements = filter.conjuncts().filter_map(Element::of_field);
        let bounding = elements.filter(|element| element.intervals(index, first).is_some());
        let fields = index.spec().key.iter().count();
        bounding.max_by_key(|element| (0..fields).filter(|&place| element.intervals(index, place).is_some()).count())
    }

    fn of_field(field: &'f FieldNode) -> Option<Self> {
        match field.predicate() {
            Predicate::ElementDocument(condition) => Some(Element { array: field.path().as_str(), condition }),
            _ => None,
        }
    }

    /// The values that a field of an index has for an element that fulfils the condition; none if there is no useful bound.
    pub(crate) fn intervals(&self, index: &CollectionIndex, place: usize) -> Option<Vec<Interval>> {
        let (name, _) = index.spec().key.iter().nth(place)?.ok()?;
        let inner = name.as_str().strip_prefix(self.array)?.strip_prefix('.')?;
        if inner.contains('.') || index.index.is_positional(place) {
            return None;
        }
        let asked = self.condition.conjuncts().filter(|field| field.path().as_str() == inner);
        // The field may itself be an array, and then another value of it may fulfil each.
        tightest(asked.filter_map(|field| of_predicate(field.predicate())))
    }
}

#[cfg(test)]
mod tests;
