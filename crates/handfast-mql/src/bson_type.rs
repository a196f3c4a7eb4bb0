//! The BSON types with MongoDB's numbers and aliases, which are operands of `$type` and `$convert` and names in messages.

use bson::{RawBsonRef, spec::ElementType};

/// A BSON type as MongoDB's documentation lists it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BsonType {
    /// The number of the type in queries.
    pub(crate) number: i64,
    /// The name of the type in queries and messages.
    pub(crate) alias: &'static str,
    /// The type in BSON's specification.
    pub(crate) element_type: ElementType,
}

impl BsonType {
    pub(crate) fn of_number(number: i64) -> Option<BsonType> {
        TYPES.iter().find(|known| known.number == number).copied()
    }
    pub(crate) fn of_alias(alias: &str) -> Option<BsonType> {
        TYPES.iter().find(|known| known.alias == alias).copied()
    }
}

const fn row(number: i64, alias: &'static str, element_type: ElementType) -> BsonType {
    BsonType { number, alias, element_type }
}

const TYPES: [BsonType; 21] = [
    row(1, "double", ElementType::Double),
    row(2, "string", ElementType::String),
    row(3, "object", ElementType::EmbeddedDocument),
    row(4, "array", ElementType::Array),
    row(5, "binData", ElementType::Binary),
    row(6, "undefined", ElementType::Undefined),
    row(7, "objectId", ElementType::ObjectId),
    row(8, "bool", ElementType::Boolean),
    row(9, "date", ElementType::DateTime),
    row(10, "null", ElementType::Null),
    row(11, "regex", ElementType::RegularExpression),
    row(12, "dbPointer", ElementType::DbPointer),
    row(13, "javascript", ElementType::JavaScriptCode),
    row(14, "symbol", ElementType::Symbol),
    row(15, "javascriptWithScope", ElementType::JavaScriptCodeWithScope),
    row(16, "int", ElementType::Int32),
    row(17, "timestamp", ElementType::Timestamp),
    row(18, "long", ElementType::Int64),
    row(19, "decimal", ElementType::Decimal128),
    row(-1, "minKey", ElementType::MinKey),
    row(127, "maxKey", ElementType::MaxKey),
];

/// The types of the alias `number`.
pub(crate) const NUMERIC_TYPES: [ElementType; 4] =
    [ElementType::Double, ElementType::Int32, ElementType::Int64, ElementType::Decimal128];

/// Returns MongoDB's alias of a type.
pub fn alias(element_type: ElementType) -> &'static str {
    TYPES.iter().find(|known| known.element_type == element_type).map_or("unknown", |known| known.alias)
}

/// Returns MongoDB's alias of a value's type.
pub fn type_name(value: RawBsonRef<'_>) -> &'static str {
    alias(value.element_type())
}
