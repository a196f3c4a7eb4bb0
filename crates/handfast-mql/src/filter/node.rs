//! A compiled filter as a tree: read-only, for code that derives something from a filter (index bounds, upsert fields).

use std::sync::Arc;

use bson::{RawBson, RawBsonRef};

use super::{bits::BitTest, regex::RegexTest, types::TypeSet};
use crate::{Collation, Context, Path, Result, Schema, expression::Expression, order};

/// A condition on a document.
#[derive(Clone, Debug)]
pub enum Node {
    /// Holds if all of the conditions hold; an empty list always holds.
    And(Vec<Node>),
    /// Holds if at least one of the conditions holds; an empty list never holds.
    Or(Vec<Node>),
    /// Holds if none of the conditions holds.
    Nor(Vec<Node>),
    /// Holds if the condition does not hold (`$ne`, `$nin`, `$not`, `$exists: false`).
    Not(Box<Node>),
    /// Holds if at least one of the values at a path fulfils a predicate.
    Field(FieldNode),
    /// Holds if the aggregation expression is true (`$expr`).
    Expression(Arc<Expression>),
    /// Holds if the document has the form (`$jsonSchema`).
    Schema(Arc<Schema>),
}

impl Node {
    /// Returns the field conditions that hold wherever this one does: itself, and those within `$and` (and an `$or` of one).
    pub fn conjuncts(&self) -> impl Iterator<Item = &FieldNode> {
        self.conjunct_nodes().filter_map(|node| match node {
            Node::Field(field) => Some(field),
            _ => None,
        })
    }

    /// Returns the conditions that hold wherever this one does, each of which is no conjunction.
    pub(super) fn conjunct_nodes(&self) -> impl Iterator<Item = &Node> {
        let mut pending = vec![self];
        std::iter::from_fn(move || {
            while let Some(node) = pending.pop() {
                match node {
                    Node::And(all) => pending.extend(all.iter().rev()),
                    Node::Or(one) if one.len() == 1 => pending.extend(one),
                    other => return Some(other),
                }
            }
            None
        })
    }
}

/// A path and the predicate on its values.
#[derive(Clone, Debug)]
pub struct FieldNode {
    pub(super) path: Path,
    pub(super) predicate: Predicate,
}

impl FieldNode {
    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the predicate.
    pub fn predicate(&self) -> &Predicate {
        &self.predicate
    }
}

/// A comparison of a value with an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// `$eq`, or a literal.
    Equal,
    /// `$lt`.
    Less,
    /// `$lte`.
    LessOrEqual,
    /// `$gt`.
    Greater,
    /// `$gte`.
    GreaterOrEqual,
}

/// A predicate on one value.
#[derive(Clone, Debug)]
pub enum Predicate {
    /// The value compares in this way with the operand, and (but for MinKey and MaxKey) is of the operand's group of types.
    Compare(Comparison, Operand),
    /// The value equals one of these values or matches one of the regular expressions.
    In(Choices),
    /// The value is a string that matches, or the same regular expression.
    Regex(RegexTest),
    /// The value is not missing.
    Exists,
    /// The value is of one of the types.
    Type(TypeSet),
    /// The value is a number that leaves this remainder.
    Modulo {
        /// The divisor, which is not 0.
        divisor: i64,
        /// The remainder as written, so that one out of range matches no number.
        remainder: i64,
    },
    /// The value is an array with this number of elements.
    Size(i64),
    /// The value is an array with a document (or array) that fulfils all conditions at once.
    ElementDocument(Box<Node>),
    /// The value is an array with an element that fulfils all predicates at once.
    ElementValue(Vec<ElementNode>),
    /// The bits of the value pass the test.
    Bits(BitTest),
}

/// A condition on one element of an array.
#[derive(Clone, Debug)]
pub enum ElementNode {
    /// The element fulfils the predicate.
    Is(Predicate),
    /// The element does not fulfil all of these conditions.
    Not(Vec<ElementNode>),
    /// All of these conditions hold (`$all`). If the element is an array, each may be fulfilled by another value of it.
    Every(Vec<ElementNode>),
    /// The condition never holds.
    Never,
}

impl ElementNode {
    /// Returns the same condition on the values of a path.
    pub(super) fn at(self, path: &Path) -> Node {
        match self {
            ElementNode::Is(predicate) => Node::Field(FieldNode { path: path.clone(), predicate }),
            ElementNode::Not(all) => Node::Not(Box::new(conjunction(all, path))),
            ElementNode::Every(all) => Node::And(all.into_iter().map(|node| node.at(path)).collect()),
            ElementNode::Never => Node::Or(Vec::new()),
        }
    }
}

/// Returns the conjunction of conditions on the values of a path; a single condition is returned as it is.
pub(super) fn conjunction(all: Vec<ElementNode>, path: &Path) -> Node {
    let mut all: Vec<Node> = all.into_iter().map(|node| node.at(path)).collect();
    match (all.pop(), all.is_empty()) {
        (Some(only), true) => only,
        (last, _) => {
            all.extend(last);
            Node::And(all)
        }
    }
}

/// Joins conditions of which one must hold. If all of them compare the values of one path, they become an `$in`, which is
/// one search, and an index has bounds for it.
///
/// ```text
/// {$or: [{a: 1}, {a: {$in: [2, 3]}}]}   ->   {a: {$in: [1, 2, 3]}}
/// ```
pub(super) fn disjunction(branches: Vec<Node>, collation: Option<&Collation>) -> Node {
    let path = match branches.first() {
        Some(Node::Field(first))
            if branches.len() > 1 && branches.iter().all(|node| compares_values_at(node, &first.path)) =>
        {
            first.path.clone()
        }
        _ => return Node::Or(branches),
    };
    let (mut values, mut patterns) = (Vec::new(), Vec::new());
    for branch in branches {
        match branch {
            Node::Field(FieldNode { predicate: Predicate::Compare(_, value), .. }) => values.push(value),
            Node::Field(FieldNode { predicate: Predicate::In(choices), .. }) => {
                values.extend(choices.values);
                patterns.extend(choices.patterns);
            }
            _ => {}
        }
    }
    Node::Field(FieldNode { path, predicate: Predicate::In(Choices::new(values, patterns, collation)) })
}

/// Tells whether a condition compares the values of a path. `$in` would search by a regular expression instead of comparing it.
fn compares_values_at(node: &Node, path: &Path) -> bool {
    let Node::Field(field) = node else { return false };
    let compares = match &field.predicate {
        Predicate::Compare(Comparison::Equal, operand) => !matches!(operand.value(), RawBsonRef::RegularExpression(_)),
        Predicate::In(_) => true,
        _ => false,
    };
    compares && field.path == *path
}

/// A value to compare with.
#[derive(Clone, Debug, PartialEq)]
pub struct Operand(RawBson);

impl Operand {
    pub(super) fn new(value: RawBsonRef<'_>) -> Self {
        Operand(RawBson::from(value))
    }

    /// Returns the value.
    pub fn value(&self) -> RawBsonRef<'_> {
        self.0.as_raw_bson_ref()
    }
}

/// The operand of `$in`.
#[derive(Clone, Debug)]
pub struct Choices {
    /// The values in ascending order, without duplicates.
    values: Vec<Operand>,
    patterns: Vec<RegexTest>,
}

impl Choices {
    pub(super) fn new(mut values: Vec<Operand>, patterns: Vec<RegexTest>, collation: Option<&Collation>) -> Self {
        values.sort_by(|a, b| order::compare_under(a.value(), b.value(), collation));
        values.dedup_by(|a, b| order::compare_under(a.value(), b.value(), collation).is_eq());
        Choices { values, patterns }
    }

    /// Returns the values, in ascending order and without duplicates.
    pub fn values(&self) -> &[Operand] {
        &self.values
    }

    /// Returns the regular expressions.
    pub fn patterns(&self) -> &[RegexTest] {
        &self.patterns
    }

    /// Tells whether one of the values equals this one, under the collation that they were sorted by.
    pub(super) fn contain(&self, value: RawBsonRef<'_>, collation: Option<&Collation>) -> bool {
        self.values.binary_search_by(|choice| order::compare_under(choice.value(), value, collation)).is_ok()
    }

    pub(super) fn accept(
        &self,
        value: RawBsonRef<'_>,
        collation: Option<&Collation>,
        context: &Context,
    ) -> Result<bool> {
        if self.contain(value, collation) {
            return Ok(true);
        }
        for pattern in &self.patterns {
            if pattern.accepts(value, context)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
