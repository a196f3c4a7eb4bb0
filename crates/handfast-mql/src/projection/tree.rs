//! The fields of a projection as a tree.

use std::collections::HashMap;

use crate::expression::Expression;
use crate::{Code, Error, Filter, Result};

/// What happens to a field.
#[derive(Debug)]
pub(super) enum Node {
    /// It is shown.
    Include,
    /// It is left out.
    Exclude,
    /// Some of its fields are named.
    Fields(Children),
    /// An array is cut.
    Slice(Slice),
    /// The first element that matches, if it is an array with one: the filter is `{field: {$elemMatch: ..}}`.
    ElementMatch(Filter),
    /// The element that the query matched.
    Positional,
    /// It is computed.
    Compute(Expression),
}

/// Fields in the order of the projection.
#[derive(Debug, Default)]
pub(super) struct Children {
    fields: Vec<(String, Node)>,
    places: HashMap<String, usize>,
}

/// `$slice`: how many of an array's elements, from where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slice {
    /// How many to pass over; from the end, if negative.
    pub(super) skip: i64,
    /// How many to show.
    pub(super) limit: usize,
}

impl Slice {
    /// The first `count`, or the last if negative.
    pub(super) fn count(count: i64) -> Self {
        let limit = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
        Slice { skip: count.min(0), limit }
    }

    /// The range of elements of an array.
    pub(super) fn range(self, length: usize) -> std::ops::Range<usize> {
        let distance = usize::try_from(self.skip.unsigned_abs()).unwrap_or(usize::MAX);
        let start = if self.skip < 0 { length.saturating_sub(distance) } else { distance.min(length) };
        start..start.saturating_add(self.limit).min(length)
    }
}

impl Node {
    /// Whether something in it does not come from the field that is there: it is written after the others, and also if
    /// the field is not there.
    pub(super) fn adds(&self) -> bool {
        match self {
            Node::Compute(_) | Node::ElementMatch(_) => true,
            Node::Fields(children) => children.iter().any(|(_, node)| node.adds()),
            _ => false,
        }
    }

    /// Whether `$` is in it.
    pub(super) fn has_positional(&self) -> bool {
        match self {
            Node::Positional => true,
            Node::Fields(children) => children.iter().any(|(_, node)| node.has_positional()),
            _ => false,
        }
    }
}

impl Children {
    pub(super) fn get(&self, name: &str) -> Option<&Node> {
        // Most projections name a few fields: looking at them is faster than hashing.
        const FEW: usize = 8;
        if self.fields.len() <= FEW {
            return self.fields.iter().find(|(field, _)| field == name).map(|(_, node)| node);
        }
        self.places.get(name).and_then(|&place| self.fields.get(place)).map(|(_, node)| node)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.fields.iter().map(|(name, node)| (name.as_str(), node))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Adds a node at a path.
    ///
    /// # Errors
    /// 31249, 31250: another path leads there, or goes through it.
    pub(super) fn insert(&mut self, path: &str, node: Node) -> Result<()> {
        let mut children = self;
        let mut start = 0;
        for name in path.split('.') {
            let end = start + name.len();
            if end == path.len() {
                if children.places.contains_key(name) {
                    return Err(Error::new(Code(31250), format!("Path collision at {path}")));
                }
                children.push(name, node);
                return Ok(());
            }
            let place = match children.places.get(name) {
                Some(place) => *place,
                None => children.push(name, Node::Fields(Children::default())),
            };
            let Some((_, Node::Fields(next))) = children.fields.get_mut(place) else {
                let rest = path.get(end + 1..).unwrap_or_default();
                return Err(Error::new(Code(31249), format!("Path collision at {path} remaining portion {rest}")));
            };
            children = next;
            start = end + 1;
        }
        Ok(())
    }

    fn push(&mut self, name: &str, node: Node) -> usize {
        let place = self.fields.len();
        self.fields.push((name.to_owned(), node));
        self.places.insert(name.to_owned(), place);
        place
    }
}
