//! The key that a document has by its `_id`. Those of indexes come from [`handfast_store::index::Index`].

use bson::{RawBsonRef, RawDocument};
use handfast_mql::{Code, key};
use handfast_store::{Error as StoreError, Result as StoreResult};

/// MongoDB's code of a key that an index cannot hold.
const KEY_TOO_LONG: Code = Code(17280);

/// The key of an `_id`: values that are equal have the same.
pub(crate) fn of_id(id: RawBsonRef<'_>) -> Vec<u8> {
    key::encoded(id)
}

/// The key of a document's `_id`.
pub(crate) fn of_document_id(document: &RawDocument) -> StoreResult<Vec<u8>> {
    Ok(of_id(handfast_store::insertion::id(document)?))
}

/// A key that the engine cannot hold.
pub(crate) fn too_long(index: &str, bytes: usize) -> StoreError {
    let text = format!("the key of index '{index}' is too long: {bytes} bytes, with the _id at most 65,000");
    StoreError::command(KEY_TOO_LONG, text)
}
