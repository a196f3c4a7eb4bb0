//! The operand of `$type`: a set of BSON types.

use bson::{RawBsonRef, spec::ElementType};

use crate::bson_type::{BsonType, NUMERIC_TYPES};
use crate::{Code, Error, Number, Result};

/// A set of BSON types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeSet(Vec<ElementType>);

impl TypeSet {
    /// Reads a number, an alias, or an array of these.
    pub(super) fn compile(operand: RawBsonRef<'_>) -> Result<Self> {
        let mut types = TypeSet(Vec::new());
        match operand {
            RawBsonRef::Array(array) => {
                for value in array {
                    types.add(value?)?;
                }
            }
            value => types.add(value)?,
        }
        if types.0.is_empty() {
            return Err(Error::new(Code::FailedToParse, "$type must match at least one type"));
        }
        Ok(types)
    }

    /// Reads aliases.
    pub(crate) fn of_aliases(aliases: &[&str]) -> Result<Self> {
        let mut types = TypeSet(Vec::new());
        for alias in aliases {
            types.add(RawBsonRef::String(alias))?;
        }
        Ok(types)
    }

    /// Tells whether the type is one of them.
    pub fn contains(&self, element_type: ElementType) -> bool {
        self.0.contains(&element_type)
    }

    fn add(&mut self, value: RawBsonRef<'_>) -> Result<()> {
        let bad = |message: String| Err(Error::new(Code::BadValue, message));
        if let RawBsonRef::String(alias) = value {
            match BsonType::of_alias(alias) {
                Some(known) => self.0.push(known.element_type),
                None if alias == "number" => self.0.extend(NUMERIC_TYPES),
                None => return bad(format!("Unknown type name alias: {alias}")),
            }
            return Ok(());
        }
        let Some(number) = Number::of(value) else {
            return Err(Error::new(Code::TypeMismatch, "type must be represented as a number or a string"));
        };
        match number.to_i64_exact() {
            Some(0) => bad("Invalid numerical type code: 0. Instead use {$exists:false}.".into()),
            Some(code) => match BsonType::of_number(code) {
                Some(known) => {
                    self.0.push(known.element_type);
                    Ok(())
                }
                None => bad(format!("Invalid numerical type code: {code}")),
            },
            None => bad(format!("Invalid numerical type code: {}", number.to_f64())),
        }
    }
}
