//! Filters, updates and parsers for keys that are stored as documents: `{ _id: key, list: [..] }` or
//! `{ _id: key, value: .., amount: .. }`.

use std::ops::Range;

use bson::{RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};

use crate::{Cell, Failure};

/// Returns a filter for a key.
pub fn by_key(key: i64) -> RawDocumentBuf {
    rawdoc! { "_id": key }
}

/// Returns a filter for all keys of a range.
pub fn by_range(keys: &Range<i64>) -> RawDocumentBuf {
    rawdoc! { "_id": { "$gte": keys.start, "$lt": keys.end } }
}

/// Returns an update that appends to a list.
pub fn append(value: i64) -> RawDocumentBuf {
    rawdoc! { "$push": { "list": value } }
}

/// Returns an update that overwrites a register.
pub fn write(value: i64, amount: Option<i64>) -> RawDocumentBuf {
    let fields = match amount {
        Some(amount) => rawdoc! { "value": value, "amount": amount },
        None => rawdoc! { "value": value },
    };
    rawdoc! { "$set": fields }
}

/// Returns the key and the value of a document.
///
/// # Errors
/// [`Failure::Unexpected`] for a document that neither [`append`] nor [`write()`] makes.
pub fn key_and_cell(document: &RawDocument) -> Result<(i64, Cell), Failure> {
    Ok((integer(document, "_id")?, cell(document)?))
}

/// Returns the value of a document.
///
/// # Errors
/// [`Failure::Unexpected`], as with [`key_and_cell`].
pub fn cell(document: &RawDocument) -> Result<Cell, Failure> {
    if let Ok(Some(RawBsonRef::Array(list))) = document.get("list") {
        let value = |element: bson::error::Result<RawBsonRef<'_>>| element.ok().and_then(RawBsonRef::as_i64);
        let values: Option<Vec<i64>> = list.into_iter().map(value).collect();
        return values.map(Cell::List).ok_or_else(|| unexpected(document));
    }
    let amount = document.get("amount").ok().flatten().and_then(RawBsonRef::as_i64);
    Ok(Cell::Value { value: integer(document, "value")?, amount })
}

fn integer(document: &RawDocument, field: &str) -> Result<i64, Failure> {
    document.get_i64(field).map_err(|_| unexpected(document))
}

fn unexpected(document: &RawDocument) -> Failure {
    Failure::Unexpected(format!("a document that no client wrote: {document:?}"))
}
