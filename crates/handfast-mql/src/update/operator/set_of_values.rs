//! Values that are distinct in BSON order: `1` and `1.0` are one, `{a: 1, b: 2}` and `{b: 2, a: 1}` are two.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use bson::RawBsonRef;

use crate::order;

/// A set of values that are compared in BSON order. A search for n values among m takes n log m steps: `$addToSet` and `$pullAll`
/// of two long arrays must not stop the server.
pub(super) struct SetOfValues<'v>(BTreeSet<OrderedValue<'v>>);

struct OrderedValue<'v>(RawBsonRef<'v>);

impl<'v> SetOfValues<'v> {
    pub(super) fn new() -> Self {
        SetOfValues(BTreeSet::new())
    }

    /// Adds a value, and returns `false` if the set contained it.
    pub(super) fn insert(&mut self, value: RawBsonRef<'v>) -> bool {
        self.0.insert(OrderedValue(value))
    }

    pub(super) fn contains(&self, value: RawBsonRef<'v>) -> bool {
        self.0.contains(&OrderedValue(value))
    }
}

impl Ord for OrderedValue<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        order::compare(self.0, other.0)
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
