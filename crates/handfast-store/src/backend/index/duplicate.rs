//! The error of a second document under a unique key.

use bson::raw::{CString, cstr};
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use handfast_mql::Code;

use crate::{Error, IndexSpec, Namespace, notation};

/// Returns `DuplicateKey` (11000) with MongoDB's text, which users read and drivers' tests compare, and with `keyPattern` and
/// `keyValue`. `values` are the values of the key, in the order of the index's fields; a missing one is shown as null.
///
/// ```
/// # use bson::{RawBsonRef, rawdoc};
/// # use handfast_store::{IndexSpec, Namespace, index::duplicate_key};
/// let index = IndexSpec { unique: true, ..IndexSpec::new(rawdoc! { "a": 1 }) };
/// let error = duplicate_key(&Namespace::new("db", "c")?, &index, &[Some(RawBsonRef::Int32(1))]);
/// assert_eq!(error.message(), "E11000 duplicate key error collection: db.c index: a_1 dup key: { a: 1 }");
/// # Ok::<_, handfast_store::Error>(())
/// ```
pub fn duplicate_key(namespace: &Namespace, index: &IndexSpec, values: &[Option<RawBsonRef<'_>>]) -> Error {
    let key_value = key_document(&index.key, values);
    let message = format!(
        "E11000 duplicate key error collection: {namespace} index: {} dup key: {}",
        index.name,
        notation::document(&key_value)
    );
    let mut details = RawDocumentBuf::new();
    details.append(cstr!("keyPattern"), index.key.clone());
    details.append(cstr!("keyValue"), key_value);
    Error::command(Code::DuplicateKey, message).with_details(details)
}

/// Returns `WriteConflict` (112) for a duplicate key that the snapshot of the batch does not show: a new attempt sees the
/// document that has the key.
pub fn key_conflict(duplicate: &Error) -> Error {
    let text = format!("write conflict: a unique key was taken after the snapshot: {}", duplicate.message());
    Error::command(Code::WriteConflict, text)
}

/// Returns the fields of a key pattern with the values of one key.
pub(super) fn key_document(pattern: &RawDocument, values: &[Option<RawBsonRef<'_>>]) -> RawDocumentBuf {
    let mut document = RawDocumentBuf::new();
    for ((name, _), value) in pattern.iter().flatten().zip(values) {
        let name: CString = name.into();
        document.append(name, value.unwrap_or(RawBsonRef::Null));
    }
    document
}
