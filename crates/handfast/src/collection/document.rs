//! What filters, changes and stages are written as.

use bson::{Document, RawDocument, RawDocumentBuf};
use handfast_mql::Code;
use handfast_store::{Error as StoreError, Result, UpdateSpec};
use serde::Serialize;

/// A document of the query language, such as a filter: `doc! {..}` or `rawdoc! {..}`.
pub trait IntoDocument {
    /// Returns the document as bytes.
    ///
    /// # Errors
    /// `BadValue` (2) for a document that cannot be written, such as one with a null character in the name of a field.
    fn into_document(self) -> Result<RawDocumentBuf>;
}

/// A change of a document: operators (`{$set: ..}`), or the stages of a pipeline as a vector or an array.
pub trait IntoUpdate {
    /// Returns the change.
    ///
    /// # Errors
    /// Returns the errors of [`IntoDocument::into_document`].
    fn into_update(self) -> Result<UpdateSpec>;
}

impl IntoDocument for RawDocumentBuf {
    fn into_document(self) -> Result<RawDocumentBuf> {
        Ok(self)
    }
}

impl IntoDocument for &RawDocument {
    fn into_document(self) -> Result<RawDocumentBuf> {
        Ok(self.to_owned())
    }
}

impl IntoDocument for Document {
    fn into_document(self) -> Result<RawDocumentBuf> {
        (&self).into_document()
    }
}

impl IntoDocument for &Document {
    fn into_document(self) -> Result<RawDocumentBuf> {
        RawDocumentBuf::try_from(self).map_err(unwritable)
    }
}

impl<D: IntoDocument> IntoUpdate for D {
    fn into_update(self) -> Result<UpdateSpec> {
        Ok(UpdateSpec::Document(self.into_document()?))
    }
}

impl<D: IntoDocument> IntoUpdate for Vec<D> {
    fn into_update(self) -> Result<UpdateSpec> {
        Ok(UpdateSpec::Pipeline(into_documents(self)?))
    }
}

impl<D: IntoDocument, const N: usize> IntoUpdate for [D; N] {
    fn into_update(self) -> Result<UpdateSpec> {
        Ok(UpdateSpec::Pipeline(into_documents(self)?))
    }
}

/// Returns a change that is no replacement of the document.
///
/// # Errors
/// `BadValue` (2) for a document without operators: to lose all other fields is rarely meant.
pub(super) fn operators(change: impl IntoUpdate) -> Result<UpdateSpec> {
    let change = change.into_update()?;
    if let UpdateSpec::Document(document) = &change
        && !begins_with_operator(document)
    {
        let text = "an update needs operators, such as {\"$set\": {..}}: replace_one replaces a document";
        return Err(StoreError::command(Code::BadValue, text));
    }
    Ok(change)
}

/// Writes a value as a document that replaces another one.
///
/// # Errors
/// `BadValue` (2) for a value that cannot be written, and for one whose first field is like an operator.
pub(super) fn replacement(value: &impl Serialize) -> Result<UpdateSpec> {
    let document = written(value)?;
    if begins_with_operator(&document) {
        let text = "the first field of a document that replaces another one must not begin with $";
        return Err(StoreError::command(Code::BadValue, text));
    }
    Ok(UpdateSpec::Document(document))
}

fn begins_with_operator(document: &RawDocument) -> bool {
    document.iter().next().is_some_and(|first| first.is_ok_and(|(name, _)| name.as_str().starts_with('$')))
}

pub(super) fn into_documents<D: IntoDocument>(documents: impl IntoIterator<Item = D>) -> Result<Vec<RawDocumentBuf>> {
    documents.into_iter().map(IntoDocument::into_document).collect()
}

/// Writes a value as a document.
pub(super) fn written(value: &impl Serialize) -> Result<RawDocumentBuf> {
    bson::serialize_to_raw_document_buf(value).map_err(unwritable)
}

fn unwritable(error: bson::error::Error) -> StoreError {
    StoreError::command(Code::BadValue, format!("the value cannot be written as a document: {error}"))
}
