//! Aggregation pipelines over any store.

use crate::*;
use bson::RawDocumentBuf;
use std::sync::Arc;

/// Opens a cursor over the output of a pipeline.
pub async fn open(_store: Arc<dyn DocumentStore>, _sources: &Sources, _request: Aggregate) -> Result<Box<dyn Cursor>> {
    Err(Error::command(handfast_mql::Code::CommandNotSupported, "not yet"))
}

/// Explains.
pub async fn explain(
    _store: &dyn DocumentStore,
    _sources: &Sources,
    _request: Aggregate,
    _verbosity: Verbosity,
) -> Result<RawDocumentBuf> {
    Err(Error::command(handfast_mql::Code::CommandNotSupported, "not yet"))
}
