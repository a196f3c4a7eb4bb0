//! Equality of values in schemas, which does not depend on the order of fields.

use bson::{RawArray, RawBsonRef};

use crate::{Context, Result, key};

/// The kinds of values, which begin their forms.
const SCALAR: u8 = 0;
const DOCUMENT: u8 = 1;
const ARRAY: u8 = 2;

/// Returns bytes that are equal for values that are equal, whatever the order of the fields of documents is.
pub(super) fn canonical(value: RawBsonRef<'_>) -> Vec<u8> {
    let mut form = Vec::new();
    append(value, &mut form);
    form
}

fn append(value: RawBsonRef<'_>, form: &mut Vec<u8>) {
    match value {
        RawBsonRef::Document(document) => {
            let mut fields: Vec<_> = document.into_iter().flatten().collect();
            fields.sort_by_key(|(name, _)| *name);
            form.push(DOCUMENT);
            append_length(fields.len(), form);
            for (name, value) in fields {
                append_bytes(name.as_str().as_bytes(), form);
                append(value, form);
            }
        }
        RawBsonRef::Array(array) => {
            form.push(ARRAY);
            append_length(array.iter_elements().count(), form);
            array.into_iter().flatten().for_each(|item| append(item, form));
        }
        scalar => {
            form.push(SCALAR);
            append_bytes(&key::encoded(scalar), form);
        }
    }
}

fn append_length(length: usize, form: &mut Vec<u8>) {
    form.extend_from_slice(&(length as u64).to_le_bytes());
}

fn append_bytes(bytes: &[u8], form: &mut Vec<u8>) {
    append_length(bytes.len(), form);
    form.extend_from_slice(bytes);
}

/// Returns an item that an array has twice.
pub(super) fn duplicate<'a>(array: &'a RawArray, context: &Context) -> Result<Option<RawBsonRef<'a>>> {
    let mut items = Vec::new();
    for item in array {
        context.step()?;
        let item = item?;
        items.push((canonical(item), item));
    }
    items.sort_by(|(one, _), (other, _)| one.cmp(other));
    let twice = items.windows(2).find_map(|pair| match pair {
        [(one, item), (other, _)] if one == other => Some(*item),
        _ => None,
    });
    Ok(twice)
}
