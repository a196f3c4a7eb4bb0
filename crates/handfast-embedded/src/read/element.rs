//! The conditions of an `$elemMatch` on one element of an array, as bounds on several fields of an index at once.
//!
//! ```text
//! index  {"changes.account": 1, "changes.seqId": 1}
//! filter {changes: {$elemMatch: {account: "A", seqId: {$gt: 7}}}}      ("A", 7) .. the end of "A"
//! filter {"changes.account": "A", "changes.seqId": {$gt: 7}}           all of "A": two elements may match
//! ```
//!
//! The keys of a document combine the values of one element, so an element that matches all conditions has its key within the
//! bounds. That holds for fields of the element itself; deeper fields may lie in another array with other elements.

use handfast_mql::filter::{FieldNode, NecessaryConditions, Node, Predicate};

use super::bounds::{Interval, of_predicate, tightest};
use crate::catalog::CollectionIndex;

/// The condition of an `$elemMatch`.
pub(crate) struct Element<'f> {
    /// The path of the array.
    array: &'f str,
    condition: &'f Node,
}

impl<'f> Element<'f> {
    /// Returns the `$elemMatch` that bounds the first field with arrays of an index, and the most other fields.
    pub(crate) fn of(index: &CollectionIndex, conditions: &'f NecessaryConditions<'_>) -> Option<Self> {
        let first = index.multikey.trailing_zeros() as usize;
        let elements = conditions.fields().filter_map(Element::of_field);
        let bounding = elements.filter(|element| element.intervals(index, first).is_some());
        let fields = index.spec().key.iter().count();
        bounding
            .max_by_key(|element| (0..fields).filter(|&position| element.intervals(index, position).is_some()).count())
    }

    fn of_field(field: &'f FieldNode) -> Option<Self> {
        match field.predicate() {
            Predicate::ElementDocument(condition) => Some(Element { array: field.path().as_str(), condition }),
            _ => None,
        }
    }

    /// Returns the values that a field of an index has for an element that matches; `None` if there is no useful bound.
    pub(crate) fn intervals(&self, index: &CollectionIndex, position: usize) -> Option<Vec<Interval>> {
        let (name, _) = index.spec().key.iter().nth(position)?.ok()?;
        let inner = name.as_str().strip_prefix(self.array)?.strip_prefix('.')?;
        if inner.contains('.') || index.index.is_positional(position) {
            return None;
        }
        let asked = self.condition.conjuncts().filter(|field| field.path().as_str() == inner);
        // The field may itself be an array, and then each condition may match another value of it.
        tightest(asked.filter_map(|field| of_predicate(field.predicate(), index.index.collation())))
    }
}

#[cfg(test)]
mod tests;
