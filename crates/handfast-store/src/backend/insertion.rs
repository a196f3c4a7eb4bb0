//! Prepares documents for storage: gives them an `_id`, moves it to the front, and refuses documents that no store may hold.
//!
//! Every backend calls [`prepare`], so that the same document is accepted, or refused with the same code, everywhere.

use bson::raw::cstr;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use handfast_mql::{Code, depth};

use crate::{Error, IdSource, Result};

#[cfg(test)]
mod tests;

pub use handfast_mql::depth::DOCUMENT_BYTES_MAX;

/// Prepares a document for storage: `_id` becomes its first field, and is generated if it is missing.
///
/// # Errors
/// `InvalidIdField` (53) for an `_id` that is an array, a regular expression or undefined; `DollarPrefixedFieldName` (52) for an
/// `_id` that is a document with a field `$..`; `BadValue` (2) for two `_id`s; `BSONObjectTooLarge` (10334); `InvalidBSON` (22);
/// the error of [`depth::check`] for too many levels.
pub fn prepare(document: RawDocumentBuf, ids: &dyn IdSource) -> Result<RawDocumentBuf> {
    check_structure(&document)?;
    let mut id = None;
    for (index, element) in document.iter().enumerate() {
        let (name, value) = element.map_err(handfast_mql::Error::from)?;
        if name.as_str() != "_id" {
            continue;
        }
        if id.is_some() {
            return Err(Error::command(Code::BadValue, "can't have multiple _id fields in one document"));
        }
        check_id(value)?;
        id = Some((index, value));
    }
    let prepared = match id {
        Some((0, _)) => document,
        Some((_, id)) => with_id_first(id, &document)?,
        None => with_id_first(RawBsonRef::ObjectId(ids.object_id()), &document)?,
    };
    check_size(&prepared)?;
    Ok(prepared)
}

/// Returns the `_id` of a stored document.
///
/// # Errors
/// `InvalidBSON` (22); `InternalError` (1) if there is none.
pub fn id(document: &RawDocument) -> Result<RawBsonRef<'_>> {
    document
        .get("_id")
        .map_err(handfast_mql::Error::from)?
        .ok_or_else(|| Error::command(Code::InternalError, "a stored document has no _id"))
}

/// Returns whether two `_id`s are the same value of the same type. `NaN` is the same as `NaN` here.
pub fn same_id(a: RawBsonRef<'_>, b: RawBsonRef<'_>) -> bool {
    match (a, b) {
        (RawBsonRef::Double(a), RawBsonRef::Double(b)) => a == b || a.is_nan() && b.is_nan(),
        (a, b) => a == b,
    }
}

/// Checks that a value may be an `_id`; [`prepare`] lists the errors.
pub fn check_id(id: RawBsonRef<'_>) -> Result<()> {
    let kind = match id {
        RawBsonRef::Array(_) => "array",
        RawBsonRef::RegularExpression(_) => "regex",
        RawBsonRef::Undefined => "undefined",
        RawBsonRef::Document(document) => return check_id_fields(document),
        _ => return Ok(()),
    };
    Err(Error::command(Code::InvalidIdField, format!("The '_id' value cannot be of type {kind}")))
}

fn check_id_fields(id: &RawDocument) -> Result<()> {
    for element in id {
        let (name, _) = element.map_err(handfast_mql::Error::from)?;
        if name.as_str().starts_with('$') {
            return Err(Error::command(
                Code::DollarPrefixedFieldName,
                format!("_id fields may not contain '$'-prefixed fields: {} is not valid for storage.", name.as_str()),
            ));
        }
    }
    Ok(())
}

/// Checks that a document is valid BSON and not nested too deeply to recurse into ([`depth::check`]).
pub fn check_structure(document: &RawDocument) -> Result<()> {
    // `check_size` checks the size later, when the document has its `_id`.
    let limits = depth::Limits { bytes_max: usize::MAX, ..depth::Limits::default() };
    Ok(depth::check(document.as_bytes(), limits)?)
}

/// Checks that a document is small enough to be stored.
///
/// # Errors
/// `BSONObjectTooLarge` (10334).
pub fn check_size(document: &RawDocument) -> Result<()> {
    let bytes = document.as_bytes().len();
    if bytes > DOCUMENT_BYTES_MAX {
        return Err(Error::command(
            Code::BSONObjectTooLarge,
            format!("object to insert too large. size in bytes: {bytes}, max size: {DOCUMENT_BYTES_MAX}"),
        ));
    }
    Ok(())
}

/// Returns the document with this `_id` as its first field.
///
/// # Errors
/// `InvalidBSON` (22).
pub fn with_id_first(id: RawBsonRef<'_>, document: &RawDocument) -> Result<RawDocumentBuf> {
    let mut prepared = RawDocumentBuf::new();
    prepared.append(cstr!("_id"), id);
    for element in document {
        let (name, value) = element.map_err(handfast_mql::Error::from)?;
        if name.as_str() != "_id" {
            prepared.append(name, value);
        }
    }
    Ok(prepared)
}
