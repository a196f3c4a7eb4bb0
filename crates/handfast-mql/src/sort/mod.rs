//! Sorting documents: the key of a document under a sort, as bytes whose order is the sort's order, and a sorter with a
//! bound on its memory.
//!
//! Where the sort's fields meet arrays, the key of a document is as MongoDB documents it: an array stands for its least
//! element in an ascending sort, and for its greatest in a descending one; an empty array comes before null; a missing
//! field is null. Several fields through the same array are compared together, element by element; fields through
//! different arrays are refused.
//!
//! ```text
//! sort {a: 1, b: -1}
//! {a: [3, 1], b: 5}   ->  1, 5     least a
//! {b: [3, 1]}         ->  null, 3  greatest b
//! sort {"a.b": 1, "a.c": 1}
//! {a: [{b: 2, c: 0}, {b: 1, c: 7}]}  ->  1, 7
//! ```

mod runs;
mod sorter;
mod tuples;

use std::cmp::Ordering;

use bson::{RawBsonRef, RawDocument};

use crate::collation::Collation;
use crate::key::{self, Direction};
use crate::number::Number;
use crate::path::Path;
use crate::{Code, Error, Result, field_path, text};

pub use sorter::{Sorted, Sorter};
use tuples::{SortValue, for_each_tuple};

/// MongoDB's bound on the fields of a sort, that of a compound index.
pub const SORT_FIELDS_MAX: usize = 32;

const ILLEGAL_KEY: Code = Code(15974);
const ILLEGAL_ORDER: Code = Code(15975);
const TOO_MANY_KEYS: Code = Code(13103);

/// A compiled sort.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sort {
    fields: Vec<SortField>,
    collation: Option<Collation>,
}

/// A field of a sort.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortField {
    path: Path,
    direction: Direction,
}

impl SortField {
    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the direction: 1 or -1.
    pub fn direction(&self) -> Direction {
        self.direction
    }
}

impl Sort {
    /// Compiles `{a: 1, "b.c": -1}`. An empty document sorts nothing: all keys are equal.
    ///
    /// # Errors
    /// MongoDB's codes for a direction that is not 1 or -1 (15975), for one that is no number (15974), for more than
    /// [`SORT_FIELDS_MAX`] fields (13103), for paths that are none; `BadValue` for `$meta`, which Handfast does not have.
    pub fn compile(sort: &RawDocument) -> Result<Self> {
        let mut fields = Vec::new();
        for field in sort.iter() {
            let (name, direction) = field?;
            if fields.len() == SORT_FIELDS_MAX {
                return Err(Error::new(TOO_MANY_KEYS, format!("a sort may have at most {SORT_FIELDS_MAX} keys")));
            }
            let name = name.as_str();
            field_path::check(name)?;
            fields.push(SortField { path: Path::new(name), direction: compile_direction(name, direction)? });
        }
        Ok(Sort { fields, collation: None })
    }

    /// Sorts strings by a collation.
    #[must_use]
    pub fn under(mut self, collation: Option<&Collation>) -> Self {
        self.collation = collation.cloned();
        self
    }

    /// Returns the collation by which strings are sorted.
    pub fn collation(&self) -> Option<&Collation> {
        self.collation.as_ref()
    }

    /// Returns the fields, in order.
    pub fn fields(&self) -> &[SortField] {
        &self.fields
    }

    /// Tells whether it sorts nothing.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Returns the key of a document: of two documents, the one with the smaller bytes comes first. Equal bytes mean
    /// that the sort does not tell the two apart.
    ///
    /// # Errors
    /// `BadValue` (2) if two of the fields go through different arrays.
    pub fn key(&self, document: &RawDocument) -> Result<Vec<u8>> {
        let mut least: Option<Vec<u8>> = None;
        let mut spare = Vec::new();
        let paths: Vec<&Path> = self.fields.iter().map(|field| &field.path).collect();
        for_each_tuple(&paths, document, &mut |tuple| {
            spare.clear();
            for (found, field) in tuple.iter().zip(&self.fields) {
                encode(*found, field.direction, self.collation.as_ref(), &mut spare);
            }
            match &mut least {
                None => least = Some(spare.clone()),
                Some(least) if spare < *least => std::mem::swap(least, &mut spare),
                Some(_) => {}
            }
        })?;
        Ok(least.unwrap_or_default())
    }

    /// Compares two documents; [`Sort::key`] is faster for many.
    ///
    /// # Errors
    /// Returns the errors of [`Sort::key`].
    pub fn compare(&self, a: &RawDocument, b: &RawDocument) -> Result<Ordering> {
        Ok(self.key(a)?.cmp(&self.key(b)?))
    }
}

fn encode(found: SortValue<'_>, direction: Direction, collation: Option<&Collation>, out: &mut Vec<u8>) {
    match found {
        SortValue::Missing => key::encode_directed(RawBsonRef::Null, direction, out),
        SortValue::EmptyArray => key::encode_empty_array(direction, out),
        SortValue::Value(value) => key::encode_directed_under(value, direction, collation, out),
    }
}

fn compile_direction(name: &str, direction: RawBsonRef<'_>) -> Result<Direction> {
    if let RawBsonRef::Document(meta) = direction {
        if meta.get("$meta")?.is_some() {
            return Err(Error::new(Code::BadValue, "sort by $meta is not supported: there are no text scores"));
        }
    } else if let Some(number) = Number::of(direction) {
        return match number.to_i64_exact() {
            Some(1) => Ok(Direction::Ascending),
            Some(-1) => Ok(Direction::Descending),
            _ => Err(Error::new(ILLEGAL_ORDER, "$sort key ordering must be 1 (for ascending) or -1 (for descending)")),
        };
    }
    Err(Error::new(ILLEGAL_KEY, format!("Illegal key in $sort specification: {}", text::field(name, direction))))
}

#[cfg(test)]
mod tests;
