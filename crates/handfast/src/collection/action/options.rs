//! The options of requests, each with the method that sets it.

use bson::RawDocumentBuf;
use handfast_store::{Hint, ReturnDocument};

/// The options of all requests. Each request has methods for those that it knows.
#[derive(Default)]
pub(super) struct Options {
    pub(super) sort: RawDocumentBuf,
    pub(super) projection: RawDocumentBuf,
    pub(super) skip: u64,
    pub(super) limit: Option<u64>,
    pub(super) hint: Option<Hint>,
    pub(super) collation: Option<RawDocumentBuf>,
    pub(super) let_vars: Option<RawDocumentBuf>,
    pub(super) array_filters: Vec<RawDocumentBuf>,
    pub(super) upsert: bool,
    pub(super) returns: ReturnDocument,
}

/// Defines the methods that set these options.
macro_rules! setters {
    ($($option:ident)*) => { $(setters!(@ $option);)* };
    (@ sort) => {
        /// Sets the order, such as `doc! { "age": -1 }`.
        pub fn sort(mut self, sort: impl IntoDocument) -> Self {
            self.parts.options.sort = self.parts.document(sort);
            self
        }
    };
    (@ projection) => {
        /// Sets the fields that are returned, such as `doc! { "name": 1 }`.
        pub fn projection(mut self, projection: impl IntoDocument) -> Self {
            self.parts.options.projection = self.parts.document(projection);
            self
        }
    };
    (@ skip) => {
        /// Skips the first documents.
        pub fn skip(mut self, documents: u64) -> Self {
            self.parts.options.skip = documents;
            self
        }
    };
    (@ limit) => {
        /// Ends after this number of documents; 0 means no limit.
        pub fn limit(mut self, documents: u64) -> Self {
            self.parts.options.limit = (documents > 0).then_some(documents);
            self
        }
    };
    (@ hint) => {
        /// Uses the index with this name or key.
        pub fn hint(mut self, hint: Hint) -> Self {
            self.parts.options.hint = Some(hint);
            self
        }
    };
    (@ collation) => {
        /// Compares strings by the rules of a language, such as `doc! { "locale": "sv" }`.
        pub fn collation(mut self, collation: impl IntoDocument) -> Self {
            self.parts.options.collation = Some(self.parts.document(collation));
            self
        }
    };
    (@ let_vars) => {
        /// Sets variables for expressions, which read them as `$$name`.
        pub fn let_vars(mut self, variables: impl IntoDocument) -> Self {
            self.parts.options.let_vars = Some(self.parts.document(variables));
            self
        }
    };
    (@ array_filters) => {
        /// Sets the conditions of `$[name]` in the paths of the change.
        pub fn array_filters<D: IntoDocument>(mut self, filters: impl IntoIterator<Item = D>) -> Self {
            self.parts.options.array_filters = self.parts.part(into_documents(filters)).unwrap_or_default();
            self
        }
    };
    (@ upsert) => {
        /// Sets whether a document is inserted if none matches.
        pub fn upsert(mut self, upsert: bool) -> Self {
            self.parts.options.upsert = upsert;
            self
        }
    };
}

pub(super) use setters;
