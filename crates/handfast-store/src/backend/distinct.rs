//! The distinct values of a field.

use std::collections::BTreeMap;

use bson::{RawBson, RawBsonRef, RawDocument};
use handfast_mql::{Code, key};

use crate::index::{Path, tuples};
use crate::insertion::DOCUMENT_BYTES_MAX;
use crate::{Error, Result};

#[cfg(test)]
mod tests;

/// MongoDB's code for more values than a reply holds.
pub const DISTINCT_TOO_BIG: Code = Code(17217);

/// Collects values, each once: numbers that compare equal are one, an array stands for its elements.
#[derive(Debug)]
pub struct DistinctValues {
    path: Path,
    /// By their keys: in order.
    values: BTreeMap<Vec<u8>, RawBson>,
    bytes: usize,
}

impl DistinctValues {
    /// Those of a dotted path.
    pub fn new(path: &str) -> Self {
        DistinctValues { path: path.split('.').map(Box::from).collect(), values: BTreeMap::new(), bytes: 0 }
    }

    /// Adds the values of a document.
    ///
    /// # Errors
    /// 17217 if there are more than one reply holds; `InvalidBSON` (22).
    pub fn add(&mut self, document: &RawDocument) -> Result<()> {
        for tuple in tuples(std::slice::from_ref(&self.path), document)?.tuples {
            let Some(value) = tuple.first().copied().flatten() else { continue };
            // An empty array has no elements.
            if value == RawBsonRef::Undefined {
                continue;
            }
            let encoded = key::encoded(value);
            if !self.values.contains_key(&encoded) {
                // An element of an array takes its type, its index as text, and its value.
                self.bytes += encoded.len() + 8;
                if self.bytes > DOCUMENT_BYTES_MAX {
                    return Err(Error::command(DISTINCT_TOO_BIG, "distinct too big, 16mb cap"));
                }
                self.values.insert(encoded, RawBson::from(value));
            }
        }
        Ok(())
    }

    /// The values, in order.
    pub fn finish(self) -> Vec<RawBson> {
        self.values.into_values().collect()
    }
}
