//! Computed fields.

use bson::{RawBson, RawBsonRef, RawDocument};

use crate::{Code, CompileOptions, Context, Error, Result};

#[derive(Debug)]
pub(super) struct Expression(RawBson);

pub(super) struct Value<'a>(RawBsonRef<'a>);

impl Value<'_> {
    pub(super) fn get(&self) -> Option<RawBsonRef<'_>> {
        Some(self.0)
    }
}

impl Expression {
    pub(super) fn compile(value: RawBsonRef<'_>, _: &CompileOptions) -> Result<Self> {
        match value {
            RawBsonRef::Document(_) | RawBsonRef::Array(_) => {}
            RawBsonRef::String(text) if text.starts_with('$') => {}
            literal => return Ok(Expression(literal.into())),
        }
        Err(Error::new(Code::CommandNotSupported, "computed fields come with the expressions of aggregation"))
    }

    pub(super) fn evaluate<'a>(&'a self, _: &'a RawDocument, _: &'a Context) -> Result<Value<'a>> {
        Ok(Value(self.0.as_raw_bson_ref()))
    }
}
