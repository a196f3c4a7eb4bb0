//! The filters of `listCollections`, `listDatabases` and `currentOp`, over documents that the server makes itself.

use bson::RawDocument;
use handfast_mql::Code;

use crate::error::{CommandError, Outcome};
use crate::state::Shared;

/// A filter over the documents of a list.
pub(super) struct ListFilter {}

impl ListFilter {
    pub(super) fn compile(filter: &RawDocument) -> Outcome<Self> {
        if filter.is_empty() {
            Ok(ListFilter {})
        } else {
            Err(CommandError::new(Code::NotImplemented, "filters of lists are not supported"))
        }
    }

    pub(super) fn matches(&self, _shared: &Shared, _document: &RawDocument) -> Outcome<bool> {
        Ok(true)
    }
}
