//! The operand of `$type`: numbers and aliases of BSON types, as MongoDB documents them.

use bson::{RawBsonRef, spec::ElementType};

use crate::{Code, Error, Number, Result};

/// Number and alias of every type.
const TYPES: [(i64, &str, ElementType); 21] = [
    (1, "double", ElementType::Double),
    (2, "string", ElementType::String),
    (3, "object", ElementType::EmbeddedDocument),
    (4, "array", ElementType::Array),
    (5, "binData", ElementType::Binary),
    (6, "undefined", ElementType::Undefined),
    (7, "objectId", ElementType::ObjectId),
    (8, "bool", ElementType::Boolean),
    (9, "date", ElementType::DateTime),
    (10, "null", ElementType::Null),
    (11, "regex", ElementType::RegularExpression),
    (12, "dbPointer", ElementType::DbPointer),
    (13, "javascript", ElementType::JavaScriptCode),
    (14, "symbol", ElementType::Symbol),
    (15, "javascriptWithScope", ElementType::JavaScriptCodeWithScope),
    (16, "int", ElementType::Int32),
    (17, "timestamp", ElementType::Timestamp),
    (18, "long", ElementType::Int64),
    (19, "decimal", ElementType::Decimal128),
    (-1, "minKey", ElementType::MinKey),
    (127, "maxKey", ElementType::MaxKey),
];

/// What the alias `number` stands for.
const NUMBER: [ElementType; 4] = [ElementType::Double, ElementType::Int32, ElementType::Int64, ElementType::Decimal128];

/// MongoDB's alias of a type.
pub(super) fn alias(element_type: ElementType) -> &'static str {
    TYPES.iter().find(|(_, _, known)| *known == element_type).map_or("unknown", |(_, alias, _)| *alias)
}

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

    /// Whether the type is one of them.
    pub fn contains(&self, element_type: ElementType) -> bool {
        self.0.contains(&element_type)
    }

    fn add(&mut self, value: RawBsonRef<'_>) -> Result<()> {
        let bad = |message: String| Err(Error::new(Code::BadValue, message));
        if let RawBsonRef::String(alias) = value {
            match TYPES.iter().find(|(_, known, _)| *known == alias) {
                Some((_, _, element_type)) => self.0.push(*element_type),
                None if alias == "number" => self.0.extend(NUMBER),
                None => return bad(format!("Unknown type name alias: {alias}")),
            }
            return Ok(());
        }
        let Some(number) = Number::of(value) else {
            return Err(Error::new(Code::TypeMismatch, "type must be represented as a number or a string"));
        };
        match number.to_i64_exact() {
            Some(0) => bad("Invalid numerical type code: 0. Instead use {$exists:false}.".into()),
            Some(code) => match TYPES.iter().find(|(known, _, _)| *known == code) {
                Some((_, _, element_type)) => {
                    self.0.push(*element_type);
                    Ok(())
                }
                None => bad(format!("Invalid numerical type code: {code}")),
            },
            None => bad(format!("Invalid numerical type code: {}", number.to_f64())),
        }
    }
}
