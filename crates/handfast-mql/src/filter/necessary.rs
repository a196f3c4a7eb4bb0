//! The conditions that every matching document fulfils. A planner derives bounds of an index from them.
//!
//! ```text
//! {a: 1, $and: [{b: {$gt: 2}}]}              a: 1, b: {$gt: 2}
//! {$expr: {$eq: ["$a", 1]}}                  a: 1
//! {$expr: {$in: ["$a", [1, "$$v"]]}}         a: {$in: [1, the value of v]}
//! {$expr: {$lt: ["$a", 1]}}                  a < 1 as a whole value
//! {$or: [..]}, {$nor: [..]}, ..              nothing
//! ```
//!
//! `$expr` compares in another way than a filter:
//!
//! - A value is compared as a whole, and an array on the path gives the array of the values below it. So an equality with a value that is no
//!   array holds only where the filter's equality holds as well: it implies the filter's, with all its rules for arrays and missing fields.
//! - `$lt`, `$lte`, `$gt` and `$gte` compare values of all types, and a missing field is less than null. They imply no filter: they are
//!   [`WholeComparison`]s, and so is an equality with an array or a missing value.
//!
//! A condition never says more than the filter, but the filter may say more: it is evaluated for each candidate.
//!
//! Source: MongoDB's documentation, "$expr (aggregation)" and "Comparison/Sort Order".

use std::borrow::Cow;
use std::cmp::Ordering;

use bson::{RawBson, RawBsonRef};

use super::node::{Choices, Comparison, FieldNode, Node, Operand, Predicate};
use crate::collation::compares_text;
use crate::expression::field_comparison::{FieldComparison, FieldOperator};
use crate::expression::{Expression, value};
use crate::{Collation, Context, Path};

/// The values of an `$in` in `$expr` that a planner looks at: longer lists are sorted for each plan, which costs more than the planner may.
const CHOICES_MAX: usize = 10_000;

/// The conditions that every document fulfils that matches a filter.
#[derive(Clone, Debug)]
pub struct NecessaryConditions<'f> {
    fields: Vec<Cow<'f, FieldNode>>,
    whole: Vec<WholeComparison>,
}

/// A comparison of `$expr`: of the value at a path as a whole, in the order of all types, where a missing field is less than null.
#[derive(Clone, Debug, PartialEq)]
pub struct WholeComparison {
    path: String,
    comparison: Comparison,
    operand: Option<RawBson>,
}

impl<'f> NecessaryConditions<'f> {
    /// Returns the conditions of a tree; without those whose result depends on the order of strings, if that of the index is another.
    pub(super) fn of(root: &'f Node, context: &Context, same_collation: bool) -> Self {
        let is_kept = |field: &FieldNode| same_collation || !depends_on_text(&field.predicate);
        let mut found = NecessaryConditions { fields: Vec::new(), whole: Vec::new() };
        for node in root.conjunct_nodes() {
            match node {
                Node::Field(field) => found.fields.extend(is_kept(field).then_some(Cow::Borrowed(field))),
                Node::Expression(expression) => {
                    for comparison in expression.field_comparisons(context) {
                        match condition(comparison, context.collation()) {
                            Some(Condition::Implied(field)) if is_kept(&field) => found.fields.push(Cow::Owned(field)),
                            Some(Condition::Whole(whole))
                                if same_collation || !whole.operand().is_some_and(compares_text) =>
                            {
                                found.whole.push(whole);
                            }
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        found
    }

    /// Returns the field conditions, also those that `$expr` implies.
    pub fn fields(&self) -> impl Iterator<Item = &FieldNode> {
        self.fields.iter().map(|field| &**field)
    }

    /// Returns the predicates on the values at a path. On an array, different elements may fulfil each of them.
    pub fn predicates<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a Predicate> {
        self.fields().filter(move |field| field.path.as_str() == path).map(FieldNode::predicate)
    }

    /// Returns the comparisons of the whole value at a path.
    pub fn whole_comparisons<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a WholeComparison> {
        self.whole.iter().filter(move |whole| whole.path == path)
    }
}

impl WholeComparison {
    /// Returns the comparison.
    pub fn comparison(&self) -> Comparison {
        self.comparison
    }

    /// Returns the value to compare with; `None` is a missing one, from a variable without a value.
    pub fn operand(&self) -> Option<RawBsonRef<'_>> {
        self.operand.as_ref().map(RawBson::as_raw_bson_ref)
    }

    /// Tells whether the comparison holds for a value that is no string; `None` is a missing field.
    pub fn accepts(&self, value: Option<RawBsonRef<'_>>) -> bool {
        let order = value::compare(value, self.operand(), None);
        match self.comparison {
            Comparison::Equal => order == Ordering::Equal,
            Comparison::Less => order == Ordering::Less,
            Comparison::LessOrEqual => order != Ordering::Greater,
            Comparison::Greater => order == Ordering::Greater,
            Comparison::GreaterOrEqual => order != Ordering::Less,
        }
    }
}

/// Returns the field conditions that hold for every document for which an expression is true.
pub fn implied(expression: &Expression, context: &Context) -> Vec<FieldNode> {
    let conditions =
        expression.field_comparisons(context).into_iter().filter_map(|found| condition(found, context.collation()));
    conditions
        .filter_map(|condition| match condition {
            Condition::Implied(field) => Some(field),
            Condition::Whole(_) => None,
        })
        .collect()
}

/// A condition that follows from a comparison in `$expr`.
enum Condition {
    Implied(FieldNode),
    Whole(WholeComparison),
}

/// Tells whether the result of a predicate depends on the order of strings.
fn depends_on_text(predicate: &Predicate) -> bool {
    match predicate {
        Predicate::Compare(_, operand) => compares_text(operand.value()),
        Predicate::In(choices) => choices.values().iter().any(|choice| compares_text(choice.value())),
        Predicate::ElementDocument(_) | Predicate::ElementValue(_) => true,
        Predicate::Regex(_)
        | Predicate::Exists
        | Predicate::Type(_)
        | Predicate::Modulo { .. }
        | Predicate::Size(_)
        | Predicate::Bits(_) => false,
    }
}

fn condition(found: FieldComparison, collation: Option<&Collation>) -> Option<Condition> {
    let FieldComparison { path, operator, operand } = found;
    let comparison = match operator {
        FieldOperator::In => {
            let predicate = Predicate::In(choices(&operand?, collation)?);
            return Some(Condition::Implied(FieldNode { path: Path::new(&path), predicate }));
        }
        FieldOperator::Equal => Comparison::Equal,
        FieldOperator::Less => Comparison::Less,
        FieldOperator::LessOrEqual => Comparison::LessOrEqual,
        FieldOperator::Greater => Comparison::Greater,
        FieldOperator::GreaterOrEqual => Comparison::GreaterOrEqual,
    };
    let equal = operand.as_ref().map(RawBson::as_raw_bson_ref).filter(|value| is_compared_alike(*value));
    Some(match equal {
        Some(value) if comparison == Comparison::Equal => {
            let predicate = Predicate::Compare(Comparison::Equal, Operand::new(value));
            Condition::Implied(FieldNode { path: Path::new(&path), predicate })
        }
        _ => Condition::Whole(WholeComparison { path, comparison, operand }),
    })
}

fn choices(list: &RawBson, collation: Option<&Collation>) -> Option<Choices> {
    let RawBson::Array(list) = list else { return None };
    let mut values = Vec::new();
    for value in list {
        let value = value.ok()?;
        if values.len() == CHOICES_MAX || !is_compared_alike(value) {
            return None;
        }
        values.push(Operand::new(value));
    }
    Some(Choices::new(values, Vec::new(), collation))
}

/// Tells whether a value that equals this one in `$expr` equals it in a filter, too. An array on the path, `{a: [{b: 1}]}`, makes `"$a.b"` an
/// array that no filter compares; undefined equals a missing field; a filter takes a regular expression for a pattern.
fn is_compared_alike(value: RawBsonRef<'_>) -> bool {
    !matches!(value, RawBsonRef::Array(_) | RawBsonRef::Undefined | RawBsonRef::RegularExpression(_))
}
