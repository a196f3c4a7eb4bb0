//! The end of a cursor over what a transaction sees: skip and limit, what is shown of a document, and pages.

use std::sync::Arc;

use async_trait::async_trait;
use bson::RawDocumentBuf;
use handfast_mql::Code;
use handfast_mql::context::StopOnDrop;
use handfast_mql::expression::may_take_long;
use handfast_store::page::Filling;
use handfast_store::selection::{Candidate, Selection};
use handfast_store::{BatchLimit, Cursor, Error as StoreError, Find, Page, Result as StoreResult, blocking_if};

/// Where documents come from that match.
#[async_trait]
pub(crate) trait MatchSource: Send {
    /// The next one, in the order that was asked for.
    async fn next_match(&mut self) -> StoreResult<Option<Candidate>>;
}

/// A cursor over documents that match.
pub(crate) struct LimitCursor<M> {
    matches: M,
    selection: Arc<Selection>,
    /// What is asked for may take any time.
    loops: bool,
    to_skip: u64,
    left: u64,
    /// Ready, but too large for the page before.
    next: Option<RawDocumentBuf>,
    /// A page is being read. If it is still so when the next one is asked for, whoever asked had gone away, and what was read
    /// for him went with him.
    is_under_way: bool,
    _stop: StopOnDrop,
}

impl<M: MatchSource> LimitCursor<M> {
    /// Over what a find has found. When the cursor is dropped, what is computed for it ends.
    pub(crate) fn new(matches: M, selection: Arc<Selection>, find: &Find, stop: StopOnDrop) -> Self {
        LimitCursor {
            matches,
            loops: may_take_long(&find.filter) || may_take_long(&find.projection),
            to_skip: find.skip,
            left: find.limit.unwrap_or(u64::MAX),
            next: None,
            is_under_way: false,
            selection,
            _stop: stop,
        }
    }

    /// The next document, which stays the next one.
    ///
    /// # Errors
    /// Those of reading it.
    pub(crate) async fn peek(&mut self) -> StoreResult<Option<&RawDocumentBuf>> {
        while self.next.is_none() && self.left > 0 {
            let Some(found) = self.matches.next_match().await? else {
                self.left = 0;
                break;
            };
            if self.to_skip > 0 {
                self.to_skip -= 1;
                continue;
            }
            self.left -= 1;
            let selection = Arc::clone(&self.selection);
            self.next = Some(blocking_if(self.loops, move || selection.shown(found)).await?);
        }
        Ok(self.next.as_ref())
    }

    async fn page(&mut self, limit: BatchLimit) -> StoreResult<Page> {
        let mut filling = Filling::new(limit);
        while let Some(document) = self.peek().await? {
            if !filling.has_room_for(document) {
                return Ok(filling.full());
            }
            filling.take(self.next.take());
        }
        Ok(filling.last())
    }
}

#[async_trait]
impl<M: MatchSource> Cursor for LimitCursor<M> {
    /// # Errors
    /// Those of reading; `CursorKilled` (237) after a page that was broken off.
    async fn next_page(&mut self, limit: BatchLimit) -> StoreResult<Page> {
        if self.is_under_way {
            let text = "the cursor lost documents, as the reader went away while a page was read: query again";
            return Err(StoreError::command(Code::CursorKilled, text));
        }
        self.is_under_way = true;
        let page = self.page(limit).await;
        self.is_under_way = false;
        page
    }
}
