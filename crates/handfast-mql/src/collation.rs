//! Collations: the order of strings by the rules of a language, as MongoDB's `collation` documents ask for it.
//!
//! ```text
//! {locale: "en", strength: 2}             "Bob" = "bob", "e" < "é"
//! {locale: "en", strength: 1}             "e" = "é" = "E"
//! {locale: "en", numericOrdering: true}   "item9" < "item10"
//! {locale: "simple"}                      no collation: bytes
//! ```
//!
//! A [`Collation`] compares two strings, and makes sort keys, whose bytes are in the same order. It belongs to a request, and everything
//! of the request that compares strings uses it. It therefore travels with the variables of the request, under the name [`VARIABLE`], which no
//! variable of a user can have: where the variables are known, the collation is known. [`CompileOptions`](crate::CompileOptions) and
//! [`Context`](crate::Context) take it from there.
//!
//! Source: the MongoDB manual, "Collation" and "Supported Languages and Locales"; the order itself is that of ICU4X.

mod fields;
mod locale;

use std::cmp::Ordering;
use std::sync::Arc;

use bson::raw::{CStr, cstr};
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use icu_collator::CollatorBorrowed;

use crate::{Error, Result};

/// The name of the collation among the variables of a request.
pub const VARIABLE: &CStr = cstr!("COLLATION");

/// A collation other than the simple one. Clones share its tables.
#[derive(Clone)]
pub struct Collation(Arc<Inner>);

struct Inner {
    collator: CollatorBorrowed<'static>,
    /// All fields, also those that were not given.
    document: RawDocumentBuf,
}

impl Collation {
    /// Reads a collation document; `None` for the simple collation, and for a document without any field.
    ///
    /// # Errors
    /// `BadValue` (2) for a locale that is not known, a value that is none of a field's values, and fields that contradict each other;
    /// `TypeMismatch` (14); 51024 for a strength that is not from 1 to 5; 40414 without a locale; 40415 for an unknown field;
    /// `IncompatibleCollationVersion` (161); `NotImplemented` (238) for `backwards` where it is not the rule of the locale.
    pub fn parse(document: &RawDocument) -> Result<Option<Self>> {
        if document.is_empty() {
            return Ok(None);
        }
        let fields = fields::Fields::read(document)?;
        if fields.locale == "simple" {
            return Ok(None);
        }
        let (collator, document) = fields.resolve(document)?;
        Ok(Some(Collation(Arc::new(Inner { collator, document }))))
    }

    /// Returns the collation among the variables of a request.
    ///
    /// # Errors
    /// Returns the errors of [`Collation::parse`].
    pub fn among(variables: &RawDocument) -> Result<Option<Self>> {
        match variables.get(VARIABLE.as_str())? {
            Some(RawBsonRef::Document(document)) => Collation::parse(document),
            _ => Ok(None),
        }
    }

    /// Returns the document with all fields, in the form that `listIndexes` shows.
    pub fn document(&self) -> &RawDocument {
        &self.0.document
    }

    /// Compares two strings.
    pub fn compare(&self, left: &str, right: &str) -> Ordering {
        self.0.collator.compare(left, right)
    }

    /// Appends the sort key of a string: equal for strings that are equal, and in their order.
    pub fn append_sort_key(&self, text: &str, out: &mut Vec<u8>) {
        // The error of a vector is the type without values.
        let Ok(()) = self.0.collator.write_sort_key_to(text, out);
    }
}

/// Returns variables with a collation among them.
pub fn with_variable(mut variables: RawDocumentBuf, collation: Option<&RawDocument>) -> RawDocumentBuf {
    if let Some(collation) = collation {
        variables.append(VARIABLE, collation.to_owned());
    }
    variables
}

/// Returns the document of the simple collation. In a request it overrides the default of a collection.
pub fn simple() -> RawDocumentBuf {
    bson::rawdoc! { "locale": "simple" }
}

/// Returns whether variables have a collation among them, the simple one included.
pub fn is_named(variables: &RawDocument) -> bool {
    matches!(variables.get(VARIABLE.as_str()), Ok(Some(_)))
}

/// Returns whether strings are compared by their bytes under these variables.
pub fn is_simple(variables: &RawDocument) -> bool {
    match variables.get(VARIABLE.as_str()) {
        Ok(Some(RawBsonRef::Document(document))) => {
            document.is_empty() || document.get_str("locale").is_ok_and(|locale| locale == "simple")
        }
        _ => true,
    }
}

/// Returns whether the order of values may depend on a collation if this is one of them.
pub fn compares_text(value: RawBsonRef<'_>) -> bool {
    matches!(value, RawBsonRef::String(_) | RawBsonRef::Symbol(_) | RawBsonRef::Document(_) | RawBsonRef::Array(_))
}

impl PartialEq for Collation {
    fn eq(&self, other: &Self) -> bool {
        self.0.document.as_bytes() == other.0.document.as_bytes()
    }
}

impl Eq for Collation {}

impl std::fmt::Debug for Collation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Collation").field(&self.0.document).finish()
    }
}

fn bad_value(message: String) -> Error {
    Error::new(crate::Code::BadValue, message)
}

#[cfg(test)]
mod tests;
