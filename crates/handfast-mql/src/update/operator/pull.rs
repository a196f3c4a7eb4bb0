//! Operators that take elements out of arrays: `$pull`, `$pullAll`, `$pop`.

use std::cmp::Ordering;

use bson::spec::ElementType;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};

use crate::element::{Element, OwnedElement, elements};
use crate::raw_writer::RawWriter;
use crate::{Code, CompileOptions, Context, Error, Filter, Result, bson_type, order, text};

use super::super::path::UpdatePath;
use super::push::whole_number;
use super::set_of_values::SetOfValues;
use super::{Scope, Target};

/// `$pull`: a value, or a condition.
#[derive(Debug)]
pub(in crate::update) enum Pull {
    /// Elements that equal the value.
    Equal(OwnedElement),
    /// Elements that are documents and match the filter.
    Documents(Filter),
    /// Elements that match the filter as the field [`ELEMENT`] of a document: `{$gte: 5}`, a regular expression.
    Elements(Filter),
}

/// The name of an element in the filter that tests it.
const ELEMENT: &str = "element";

impl Pull {
    pub(super) fn compile(operand: Element<'_>, options: &CompileOptions) -> Result<Self> {
        match operand.value()? {
            RawBsonRef::Document(condition) if is_operator_expression(condition)? => {
                Ok(Pull::Elements(Filter::compile(&as_field(operand)?, options)?))
            }
            RawBsonRef::Document(condition) => Ok(Pull::Documents(Filter::compile(condition, options)?)),
            RawBsonRef::RegularExpression(_) => Ok(Pull::Elements(Filter::compile(&as_field(operand)?, options)?)),
            value => Ok(Pull::Equal(OwnedElement::new(value))),
        }
    }

    pub(super) fn apply(&self, target: Target<'_, '_>, scope: &Scope<'_, '_>) -> Result<bool> {
        let (array, _) = target.into_array(not_an_array)?;
        let mut buffer = Vec::new();
        array.retain(|element| {
            scope.context.step()?;
            Ok(!self.takes(element, &mut buffer, scope.context)?)
        })
    }

    fn takes(&self, element: Element<'_>, buffer: &mut Vec<u8>, context: &Context) -> Result<bool> {
        match self {
            Pull::Equal(value) => {
                let order = order::compare_under(element.value()?, value.element().value()?, context.collation());
                Ok(order == Ordering::Equal)
            }
            Pull::Documents(filter) => match element.as_document()? {
                Some(document) => filter.matches(document, context),
                None => Ok(false),
            },
            Pull::Elements(filter) => {
                buffer.clear();
                let mut writer = RawWriter::new(buffer);
                writer.copy_as(ELEMENT, element);
                writer.finish()?;
                filter.matches(RawDocument::from_bytes(buffer.as_slice())?, context)
            }
        }
    }
}

/// Returns `{element: value}`.
fn as_field(value: Element<'_>) -> Result<RawDocumentBuf> {
    let mut bytes = Vec::new();
    let mut writer = RawWriter::new(&mut bytes);
    writer.copy_as(ELEMENT, value);
    writer.finish()?;
    Ok(RawDocumentBuf::from_bytes(bytes)?)
}

/// Tells whether a condition is like `{$gte: 5}`, and neither a condition on a document (`{$and: [..]}`) nor a reference
/// (`{$ref: .., $id: ..}`).
fn is_operator_expression(condition: &RawDocument) -> Result<bool> {
    let first = elements(condition).next().transpose()?;
    Ok(first.is_some_and(|first| {
        first.name().starts_with('$')
            && !matches!(
                first.name(),
                "$and" | "$or" | "$nor" | "$expr" | "$where" | "$comment" | "$jsonSchema" | "$ref" | "$id" | "$db"
            )
    }))
}

fn not_an_array(_: RawBsonRef<'_>) -> Error {
    Error::new(Code::BadValue, "Cannot apply $pull to a non-array value")
}

/// `$pullAll`: values that are taken out wherever they are.
#[derive(Debug)]
pub(in crate::update) struct PullAll {
    values: OwnedElement,
}

impl PullAll {
    pub(super) fn compile(operand: Element<'_>) -> Result<Self> {
        let Some(values) = operand.as_array()? else {
            let kind = bson_type::type_name(operand.value()?);
            return Err(Error::new(
                Code::BadValue,
                format!("$pullAll requires an array argument but was given a {kind}"),
            ));
        };
        Ok(PullAll { values: OwnedElement::from_payload(ElementType::Array, values.as_bytes())? })
    }

    pub(super) fn apply(&self, target: Target<'_, '_>, scope: &Scope<'_, '_>) -> Result<bool> {
        let (array, _) = target.into_array(not_an_array)?;
        let mut values = SetOfValues::new(scope.context.collation());
        if let Some(list) = self.values.element().as_array()? {
            for value in elements(list) {
                scope.context.step()?;
                values.insert(value?.value()?);
            }
        }
        array.retain(|element| {
            scope.context.step()?;
            Ok(!values.contains(element.value()?))
        })
    }
}

/// `$pop`: the first or the last element.
#[derive(Clone, Copy, Debug)]
pub(in crate::update) enum Pop {
    First,
    Last,
}

impl Pop {
    pub(super) fn compile(path: &UpdatePath, operand: RawBsonRef<'_>) -> Result<Self> {
        let number = match operand {
            RawBsonRef::Int32(_) | RawBsonRef::Int64(_) | RawBsonRef::Double(_) | RawBsonRef::Decimal128(_) => {
                whole_number(operand)
            }
            other => {
                let message = format!("Expected a number in: {}", text::field(&path.text, other));
                return Err(Error::new(Code::FailedToParse, message));
            }
        };
        match number {
            Some(1) => Ok(Pop::Last),
            Some(-1) => Ok(Pop::First),
            _ => {
                let message = format!("$pop expects 1 or -1, found: {}", text::value(operand));
                Err(Error::new(Code::FailedToParse, message))
            }
        }
    }

    pub(super) fn apply(self, path: &UpdatePath, target: Target<'_, '_>) -> Result<bool> {
        let (array, _) = target.into_array(|value| {
            let kind = bson_type::type_name(value);
            let message = format!("Path '{}' contains an element of non-array type '{kind}'", path.text);
            Error::new(Code::TypeMismatch, message)
        })?;
        let length = array.len();
        array.keep_range(match self {
            Pop::First => 1..length.max(1),
            Pop::Last => 0..length.saturating_sub(1),
        });
        Ok(length > 0)
    }
}
