//! `$inc` and `$mul`: the sum or product in the wider of the two types; an int that overflows becomes a long, a long that
//! overflows is an error.

use bson::RawBsonRef;

use crate::element::OwnedElement;
use crate::number::Number;
use crate::{Code, Error, Result, bson_type, text};

use super::super::path::UpdatePath;
use super::super::tree::Value;
use super::{Scope, Target, id_field};

/// A number to add or to multiply by.
#[derive(Debug)]
pub(in crate::update) struct Arithmetic {
    operation: Operation,
    operand: Number,
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Increment,
    Multiply,
}

impl Arithmetic {
    pub(super) fn increment(path: &UpdatePath, operand: RawBsonRef<'_>) -> Result<Self> {
        Self::compile(Operation::Increment, "increment", path, operand)
    }

    pub(super) fn multiply(path: &UpdatePath, operand: RawBsonRef<'_>) -> Result<Self> {
        Self::compile(Operation::Multiply, "multiply", path, operand)
    }

    fn compile(operation: Operation, verb: &str, path: &UpdatePath, operand: RawBsonRef<'_>) -> Result<Self> {
        let Some(number) = Number::of(operand) else {
            let message = format!("Cannot {verb} with non-numeric argument: {{{}}}", text::field(&path.text, operand));
            return Err(Error::new(Code::TypeMismatch, message));
        };
        Ok(Arithmetic { operation, operand: number })
    }

    pub(super) fn apply(&self, target: Target<'_, '_>, scope: &Scope<'_, '_>) -> Result<bool> {
        let current = match target.current().map(|current| current.value()).transpose()? {
            Some(value) => Number::of(value).ok_or_else(|| self.not_a_number(&target, value, scope))?,
            // Both operators take a missing field as 0.
            None => Number::Int(0),
        };
        let result = match (self.operation, target.at) {
            (Operation::Increment, None) => Some(self.operand),
            (Operation::Increment, _) => current.checked_add(self.operand),
            (Operation::Multiply, _) => current.checked_multiply(self.operand),
        };
        let Some(result) = result else {
            let message = format!(
                "Failed to apply {} operations to current value ({}) for document {{{}}}",
                self.operation.name(),
                shell_notation(current),
                id_field(scope.document)
            );
            return Err(Error::new(Code::BadValue, message));
        };
        target.assign(Value::Owned(OwnedElement::new(result.to_bson())))
    }

    fn not_a_number(&self, target: &Target<'_, '_>, value: RawBsonRef<'_>, scope: &Scope<'_, '_>) -> Error {
        let message = format!(
            "Cannot apply {} to a value of non-numeric type. {{{}}} has the field '{}' of non-numeric type {}",
            self.operation.name(),
            id_field(scope.document),
            target.name.as_str(),
            bson_type::type_name(value)
        );
        Error::new(Code::TypeMismatch, message)
    }
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Operation::Increment => "$inc",
            Operation::Multiply => "$mul",
        }
    }
}

/// Returns a number with its type, as in `(NumberLong)5`.
fn shell_notation(number: Number) -> String {
    let kind = match number.type_name() {
        "int" => "NumberInt",
        "long" => "NumberLong",
        "decimal" => "NumberDecimal",
        _ => "Number",
    };
    format!("({kind}){}", text::value(number.to_bson()))
}
