//! Evaluates a filter over a document.

use std::ops::ControlFlow;

use bson::{RawArray, RawBsonRef, RawDocument};

use super::node::{Comparison, ElementNode, FieldNode, Node, Predicate};
use crate::{Collation, Context, Error, Number, Result, order, path::TrailingArray};

/// The evaluation of a filter over one document.
pub(super) struct Evaluation<'c> {
    context: &'c Context,
    collation: Option<&'c Collation>,
    /// The array index of the last condition that held and went through an array.
    pub(super) position: Option<usize>,
}

/// The result of a predicate.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MatchResult {
    No,
    Yes,
    /// The element at this index of the array matches.
    At(usize),
}

impl From<bool> for MatchResult {
    fn from(holds: bool) -> Self {
        if holds { MatchResult::Yes } else { MatchResult::No }
    }
}

impl<'c> Evaluation<'c> {
    pub(super) fn new(context: &'c Context, collation: Option<&'c Collation>) -> Self {
        Evaluation { context, collation, position: None }
    }

    /// Tells whether a condition holds. The position does not change if it does not hold, nor within a negation.
    pub(super) fn node(&mut self, node: &Node, document: &RawDocument) -> Result<bool> {
        // To find a field, the names before it have to be read.
        self.context.step()?;
        self.context.read(document.as_bytes().len())?;
        let position = self.position;
        let holds = match node {
            Node::Field(field) => return self.field(field, document),
            Node::And(all) => self.all(all, document)?,
            Node::Or(any) => return self.any(any, document),
            Node::Expression(expression) => return Ok(expression.evaluate(document, self.context)?.is_true()),
            Node::Schema(schema) => return schema.accepts(document, self.context),
            Node::Nor(none) => {
                let holds = !self.any(none, document)?;
                self.position = position;
                holds
            }
            Node::Not(not) => {
                let holds = !self.node(not, document)?;
                self.position = position;
                holds
            }
        };
        if !holds {
            self.position = position;
        }
        Ok(holds)
    }

    fn all(&mut self, nodes: &[Node], document: &RawDocument) -> Result<bool> {
        for node in nodes {
            if !self.node(node, document)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn any(&mut self, nodes: &[Node], document: &RawDocument) -> Result<bool> {
        for node in nodes {
            if self.node(node, document)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn field(&mut self, field: &FieldNode, document: &RawDocument) -> Result<bool> {
        let trailing_array = match field.predicate {
            Predicate::Exists | Predicate::Size(_) | Predicate::ElementDocument(_) | Predicate::ElementValue(_) => {
                TrailingArray::Whole
            }
            _ => TrailingArray::Elements,
        };
        let found = field.path.visit(document, trailing_array, &mut |visited| {
            let inner = match self.predicate(&field.predicate, visited.value) {
                Ok(MatchResult::No) => return ControlFlow::Continue(()),
                Ok(MatchResult::Yes) => None,
                Ok(MatchResult::At(index)) => Some(index),
                Err(error) => return ControlFlow::Break(Err::<Option<usize>, Error>(error)),
            };
            ControlFlow::Break(Ok(visited.array_index.or(inner)))
        });
        match found {
            ControlFlow::Continue(()) => Ok(false),
            ControlFlow::Break(index) => {
                self.position = index?.or(self.position);
                Ok(true)
            }
        }
    }

    fn predicate(&mut self, predicate: &Predicate, value: Option<RawBsonRef<'_>>) -> Result<MatchResult> {
        self.context.step()?;
        let Some(value) = value else { return Ok(missing(predicate).into()) };
        Ok(match predicate {
            Predicate::Compare(comparison, operand) => {
                compares(*comparison, value, operand.value(), self.collation).into()
            }
            Predicate::In(choices) => choices.accept(value, self.collation, self.context)?.into(),
            Predicate::Regex(regex) => regex.accepts(value, self.context)?.into(),
            Predicate::Exists => MatchResult::Yes,
            Predicate::Type(types) => types.contains(value.element_type()).into(),
            Predicate::Modulo { divisor, remainder } => {
                let number = Number::of(value).and_then(Number::to_i64_truncated);
                // The smallest long by -1 overflows; the remainder is 0.
                number.is_some_and(|number| number.checked_rem(*divisor).unwrap_or(0) == *remainder).into()
            }
            Predicate::Bits(test) => test.accepts(value).into(),
            Predicate::Size(size) => match value {
                RawBsonRef::Array(array) => (i64::try_from(array.iter_elements().count()) == Ok(*size)).into(),
                _ => MatchResult::No,
            },
            Predicate::ElementDocument(node) => match value {
                RawBsonRef::Array(array) => self.element_document(node, array)?,
                _ => MatchResult::No,
            },
            Predicate::ElementValue(all) => match value {
                RawBsonRef::Array(array) => self.element_value(all, array)?,
                _ => MatchResult::No,
            },
        })
    }

    fn element_document(&mut self, node: &Node, array: &RawArray) -> Result<MatchResult> {
        for (index, value) in array.into_iter().map_while(Result::ok).enumerate() {
            let document = match value {
                RawBsonRef::Document(document) => document,
                // An array inside the array is matched as a document with the names "0", "1", ..
                RawBsonRef::Array(inner) => match RawDocument::from_bytes(inner.as_bytes()) {
                    Ok(document) => document,
                    Err(_) => continue,
                },
                _ => continue,
            };
            let position = self.position;
            let holds = self.node(node, document)?;
            self.position = position;
            if holds {
                return Ok(MatchResult::At(index));
            }
        }
        Ok(MatchResult::No)
    }

    fn element_value(&mut self, all: &[ElementNode], array: &RawArray) -> Result<MatchResult> {
        for (index, value) in array.into_iter().map_while(Result::ok).enumerate() {
            if self.element(all, value)? {
                return Ok(MatchResult::At(index));
            }
        }
        Ok(MatchResult::No)
    }

    /// Tells whether a value itself fulfils all conditions; if it is an array, its elements are not considered.
    fn element(&mut self, all: &[ElementNode], value: RawBsonRef<'_>) -> Result<bool> {
        for node in all {
            self.context.step()?;
            let holds = match node {
                ElementNode::Is(predicate) => self.predicate(predicate, Some(value))? != MatchResult::No,
                ElementNode::Not(all) => !self.element(all, value)?,
                ElementNode::Every(all) => self.element(all, value)?,
                ElementNode::Never => false,
            };
            if !holds {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Returns the result where a path leads to nothing: as null, and at the ends of the order.
fn missing(predicate: &Predicate) -> bool {
    match predicate {
        Predicate::Compare(comparison, operand) => match operand.value() {
            RawBsonRef::MinKey | RawBsonRef::MaxKey => compare_with_end(*comparison, operand.value()),
            operand => compares(*comparison, RawBsonRef::Null, operand, None),
        },
        Predicate::In(choices) => choices.contain(RawBsonRef::Null, None),
        _ => false,
    }
}

fn compares(
    comparison: Comparison,
    value: RawBsonRef<'_>,
    operand: RawBsonRef<'_>,
    collation: Option<&Collation>,
) -> bool {
    if order::type_rank(value) != order::type_rank(operand) {
        return compare_with_end(comparison, operand);
    }
    let order = order::compare_under(value, operand, collation);
    // NaN is in no range, but equals itself.
    if is_nan(value) || is_nan(operand) {
        return order.is_eq() && !matches!(comparison, Comparison::Less | Comparison::Greater);
    }
    match comparison {
        Comparison::Equal => order.is_eq(),
        Comparison::Less => order.is_lt(),
        Comparison::LessOrEqual => order.is_le(),
        Comparison::Greater => order.is_gt(),
        Comparison::GreaterOrEqual => order.is_ge(),
    }
}

/// Compares with MinKey or MaxKey: the values of all other types lie between them.
fn compare_with_end(comparison: Comparison, operand: RawBsonRef<'_>) -> bool {
    match comparison {
        Comparison::Equal => false,
        Comparison::Less | Comparison::LessOrEqual => operand == RawBsonRef::MaxKey,
        Comparison::Greater | Comparison::GreaterOrEqual => operand == RawBsonRef::MinKey,
    }
}

fn is_nan(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Double(value) => value.is_nan(),
        RawBsonRef::Decimal128(_) => Number::of(value).is_some_and(Number::is_nan),
        _ => false,
    }
}
