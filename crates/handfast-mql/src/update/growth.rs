//! The limit on what an update may add to a document, which is checked before anything is written.
//!
//! An update of a few bytes could make terabytes: `{$set: {"a.$[].1500000": 1}}` pads every array in `a`, and `{$set:
//! {"a.$[]": <15 MB>}}` copies its operand into every element. What an update adds to the tree is therefore counted
//! while it is added, and what it writes is counted while it is written. Neither count exceeds the bytes of the result, so no
//! update is refused whose result would be accepted.

use crate::depth::DOCUMENT_BYTES_MAX;
use crate::element::Element;
use crate::{Code, Error, Result};

/// MongoDB's code for an update whose result is too large.
const UPDATE_TOO_LARGE: Code = Code(17419);
/// MongoDB's code for an upsert whose document is too large.
const UPSERT_TOO_LARGE: Code = Code(17420);

/// The fewest bytes of an array element without its value: type, an index of one digit, NUL.
const ARRAY_ELEMENT_BYTES: usize = 3;
/// The fewest bytes of a field without name and value: type, NUL.
const FIELD_BYTES: usize = 2;
#[derive(Debug)]
pub(super) struct GrowthLimit {
    left: usize,
    inserting: bool,
}

impl GrowthLimit {
    /// Creates the limit for one document: the size that may be stored.
    pub(super) fn new(inserting: bool) -> Self {
        GrowthLimit { left: DOCUMENT_BYTES_MAX, inserting }
    }

    /// Reserves the bytes of an addition.
    ///
    /// # Errors
    /// 17419, or 17420 for an upsert, if they exceed the limit.
    pub(super) fn reserve(&mut self, bytes: usize) -> Result<()> {
        self.left = self.left.checked_sub(bytes).ok_or_else(|| too_large(self.inserting))?;
        Ok(())
    }

    /// Checks the bytes that are written so far.
    ///
    /// # Errors
    /// Returns the errors of [`check_size`].
    pub(super) fn check_written(&self, written: usize) -> Result<()> {
        check_size(written, self.inserting)
    }
}

/// Checks the bytes of a document that an update made, or is about to make.
///
/// # Errors
/// 17419, or 17420 for an upsert, if they are too many.
pub(super) fn check_size(bytes: usize, inserting: bool) -> Result<()> {
    if bytes > DOCUMENT_BYTES_MAX { Err(too_large(inserting)) } else { Ok(()) }
}

/// Returns the least bytes of values as elements of an array.
pub(super) fn array_bytes<'e>(values: impl Iterator<Item = Element<'e>>) -> usize {
    values.map(|value| ARRAY_ELEMENT_BYTES + value.payload().len()).sum()
}

/// Returns the least bytes of `count` `null`s in an array.
pub(super) fn null_bytes(count: usize) -> usize {
    count.saturating_mul(ARRAY_ELEMENT_BYTES)
}
pub(super) fn field_bytes(name: &str, value_bytes: usize) -> usize {
    FIELD_BYTES + name.len() + value_bytes
}

fn too_large(inserting: bool) -> Error {
    let (code, what) = if inserting {
        (UPSERT_TOO_LARGE, "Document to upsert")
    } else {
        (UPDATE_TOO_LARGE, "Resulting document after update")
    };
    Error::new(code, format!("{what} is larger than {DOCUMENT_BYTES_MAX}"))
}
