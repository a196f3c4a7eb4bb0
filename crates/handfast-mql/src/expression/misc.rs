//! Sizes, timestamps, `$type`, `$isNumber`, `$rand`.

use bson::RawBsonRef;

use super::{
    compile::Compiler,
    node::{Function, LazyOperator, Node, Scope},
    string::{count_value, is_number},
    value::Value,
};
use crate::error::{Code, Error, Result};

pub(crate) const FUNCTIONS: &[Function] = &[
    Function::one("$type", |value| Ok(value.type_name().to_owned().into())),
    Function::one("$isNumber", |value| Ok(value.get().is_some_and(is_number).into())),
    Function::one("$binarySize", binary_size),
    Function::one("$bsonSize", bson_size),
    Function::one("$tsSecond", |value| timestamp(&value, "$tsSecond", 5_687_301, |time, _| time)),
    Function::one("$tsIncrement", |value| timestamp(&value, "$tsIncrement", 5_687_302, |_, increment| increment)),
];

pub(crate) fn compile(compiler: &mut Compiler<'_>, name: &str, argument: RawBsonRef<'_>) -> Result<Option<Node>> {
    match name {
        "$rand" => {
            let is_empty = match argument {
                RawBsonRef::Document(document) => document.is_empty(),
                RawBsonRef::Array(array) => array.is_empty(),
                _ => return Err(Error::new(Code(10065), "invalid parameter: expected an object ($rand)")),
            };
            if !is_empty {
                return Err(Error::new(Code(3_040_501), "$rand does not currently accept arguments"));
            }
            Ok(Some(Node::lazy(Rand)))
        }
        "$const" => compiler.operator("$literal", argument).map(Some),
        _ => Ok(None),
    }
}

fn binary_size<'a>(value: Value<'a>) -> Result<Value<'a>> {
    match value.get() {
        None | Some(RawBsonRef::Null | RawBsonRef::Undefined) => Ok(Value::NULL),
        Some(RawBsonRef::String(text)) => Ok(count_value(text.len())),
        Some(RawBsonRef::Binary(binary)) => Ok(count_value(binary.bytes.len())),
        Some(_) => Err(Error::new(
            Code(51_276),
            format!("$binarySize requires a string or BinData argument, found: {}", value.type_name()),
        )),
    }
}

fn bson_size<'a>(value: Value<'a>) -> Result<Value<'a>> {
    if value.is_nullish() {
        return Ok(Value::NULL);
    }
    match value.as_document() {
        Some(document) => Ok(count_value(document.as_bytes().len())),
        None => {
            Err(Error::new(Code(31_393), format!("$bsonSize requires a document input, found: {}", value.type_name())))
        }
    }
}

fn timestamp<'a>(value: &Value<'_>, operator: &str, code: i32, part: fn(u32, u32) -> u32) -> Result<Value<'a>> {
    match value.get() {
        None | Some(RawBsonRef::Null | RawBsonRef::Undefined) => Ok(Value::NULL),
        Some(RawBsonRef::Timestamp(stamp)) => Ok(i64::from(part(stamp.time, stamp.increment)).into()),
        Some(_) => Err(Error::new(
            Code(code),
            format!("Argument to {operator} must be a timestamp, but is {}", value.type_name()),
        )),
    }
}

/// `$rand`: drawn from the context's source of chance.
#[derive(Debug)]
struct Rand;

impl LazyOperator for Rand {
    fn evaluate<'a>(&'a self, scope: Scope<'a>) -> Result<Value<'a>> {
        Ok(scope.context.random.next_f64().into())
    }
}
