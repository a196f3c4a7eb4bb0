//! The fields of a projection as a tree.

use std::collections::HashMap;

use crate::expression::Expression;
use crate::{Code, Error, Filter, Result};
#[derive(Debug)]
pub(super) enum Node {
    Include,
    Exclude,
    /// The fields below it have projections of their own.
    Fields(FieldTree),
    /// An array is cut to some of its elements.
    Slice(Slice),
    /// An array is cut to its first element that matches `{field: {$elemMatch: ..}}`; any other value is left out.
    ElementMatch(Filter),
    /// An array is cut to the element that the query matched.
    Positional,
    Compute(Expression),
}

/// The fields in the order of the projection.
#[derive(Debug, Default)]
pub(super) struct FieldTree {
    fields: Vec<(String, Node)>,
    positions: HashMap<String, usize>,
    adds_fields: bool,
    has_positional: bool,
}

/// The elements of an array that `$slice` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slice {
    /// The number of elements to pass over; if negative, the distance of the first one from the array's end.
    pub(super) skip: i64,
    pub(super) limit: usize,
}

impl Slice {
    /// Returns the slice of the first `count` elements, or of the last ones if `count` is negative.
    pub(super) fn count(count: i64) -> Self {
        let limit = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
        Slice { skip: count.min(0), limit }
    }

    /// Returns the indexes of the elements to show.
    pub(super) fn range(self, length: usize) -> std::ops::Range<usize> {
        let distance = usize::try_from(self.skip.unsigned_abs()).unwrap_or(usize::MAX);
        let start = if self.skip < 0 { length.saturating_sub(distance) } else { distance.min(length) };
        start..start.saturating_add(self.limit).min(length)
    }
}

impl Node {
    /// Tells whether the node writes values that are not in the field. Such fields follow those of the document,
    /// and appear even if the document lacks them.
    pub(super) fn adds_fields(&self) -> bool {
        match self {
            Node::Compute(_) | Node::ElementMatch(_) => true,
            Node::Fields(tree) => tree.adds_fields,
            _ => false,
        }
    }
}

impl FieldTree {
    /// Returns the node of a field and its position in the projection.
    pub(super) fn get(&self, name: &str) -> Option<(usize, &Node)> {
        // Most projections name a few fields: comparing the names is faster than hashing.
        const FEW: usize = 8;
        let position = if self.fields.len() <= FEW {
            self.fields.iter().position(|(field, _)| field == name)?
        } else {
            *self.positions.get(name)?
        };
        self.fields.get(position).map(|(_, node)| (position, node))
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.positions.contains_key(name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.fields.iter().map(|(name, node)| (name.as_str(), node))
    }

    pub(super) fn len(&self) -> usize {
        self.fields.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Tells whether a node of the tree [adds fields](Node::adds_fields).
    pub(super) fn adds_fields(&self) -> bool {
        self.adds_fields
    }
    pub(super) fn has_positional(&self) -> bool {
        self.has_positional
    }

    /// Adds a node at a dotted path.
    ///
    /// # Errors
    /// 31249 and 31250: another path of the projection ends here, or goes through here.
    pub(super) fn insert(&mut self, path: &str, node: Node) -> Result<()> {
        let adds_fields = node.adds_fields();
        let is_positional = matches!(node, Node::Positional);
        let mut tree = self;
        let mut start = 0;
        for name in path.split('.') {
            tree.adds_fields |= adds_fields;
            tree.has_positional |= is_positional;
            let end = start + name.len();
            if end == path.len() {
                if tree.contains(name) {
                    return Err(Error::new(Code(31250), format!("Path collision at {path}")));
                }
                tree.push(name, node);
                return Ok(());
            }
            let position = match tree.positions.get(name) {
                Some(position) => *position,
                None => tree.push(name, Node::Fields(FieldTree::default())),
            };
            let Some((_, Node::Fields(next))) = tree.fields.get_mut(position) else {
                let rest = path.get(end + 1..).unwrap_or_default();
                return Err(Error::new(Code(31249), format!("Path collision at {path} remaining portion {rest}")));
            };
            tree = next;
            start = end + 1;
        }
        Ok(())
    }

    fn push(&mut self, name: &str, node: Node) -> usize {
        let position = self.fields.len();
        self.fields.push((name.to_owned(), node));
        self.positions.insert(name.to_owned(), position);
        position
    }
}
