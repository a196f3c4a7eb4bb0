//! `$addToSet`, with `$each`.

use crate::element::{Element, OwnedElement, elements};
use crate::{Code, Context, Error, Result, bson_type, text};

use super::super::growth::array_bytes;
use super::super::tree::{Container, Value};
use super::Target;
use super::set_of_values::SetOfValues;

/// The values to add: distinct in the order of bytes, in order.
#[derive(Debug)]
pub(in crate::update) struct AddToSet {
    values: Vec<OwnedElement>,
}

impl AddToSet {
    pub(super) fn compile(operand: Element<'_>) -> Result<Self> {
        let Some(each) = each_clause(operand)? else {
            return Ok(AddToSet { values: vec![OwnedElement::new(operand.value()?)] });
        };
        let mut set = SetOfValues::new(None);
        let mut values = Vec::new();
        for value in elements(each) {
            let value = value?.value()?;
            if set.insert(value) {
                values.push(OwnedElement::new(value));
            }
        }
        Ok(AddToSet { values })
    }

    pub(super) fn values(&self) -> impl Iterator<Item = Element<'_>> {
        self.values.iter().map(OwnedElement::element)
    }

    pub(super) fn apply<'a>(&'a self, target: Target<'_, 'a>, context: &Context) -> Result<bool> {
        if target.at.is_none() {
            let mut set = SetOfValues::new(context.collation());
            let mut distinct = Vec::with_capacity(self.values.len());
            for value in self.values() {
                if set.insert(value.value()?) {
                    distinct.push(value);
                }
            }
            target.growth.reserve(array_bytes(distinct.iter().copied()))?;
            return target.assign(Value::Open(Container::array(distinct.into_iter().map(Value::Borrowed))));
        }
        let name = target.name.as_str();
        let (array, growth) = target.into_array(|value| {
            let kind = bson_type::type_name(value);
            let message =
                format!("Cannot apply $addToSet to non-array field. Field named '{name}' has non-array type {kind}");
            Error::new(Code::BadValue, message)
        })?;
        let mut new = vec![true; self.values.len()];
        {
            // The set has the values to add, as they are usually fewer than the elements of the array.
            let mut wanted = SetOfValues::new(context.collation());
            let mut present = SetOfValues::new(context.collation());
            for (value, new) in self.values.iter().zip(&mut new) {
                context.step()?;
                *new = wanted.insert(value.element().value()?);
            }
            for at in 0..array.len() {
                context.step()?;
                if let Some(element) = array.element(at) {
                    let value = element.value()?;
                    if wanted.contains(value) {
                        present.insert(value);
                    }
                }
            }
            for (value, new) in self.values.iter().zip(&mut new) {
                *new &= !present.contains(value.element().value()?);
            }
        }
        let added = || self.values().zip(&new).filter(|(_, new)| **new).map(|(value, _)| value);
        growth.reserve(array_bytes(added()))?;
        array.insert(usize::MAX, added().map(Value::Borrowed));
        Ok(new.contains(&true))
    }
}

/// Returns the array of `{$each: [..]}`; none if the operand is a value to add.
fn each_clause<'e>(operand: Element<'e>) -> Result<Option<&'e bson::RawDocument>> {
    let Some(document) = operand.as_document()? else { return Ok(None) };
    let mut clauses = elements(document);
    let Some(first) = clauses.next().transpose()?.filter(|first| first.name() == "$each") else { return Ok(None) };
    let Some(each) = first.as_array()? else {
        let kind = bson_type::type_name(first.value()?);
        let message = format!("The argument to $each in $addToSet must be an array but it was of type: {kind}");
        return Err(Error::new(Code::TypeMismatch, message));
    };
    if clauses.next().is_some() {
        let message = format!("Found unexpected fields after $each in $addToSet: {}", text::document(document));
        return Err(Error::new(Code::BadValue, message));
    }
    Ok(Some(each))
}
