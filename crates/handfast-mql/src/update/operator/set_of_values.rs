//! Values that are distinct in BSON order: `1` and `1.0` are one, `{a: 1, b: 2}` and `{b: 2, a: 1}` are two.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use bson::RawBsonRef;

use crate::{Collation, order};

/// A set of values that are compared in BSON order. A search for n values among m takes n log m steps: `$addToSet` and `$pullAll`
/// of two long arrays must not stop the server.
pub(super) struct SetOfValues<'v> {
    values: BTreeSet<OrderedValue<'v>>,
    collation: Option<&'v Collation>,
}

struct OrderedValue<'v>(RawBsonRef<'v>, Option<&'v Collation>);

impl<'v> SetOfValues<'v> {
    /// Creates an empty set whose strings are compared by a collation.
    pub(super) fn new(collation: Option<&'v Collation>) -> Self {
        SetOfValues { values: BTreeSet::new(), collation }
    }

    /// Adds a value, and returns `false` if the set contained it.
    pub(super) fn insert(&mut self, value: RawBsonRef<'v>) -> bool {
        self.values.insert(OrderedValue(value, self.collation))
    }

    pub(super) fn contains(&self, value: RawBsonRef<'v>) -> bool {
        self.values.contains(&OrderedValue(value, self.collation))
    }
}

impl Ord for OrderedValue<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        order::compare_under(self.0, other.0, self.1)
    }
}

impl PartialOrd for OrderedValue<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for OrderedValue<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for OrderedValue<'_> {}
