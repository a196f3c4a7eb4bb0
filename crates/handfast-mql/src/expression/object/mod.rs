//! Operators on documents.

pub(crate) mod lazy;
#[cfg(test)]
mod tests;

use bson::{RawBsonRef, RawDocument, RawDocumentBuf};

use super::{
    node::{Arity, Function},
    value::{self, Value},
};
use crate::error::{Code, Error, Result};

pub(crate) const FUNCTIONS: &[Function] = &[Function::many("$mergeObjects", Arity::AtLeast(0), merge_objects)];

fn merge_objects<'a>(arguments: Vec<Value<'a>>) -> Result<Value<'a>> {
    let mut merged = RawDocumentBuf::new();
    // If the only argument is an array, its items are merged.
    if let [only] = &arguments[..]
        && let Some(array) = only.as_array()
    {
        for item in value::items(array) {
            merge_value(&mut merged, &Value::Ref(item?))?;
        }
    } else {
        for argument in &arguments {
            merge_value(&mut merged, argument)?;
        }
    }
    Ok(merged.into())
}

/// Merges the fields of a value into the document: a field that exists keeps its position and takes the new value.
///
/// # Errors
/// 40400: the value is neither a document nor null nor missing.
pub(crate) fn merge_value(merged: &mut RawDocumentBuf, value: &Value<'_>) -> Result<()> {
    if value.is_nullish() {
        return Ok(());
    }
    let Some(document) = value.as_document() else {
        return Err(Error::new(
            Code(40_400),
            format!(
                "$mergeObjects requires object inputs, but input {} is of type {}",
                value.show(),
                value.type_name()
            ),
        ));
    };
    *merged = merge(merged, document)?;
    Ok(())
}

/// Returns `left` with the fields of `right` merged into it.
pub(crate) fn merge(left: &RawDocument, right: &RawDocument) -> Result<RawDocumentBuf> {
    if left.is_empty() {
        return Ok(right.to_owned());
    }
    let mut replaced: std::collections::HashMap<&str, RawBsonRef<'_>> = std::collections::HashMap::new();
    for field in value::fields(right) {
        let (key, item) = field?;
        replaced.insert(key.as_str(), item);
    }
    let mut merged = RawDocumentBuf::new();
    for field in value::fields(left) {
        let (key, item) = field?;
        merged.append(key, replaced.remove(key.as_str()).unwrap_or(item));
    }
    for field in value::fields(right) {
        let (key, _) = field?;
        if let Some(item) = replaced.remove(key.as_str()) {
            merged.append(key, item);
        }
    }
    super::limits::check_bytes(merged.as_bytes().len())?;
    Ok(merged)
}
