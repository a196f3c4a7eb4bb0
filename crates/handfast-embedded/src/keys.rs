//! The key of a document by its `_id`. [`handfast_store::index::Index`] makes the keys of indexes.

use bson::{RawBsonRef, RawDocument};
use handfast_mql::{Code, key};
use handfast_store::{Error as StoreError, Result as StoreResult};

/// MongoDB's code for a key that is too long for an index.
const KEY_TOO_LONG: Code = Code(17280);

/// Returns the key of an `_id`. Equal values have equal keys.
pub(crate) fn of_id(id: RawBsonRef<'_>) -> Vec<u8> {
    key::encoded(id)
}

/// Returns the key of a document's `_id`.
pub(crate) fn of_document_id(document: &RawDocument) -> StoreResult<Vec<u8>> {
    Ok(of_id(handfast_store::insertion::id(document)?))
}

/// Returns the error of a key that is too long for the engine.
pub(crate) fn too_long(index: &str, bytes: usize) -> StoreError {
    let text = format!("the key of index '{index}' is too long: {bytes} bytes, with the _id at most 65,000");
    StoreError::command(KEY_TOO_LONG, text)
}
