//! The comparisons of fields with fixed values that an expression requires, from which a planner derives bounds of an index.
//!
//! ```text
//! {$eq: ["$a", 5]}                               a = 5
//! {$lt: ["$$limit", "$a.b"]}                     a.b > the value of the variable
//! {$and: [{$gte: ["$a", 1]}, {$ne: ["$b", 2]}]}  a >= 1
//! {$in: ["$a", ["x", "$$name"]]}                 a is in the list
//! {$or: [..]}, {$eq: ["$a", "$b"]}               nothing
//! ```
//!
//! A value is fixed if it is the same for all documents: a literal, a variable of the command or of the stage, `$$NOW`, or an
//! array or object of them. The variables of a `$let` inside the expression are not followed.

use bson::{RawBson, RawDocumentBuf};

use super::{
    Expression,
    node::{Node, Scope},
    path::{Base, FieldPath},
};
use crate::context::Context;

/// A comparison that holds for each document for which an expression is true.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FieldComparison {
    /// The dotted path of the field.
    pub(crate) path: String,
    pub(crate) operator: FieldOperator,
    /// The value that the field is compared with; `None` is a missing one.
    pub(crate) operand: Option<RawBson>,
}

/// An operator, with the field as its first argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldOperator {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
}

impl FieldOperator {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "$eq" => FieldOperator::Equal,
            "$lt" => FieldOperator::Less,
            "$lte" => FieldOperator::LessOrEqual,
            "$gt" => FieldOperator::Greater,
            "$gte" => FieldOperator::GreaterOrEqual,
            "$in" => FieldOperator::In,
            _ => return None,
        })
    }

    /// Returns the operator for exchanged arguments.
    fn exchanged(self) -> Option<Self> {
        Some(match self {
            FieldOperator::Equal => FieldOperator::Equal,
            FieldOperator::Less => FieldOperator::Greater,
            FieldOperator::LessOrEqual => FieldOperator::GreaterOrEqual,
            FieldOperator::Greater => FieldOperator::Less,
            FieldOperator::GreaterOrEqual => FieldOperator::LessOrEqual,
            FieldOperator::In => return None,
        })
    }
}

impl Expression {
    /// Returns comparisons that hold for each document for which the expression is true.
    pub(crate) fn field_comparisons(&self, context: &Context) -> Vec<FieldComparison> {
        let mut found = Vec::new();
        collect(&self.node, context, &mut found);
        found
    }
}

fn collect(node: &Node, context: &Context, found: &mut Vec<FieldComparison>) {
    match node {
        Node::Call(function, arguments) => {
            if let (Some(operator), [left, right]) = (FieldOperator::of(function.name), &arguments[..]) {
                found.extend(comparison(operator, left, right, context));
            }
        }
        // The depth of an expression is bounded.
        Node::Lazy(operator) => {
            operator.conjuncts().iter().for_each(|node| collect(node, context, found));
        }
        Node::Constant(_) | Node::Path(_) | Node::Object(_) | Node::Array(_) => {}
    }
}

fn comparison(operator: FieldOperator, left: &Node, right: &Node, context: &Context) -> Option<FieldComparison> {
    let (path, operator, operand) = match (field(left), field(right)) {
        (Some(path), None) => (path, operator, right),
        (None, Some(path)) => (path, operator.exchanged()?, left),
        _ => return None,
    };
    Some(FieldComparison { path: path.parts.join("."), operator, operand: fixed_value(operand, context)? })
}

/// Returns the path of a field of the document. An expression in a filter sees the whole document as `$$CURRENT`.
fn field(node: &Node) -> Option<&FieldPath> {
    match node {
        Node::Path(path) if matches!(path.base, Base::Root | Base::Current) && !path.parts.is_empty() => Some(path),
        _ => None,
    }
}

/// Returns the value of a part that is the same for all documents; `None` if it is not, or cannot be evaluated.
fn fixed_value(node: &Node, context: &Context) -> Option<Option<RawBson>> {
    if !is_fixed(node) {
        return None;
    }
    let nothing = RawDocumentBuf::new();
    let scope = Scope { root: &nothing, current: &nothing, context, frame: None, held_bytes: 0 };
    let value = node.evaluate(scope).ok()?;
    Some(value.into_owned())
}

fn is_fixed(node: &Node) -> bool {
    match node {
        Node::Constant(_) => true,
        Node::Path(path) => matches!(path.base, Base::Context(_) | Base::Now | Base::ClusterTime),
        Node::Array(items) => items.iter().all(is_fixed),
        Node::Object(fields) => fields.iter().all(|field| is_fixed(&field.node)),
        Node::Call(..) | Node::Lazy(_) => false,
    }
}
