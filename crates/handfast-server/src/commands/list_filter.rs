//! The filters of `listCollections`, `listDatabases` and `currentOp`, over documents that the server makes itself.

use bson::{RawDocument, Timestamp};
use handfast_mql::{CompileOptions, Context, Filter};

use crate::error::CommandResult;
use crate::state::Shared;

/// A filter over the documents of a list.
pub(super) struct ListFilter {
    filter: Filter,
    context: Context,
}

impl ListFilter {
    pub(super) fn compile(shared: &Shared, filter: &RawDocument) -> CommandResult<Self> {
        let now = shared.sources.clock.now();
        let seed = shared.sources.random.next_u64();
        let context = Context::new(now, Timestamp { time: 0, increment: 0 }, seed);
        Ok(ListFilter { filter: Filter::compile(filter, &CompileOptions::default())?, context })
    }

    pub(super) fn matches(&self, document: &RawDocument) -> CommandResult<bool> {
        Ok(self.filter.matches(document, &self.context)?)
    }
}
