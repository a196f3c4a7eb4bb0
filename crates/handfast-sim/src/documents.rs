//! How keys are kept by stores of documents: one document each, `{ _id: key, list: [..] }` or
//! `{ _id: key, value: .., amount: .. }`. The operations are those of users: a find, an update with upsert, a find over
//! a range.

use std::ops::Range;

use bson::{RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};

use crate::{Cell, Failure};

/// Finds a key.
pub fn one(key: i64) -> RawDocumentBuf {
    rawdoc! { "_id": key }
}

/// Finds all keys of a range.
pub fn all_of(keys: &Range<i64>) -> RawDocumentBuf {
    rawdoc! { "_id": { "$gte": keys.start, "$lt": keys.end } }
}

/// Appends to a list.
pub fn append(value: i64) -> RawDocumentBuf {
    rawdoc! { "$push": { "list": value } }
}

/// Overwrites a register.
pub fn write(value: i64, amount: Option<i64>) -> RawDocumentBuf {
    let fields = match amount {
        Some(amount) => rawdoc! { "value": value, "amount": amount },
        None => rawdoc! { "value": value },
    };
    rawdoc! { "$set": fields }
}

/// The key of a document, and what it holds.
///
/// # Errors
/// It is not what [`append`] and [`write()`] make.
pub fn keyed(document: &RawDocument) -> Result<(i64, Cell), Failure> {
    Ok((integer(document, "_id")?, cell(document)?))
}

/// What a document holds.
///
/// # Errors
/// It is not what [`append`] and [`write()`] make.
pub fn cell(document: &RawDocument) -> Result<Cell, Failure> {
    if let Ok(Some(RawBsonRef::Array(list))) = document.get("list") {
        let value = |element: bson::error::Result<RawBsonRef<'_>>| element.ok().and_then(RawBsonRef::as_i64);
        let values: Option<Vec<i64>> = list.into_iter().map(value).collect();
        return values.map(Cell::List).ok_or_else(|| strange(document));
    }
    let amount = document.get("amount").ok().flatten().and_then(RawBsonRef::as_i64);
    Ok(Cell::Value { value: integer(document, "value")?, amount })
}

fn integer(document: &RawDocument, field: &str) -> Result<i64, Failure> {
    document.get_i64(field).map_err(|_| strange(document))
}

fn strange(document: &RawDocument) -> Failure {
    Failure::Unexpected(format!("a document that nobody wrote: {document:?}"))
}
