//! A query that is being answered: candidates from a scan, judged by the filter.
//!
//! Whatever the plan says, the filter has the last word on every document: bounds of an index only spare looking.

use std::ops::ControlFlow;
use std::sync::Arc;

use bson::{RawDocumentBuf, Timestamp};
use handfast_mql::{CompileOptions, Context, Filter};
use handfast_store::{Result as StoreResult, Sources};

use super::scan::{Progress, Reader, Scan};
use crate::format::StoredDocument;

/// Candidates looked at in one go, before the caller is asked whether it is still there.
pub(crate) const CANDIDATES_PER_TURN_MAX: u64 = 10_000;

/// What an evaluation needs to know: the time and chance of this request, and its variables.
pub(crate) fn context(sources: &Sources, variables: RawDocumentBuf) -> Context {
    let now = sources.clock.now();
    let seconds = u32::try_from(now.timestamp_millis() / 1000).unwrap_or(0);
    let cluster_time = Timestamp { time: seconds, increment: 1 };
    Context::new(now, cluster_time, sources.random.next_u64()).with_variables(variables)
}

/// A compiled filter with what it needs.
#[derive(Clone)]
pub(crate) struct Question {
    pub(crate) filter: Arc<Filter>,
    pub(crate) context: Arc<Context>,
}

impl Question {
    /// Compiles a filter.
    pub(crate) fn compile(
        filter: &bson::RawDocument,
        variables: &RawDocumentBuf,
        sources: &Sources,
    ) -> StoreResult<Self> {
        let options = CompileOptions::with_variables(variables)?;
        let filter = Arc::new(Filter::compile(filter, &options)?);
        Ok(Question { filter, context: Arc::new(context(sources, variables.clone())) })
    }

    /// Whether a document matches.
    pub(crate) fn matches(&self, stored: &StoredDocument) -> StoreResult<bool> {
        Ok(self.filter.matches(stored.document()?, &self.context)?)
    }
}

/// Walks a scan for one turn and gives the documents that match to the visitor, until it breaks.
///
/// `Paused` says that there may be more: the visitor broke, or the turn is over.
pub(crate) fn matching(
    scan: &mut Scan,
    reader: &Reader,
    question: &Question,
    visit: &mut dyn FnMut(&[u8], StoredDocument) -> StoreResult<ControlFlow<()>>,
) -> StoreResult<Progress> {
    let mut looked_at = 0;
    scan.run(reader, &mut |id_key, stored| {
        looked_at += 1;
        if question.matches(&stored)? && visit(id_key, stored)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        let turn_over = looked_at >= CANDIDATES_PER_TURN_MAX;
        Ok(if turn_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })
}
