//! The distinct values of a field.

use std::collections::BTreeMap;

use bson::{RawBson, RawBsonRef, RawDocument};
use handfast_mql::{Code, Collation, key};

use crate::index::{Path, tuples};
use crate::insertion::DOCUMENT_BYTES_MAX;
use crate::{Distinct, Error, Result};

#[cfg(test)]
mod tests;

/// MongoDB's code for more values than a reply holds.
pub const DISTINCT_TOO_BIG: Code = Code(17217);

/// A collector of distinct values: numbers that compare equal are one value, and an array counts as its elements.
#[derive(Debug)]
pub struct DistinctValues {
    path: Path,
    collation: Option<Collation>,
    /// Values by their encoded keys, which are in the order of the values.
    values: BTreeMap<Vec<u8>, RawBson>,
    bytes: usize,
}

impl DistinctValues {
    /// Creates a collector of the values under a dotted path.
    pub fn new(path: &str) -> Self {
        DistinctValues {
            path: path.split('.').map(Box::from).collect(),
            collation: None,
            values: BTreeMap::new(),
            bytes: 0,
        }
    }

    /// Creates a collector for a request, whose collation may make strings equal.
    ///
    /// # Errors
    /// Returns the errors of a collation document.
    pub fn of(request: &Distinct) -> Result<Self> {
        let collation = request.collation.as_deref().map(Collation::parse).transpose()?.flatten();
        Ok(DistinctValues { collation, ..DistinctValues::new(&request.key) })
    }

    /// Adds the values of a document.
    ///
    /// # Errors
    /// 17217 if the values exceed the size of one reply; `InvalidBSON` (22).
    pub fn add(&mut self, document: &RawDocument) -> Result<()> {
        for tuple in tuples(std::slice::from_ref(&self.path), document)?.tuples {
            let Some(value) = tuple.first().copied().flatten() else { continue };
            // An empty array has no elements.
            if value == RawBsonRef::Undefined {
                continue;
            }
            let encoded = key::encoded_under(value, self.collation.as_ref());
            if !self.values.contains_key(&encoded) {
                // In an array an element has one byte for its type, its index as text, and its value.
                self.bytes += encoded.len() + 8;
                if self.bytes > DOCUMENT_BYTES_MAX {
                    return Err(Error::command(DISTINCT_TOO_BIG, "distinct too big, 16mb cap"));
                }
                self.values.insert(encoded, RawBson::from(value));
            }
        }
        Ok(())
    }

    /// Returns the values in ascending order.
    pub fn finish(self) -> Vec<RawBson> {
        self.values.into_values().collect()
    }
}
