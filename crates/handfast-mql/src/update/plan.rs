//! All paths of one update as a tree, so that a document is walked once and paths that contradict each other are found
//! when the update is compiled.
//!
//! ```text
//! {$set: {"a.b": 1}, $inc: {"a.c": 1, "l.$[x].n": 1}}
//!
//! Fields { a: Fields { b: Leaf($set), c: Leaf($inc) }, l: Elements { $[x]: Fields { n: Leaf($inc) } } }
//! ```
//!
//! Fields are kept in the order in which MongoDB adds new ones, whatever order the update names them in.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::{Code, Error, Result};

use super::path::{Component, FieldName, UpdatePath};

/// A key in the tree.
#[derive(Clone, Debug)]
pub(super) enum Node {
    /// An operator applies here.
    Leaf(Leaf),
    /// The paths go on with field names, indexes or `$`.
    Fields(Children),
    /// The paths go on with `$[]` or `$[name]`.
    Elements(Children),
}

/// An operator by its index in the update's list: a tree can be merged at run time without copying operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leaf {
    pub(super) operator: usize,
}

/// The nodes below a field or an array element.
pub(super) type Children = BTreeMap<Key, Node>;

/// A step of a path. Below one node all steps are of the first two kinds, or all of the last two.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// `$`
    Positional,
    /// A field or an index.
    Field(FieldName),
    /// `$[]`
    Every,
    /// `$[name]`, by the filter's index in the list.
    Filter(usize),
}

/// Adds an operator at a path. `filter` finds the array filter of a name.
///
/// # Errors
/// `ConflictingUpdateOperators` (40) if another operator is at the path, above it or below it.
pub(super) fn insert(
    root: &mut Children,
    path: &UpdatePath,
    leaf: Leaf,
    mut filter: impl FnMut(&str) -> Result<usize>,
) -> Result<()> {
    let conflict = |depth: usize| {
        let message = format!("Updating the path '{}' would create a conflict at '{}'", path.text, path.prefix(depth));
        Err(Error::new(Code::ConflictingUpdateOperators, message))
    };
    let mut children = root;
    let mut rest = path.components.iter().enumerate().peekable();
    while let Some((depth, component)) = rest.next() {
        let key = match component {
            Component::Positional => Key::Positional,
            Component::Field(name) => Key::Field(name.clone()),
            Component::Every => Key::Every,
            Component::Filtered(identifier) => Key::Filter(filter(identifier)?),
        };
        let Some((_, next)) = rest.peek() else {
            match children.entry(key) {
                Entry::Occupied(_) => return conflict(depth + 1),
                Entry::Vacant(entry) => entry.insert(Node::Leaf(leaf)),
            };
            return Ok(());
        };
        let elements = matches!(next, Component::Every | Component::Filtered(_));
        let empty = if elements { Node::Elements(Children::new()) } else { Node::Fields(Children::new()) };
        children = match children.entry(key).or_insert(empty) {
            Node::Fields(fields) if !elements => fields,
            Node::Elements(selected) if elements => selected,
            _ => return conflict(depth + 1),
        };
    }
    Ok(())
}

/// Merges the nodes of several selectors that all select the same array element.
///
/// # Errors
/// `ConflictingUpdateOperators` (40) if two of them change the same path; `at` is the path so far.
pub(super) fn merge(nodes: &[&Node], at: &str) -> Result<Node> {
    let Some((first, rest)) = nodes.split_first() else { return Ok(Node::Fields(Children::new())) };
    rest.iter().try_fold((*first).clone(), |merged, node| merge_two(merged, node, at))
}

fn merge_two(into: Node, from: &Node, at: &str) -> Result<Node> {
    match (into, from) {
        (Node::Fields(into), Node::Fields(from)) => Ok(Node::Fields(merge_children(into, from, at)?)),
        (Node::Elements(into), Node::Elements(from)) => Ok(Node::Elements(merge_children(into, from, at)?)),
        _ => Err(Error::new(Code::ConflictingUpdateOperators, format!("Update created a conflict at '{at}'"))),
    }
}

fn merge_children(mut into: Children, from: &Children, at: &str) -> Result<Children> {
    for (key, node) in from {
        let merged = match into.remove(key) {
            Some(present) => merge_two(present, node, &format!("{at}.{key}"))?,
            None => node.clone(),
        };
        into.insert(key.clone(), merged);
    }
    Ok(into)
}

/// Returns the fields with `$` replaced by its index.
pub(super) fn resolve_positional(children: &Children, index: usize, at: &str) -> Result<Children> {
    let mut resolved = children.clone();
    if let Some(positional) = resolved.remove(&Key::Positional) {
        let key = Key::Field(FieldName::new(index.to_string()));
        let merged = match resolved.remove(&key) {
            Some(present) => merge_two(present, &positional, &format!("{at}.{index}"))?,
            None => positional,
        };
        resolved.insert(key, merged);
    }
    Ok(resolved)
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Key::Positional => f.write_str("$"),
            Key::Field(name) => f.write_str(name.as_str()),
            Key::Every => f.write_str("$[]"),
            Key::Filter(index) => write!(f, "$[{index}]"),
        }
    }
}
