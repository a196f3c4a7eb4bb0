//! The default collation of a collection.
//!
//! A request that names no collation has that of its collection, and so has an index that is made without one. `{locale: "simple"}`
//! overrides it:
//!
//! ```text
//! create c {collation: {locale: "fr"}}
//! find c {s: "a"}                                     under fr
//! find c {s: "a"}, collation {locale: "simple"}       by bytes
//! createIndexes c {s: 1}                              under fr
//! ```
//!
//! An aggregation has the collation of the collection or view that it starts from, also in the collections that its stages read.

use async_trait::async_trait;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use handfast_mql::collation::{is_named, simple, with_variable};
use handfast_mql::{Code, Collation};

use crate::{BatchLimit, CollectionOptions, Cursor, Error, Find, IndexSpec, Page, Result};

/// Returns the default collation of a collection, if it has one.
pub fn of(options: Option<&CollectionOptions>) -> Option<&RawDocumentBuf> {
    options?.collation.as_ref()
}

/// Returns the variables of a request under the default of its collection, unless they name a collation.
pub fn with_default(variables: RawDocumentBuf, default: Option<&RawDocumentBuf>) -> RawDocumentBuf {
    match default {
        Some(default) if !is_named(&variables) => with_variable(variables, Some(default)),
        _ => variables,
    }
}

/// Returns the find under the default of its collection; `None` if there is none, or if the find names a collation.
pub fn of_find(find: &Find, default: Option<&RawDocumentBuf>) -> Option<Find> {
    let default = default.filter(|_| !is_named(&find.variables))?;
    Some(Find { variables: with_variable(find.variables.clone(), Some(default)), ..find.clone() })
}

/// Returns the definition of a new index under the default of its collection, unless it names a collation.
///
/// # Errors
/// `BadValue` (2) for an index on `_id` with another collation than the default; the errors of a collation document.
pub fn of_index(mut spec: IndexSpec, default: Option<&RawDocumentBuf>) -> Result<IndexSpec> {
    spec.collation = match &spec.collation {
        Some(named) => Collation::parse(named)?.map(|collation| collation.document().to_owned()),
        None => default.cloned(),
    };
    if spec.is_id() && spec.collation.as_ref() != default {
        let text = "The _id index must have the same collation as the collection.";
        return Err(Error::command(Code::BadValue, text));
    }
    Ok(spec)
}

/// Returns the definition of an index that exists, so that creating it in a collection with this default gives it the same collation.
pub fn copied_index(spec: IndexSpec, default: Option<&RawDocumentBuf>) -> IndexSpec {
    match (&spec.collation, default) {
        (None, Some(_)) => IndexSpec { collation: Some(simple()), ..spec },
        _ => spec,
    }
}

/// Refuses an `_id` with a string in a collection with a default collation. It would have to be unique under the collation, and a store
/// finds documents by the bytes of their `_id`.
///
/// # Errors
/// `NotImplemented` (238).
pub fn check_id(id: RawBsonRef<'_>) -> Result<()> {
    if !has_text(id) {
        return Ok(());
    }
    let text = "a string in _id is not supported in a collection with a default collation: it would have to be unique under \
                the collation";
    Err(Error::command(Code::NotImplemented, text))
}

fn has_text(value: RawBsonRef<'_>) -> bool {
    let any_of = |document: &RawDocument| document.iter().flatten().any(|(_, value)| has_text(value));
    match value {
        RawBsonRef::String(_) | RawBsonRef::Symbol(_) => true,
        RawBsonRef::Document(document) => any_of(document),
        RawBsonRef::Array(array) => array.into_iter().flatten().any(has_text),
        _ => false,
    }
}

/// Returns the cursor of a find under the default of its collection.
pub fn cursor(cursor: Box<dyn Cursor>) -> Box<dyn Cursor> {
    Box::new(UnderDefault(cursor))
}

struct UnderDefault(Box<dyn Cursor>);

#[async_trait]
impl Cursor for UnderDefault {
    async fn next_page(&mut self, limit: BatchLimit) -> Result<Page> {
        self.0.next_page(limit).await
    }

    fn depends_on_catalog(&self) -> bool {
        true
    }
}
