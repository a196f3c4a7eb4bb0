//! `$bit`: and, or, xor on 32- and 64-bit integers.

use bson::{RawBson, RawBsonRef};

use crate::element::OwnedElement;
use crate::{Code, Error, Result, bson_type, text};

use super::super::tree::Value;
use super::{Scope, Target, id_field};

/// `$bit: {and: 1, or: 2}`: the operations in the order given.
#[derive(Debug)]
pub(in crate::update) struct Bit {
    steps: Vec<(Operation, Integer)>,
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    And,
    Or,
    Xor,
}

#[derive(Clone, Copy, Debug)]
enum Integer {
    Int(i32),
    Long(i64),
}

impl Bit {
    pub(super) fn compile(operand: RawBsonRef<'_>) -> Result<Self> {
        let bad = |message: String| Err(Error::new(Code::BadValue, message));
        let RawBsonRef::Document(document) = operand else {
            return bad(format!(
                "The $bit modifier is not compatible with a {}. You must pass in an embedded document: {{$bit: \
                 {{field: {{and/or/xor: #}}}}",
                bson_type::type_name(operand)
            ));
        };
        let mut steps = Vec::new();
        for field in document.iter() {
            let (name, value) = field?;
            let name = name.as_str();
            let operation = match name {
                "and" => Operation::And,
                "or" => Operation::Or,
                "xor" => Operation::Xor,
                other => {
                    return bad(format!(
                        "The $bit modifier only supports 'and', 'or', and 'xor', not '{other}' which is an unknown \
                         operator: {{{}}}",
                        text::field(name, value)
                    ));
                }
            };
            let Some(integer) = Integer::of(value) else {
                return bad(format!(
                    "The $bit modifier field must be an Integer(32/64 bit); a '{}' is not supported here: {{{}}}",
                    bson_type::type_name(value),
                    text::field(name, value)
                ));
            };
            steps.push((operation, integer));
        }
        if steps.is_empty() {
            return bad(
                "You must pass in at least one bitwise operation. The format is: {$bit: {field: {and/or/xor: #}}"
                    .to_owned(),
            );
        }
        Ok(Bit { steps })
    }

    /// Returns whether a second application changes nothing: `and` and `or` set, clear or keep each bit.
    pub(in crate::update) fn is_idempotent(&self) -> bool {
        !self.steps.iter().any(|(operation, operand)| matches!(operation, Operation::Xor) && operand.wide() != 0)
    }

    pub(super) fn apply(&self, target: Target<'_, '_>, scope: &Scope<'_, '_>) -> Result<bool> {
        let start = match target.current() {
            None => Integer::Int(0),
            Some(current) => {
                let value = current.value()?;
                Integer::of(value).ok_or_else(|| {
                    let message = format!(
                        "Cannot apply $bit to a value of non-integral type.{} has the field {} of non-integer type {}",
                        id_field(scope.document),
                        target.name.as_str(),
                        bson_type::type_name(value)
                    );
                    Error::new(Code::BadValue, message)
                })?
            }
        };
        let result = self.steps.iter().fold(start, |value, &(operation, operand)| value.combine(operation, operand));
        target.assign(Value::Owned(OwnedElement::from(result.into_bson())))
    }
}

impl Integer {
    fn of(value: RawBsonRef<'_>) -> Option<Self> {
        match value {
            RawBsonRef::Int32(value) => Some(Integer::Int(value)),
            RawBsonRef::Int64(value) => Some(Integer::Long(value)),
            _ => None,
        }
    }

    fn wide(self) -> i64 {
        match self {
            Integer::Int(value) => i64::from(value),
            Integer::Long(value) => value,
        }
    }

    fn combine(self, operation: Operation, other: Integer) -> Integer {
        let apply = |a: i64, b: i64| match operation {
            Operation::And => a & b,
            Operation::Or => a | b,
            Operation::Xor => a ^ b,
        };
        match (self, other) {
            // Sign extension commutes with all three, so that the result is a 32-bit value again.
            (Integer::Int(a), Integer::Int(b)) => Integer::Int(apply(i64::from(a), i64::from(b)) as i32),
            (a, b) => Integer::Long(apply(a.wide(), b.wide())),
        }
    }

    fn into_bson(self) -> RawBson {
        match self {
            Integer::Int(value) => RawBson::Int32(value),
            Integer::Long(value) => RawBson::Int64(value),
        }
    }
}
