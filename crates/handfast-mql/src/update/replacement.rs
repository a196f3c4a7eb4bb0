//! Replacing a whole document: `_id` stays, and stays first.

use bson::{RawBsonRef, RawDocument, RawDocumentBuf, Timestamp};

use crate::element::{Element, elements, find};
use crate::raw_writer::RawWriter;
use crate::{Code, Error, Result, order, text};

/// Checks that no field of a replacement starts with `$`. That its first does not has made it a replacement.
///
/// # Errors
/// `DollarPrefixedFieldName` (52).
pub(super) fn check(replacement: &RawDocument) -> Result<()> {
    for element in elements(replacement) {
        let name = element?.name();
        if name.starts_with('$') {
            let message = format!(
                "The dollar ($) prefixed field '{name}' in '{name}' is not allowed in the context of an update's \
                 replacement document. Consider using an aggregation pipeline with $replaceWith."
            );
            return Err(Error::new(Code::DollarPrefixedFieldName, message));
        }
    }
    Ok(())
}

/// Returns the document that takes the place of `old`, which may have no `_id` if it is being made by an upsert.
///
/// # Errors
/// `ImmutableField` (66) if `new` has another `_id`.
pub(super) fn replace(old: &RawDocument, new: &RawDocument) -> Result<RawDocumentBuf> {
    let (old_id, new_id) = (find(old, "_id")?, find(new, "_id")?);
    if let (Some(old_id), Some(new_id)) = (old_id, new_id)
        && order::compare(old_id.value()?, new_id.value()?).is_ne()
    {
        let message = format!(
            "After applying the update, the (immutable) field '_id' was found to have been altered to {}",
            text::field("_id", new_id.value()?)
        );
        return Err(Error::new(Code::ImmutableField, message));
    }
    id_first(old_id.or(new_id), new)
}

/// Returns the document with this `_id` as its first field.
pub(super) fn id_first(id: Option<Element<'_>>, document: &RawDocument) -> Result<RawDocumentBuf> {
    let mut bytes = Vec::with_capacity(document.as_bytes().len() + id.map_or(0, |id| id.bytes().len()));
    let mut writer = RawWriter::new(&mut bytes);
    if let Some(id) = id {
        writer.copy_as("_id", id);
    }
    for element in elements(document) {
        let element = element?;
        if element.name() != "_id" {
            writer.copy(element);
        }
    }
    writer.finish()?;
    Ok(RawDocumentBuf::from_bytes(bytes)?)
}

/// Returns a document with its empty timestamps, `Timestamp(0, 0)`, replaced by the cluster's time, as MongoDB does for
/// inserts and replacements: in the fields of the document itself, not in embedded documents, and not in `_id`. None if
/// there are no such fields.
///
/// # Errors
/// `InvalidBSON` (22).
pub fn stamp(document: &RawDocument, cluster_time: Timestamp) -> Result<Option<RawDocumentBuf>> {
    let empty = RawBsonRef::Timestamp(Timestamp { time: 0, increment: 0 });
    // The type byte is compared first, so that documents without timestamps cost one comparison per field.
    let is_empty = |element: &Element<'_>| -> Result<bool> {
        Ok(element.tag() == TIMESTAMP && element.name() != "_id" && element.value()? == empty)
    };
    let mut found = false;
    for element in elements(document) {
        found |= is_empty(&element?)?;
    }
    if !found {
        return Ok(None);
    }
    let now = crate::element::OwnedElement::new(RawBsonRef::Timestamp(cluster_time));
    let mut bytes = Vec::with_capacity(document.as_bytes().len());
    let mut writer = RawWriter::new(&mut bytes);
    for element in elements(document) {
        let element = element?;
        if is_empty(&element)? {
            writer.copy_as(element.name(), now.element());
        } else {
            writer.copy(element);
        }
    }
    writer.finish()?;
    Ok(Some(RawDocumentBuf::from_bytes(bytes)?))
}

const TIMESTAMP: u8 = bson::spec::ElementType::Timestamp as u8;
