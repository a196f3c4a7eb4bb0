//! The keys that a document has: its own, and those of an index.

use std::collections::BTreeSet;

use bson::{RawBsonRef, RawDocument};
use handfast_mql::Code;
use handfast_mql::key::{self, Direction};
use handfast_store::index::{Index, Tuple};
use handfast_store::{Error as StoreError, Result as StoreResult};

/// MongoDB's code of a key that an index cannot hold.
const KEY_TOO_LONG: Code = Code(17280);

/// The key of an `_id`: values that are equal have the same.
pub(crate) fn of_id(id: RawBsonRef<'_>) -> Vec<u8> {
    let mut encoded = Vec::with_capacity(16);
    key::encode(id, &mut encoded);
    encoded
}

/// The key of a document's `_id`.
pub(crate) fn of_document_id(document: &RawDocument) -> StoreResult<Vec<u8>> {
    Ok(of_id(handfast_store::insertion::id(document)?))
}

/// Which way the values of a field go.
pub(crate) fn direction(descending: bool) -> Direction {
    if descending { Direction::Descending } else { Direction::Ascending }
}

/// A value of an index's field: `None` is a missing one, which is found as null; undefined stands for an empty array
/// ([`Index::tuples`]).
fn encode(value: Option<RawBsonRef<'_>>, direction: Direction, key: &mut Vec<u8>) {
    match value {
        Some(RawBsonRef::Undefined) => key::encode_empty_array(direction, key),
        value => key::encode_directed(value.unwrap_or(RawBsonRef::Null), direction, key),
    }
}

/// What one index holds of one document.
#[derive(Default)]
pub(crate) struct IndexKeys<'d> {
    entries: Vec<(Vec<u8>, Tuple<'d>)>,
    /// Bit n: field n came through an array.
    pub(crate) multikey: u32,
}

impl<'d> IndexKeys<'d> {
    /// Each key once, with the values that it stands for.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&[u8], &Tuple<'d>)> {
        self.entries.iter().map(|(key, tuple)| (key.as_slice(), tuple))
    }

    /// The keys alone.
    pub(crate) fn encoded(&self) -> BTreeSet<Vec<u8>> {
        self.entries.iter().map(|(key, _)| key.clone()).collect()
    }
}

/// The keys of a document in an index.
///
/// # Errors
/// `CannotIndexParallelArrays` (171).
pub(crate) fn of<'d>(index: &Index, document: &'d RawDocument) -> StoreResult<IndexKeys<'d>> {
    let tuples = index.tuples(document)?;
    let mut keys = IndexKeys { entries: Vec::with_capacity(tuples.tuples.len()), multikey: tuples.multikey };
    for tuple in tuples.tuples {
        if !index.leaves_out(&tuple) {
            keys.entries.push((encode_tuple(index, &tuple), tuple));
        }
    }
    keys.entries.sort_by(|one, other| one.0.cmp(&other.0));
    keys.entries.dedup_by(|one, other| one.0 == other.0);
    Ok(keys)
}

fn encode_tuple(index: &Index, tuple: &Tuple<'_>) -> Vec<u8> {
    let mut key = Vec::with_capacity(16 * tuple.len());
    for (value, descending) in tuple.iter().zip(index.descending()) {
        encode(*value, direction(*descending), &mut key);
    }
    key
}

/// A key that the engine cannot hold.
pub(crate) fn too_long(index: &str, bytes: usize) -> StoreError {
    let text = format!("the key of index '{index}' is too long: {bytes} bytes, with the _id at most 65,000");
    StoreError::command(KEY_TOO_LONG, text)
}
