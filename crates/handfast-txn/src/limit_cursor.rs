//! A cursor that applies skip, limit and projection to matching documents, and returns them in pages.

use std::sync::Arc;

use async_trait::async_trait;
use bson::RawDocumentBuf;
use handfast_mql::Code;
use handfast_mql::context::StopOnDrop;
use handfast_mql::expression::may_take_long;
use handfast_store::page::PageBuilder;
use handfast_store::selection::{Candidate, Selection};
use handfast_store::{BatchLimit, Cursor, Error as StoreError, Find, Page, Result as StoreResult, blocking_if};

/// A source of matching documents.
#[async_trait]
pub(crate) trait MatchSource: Send {
    /// Returns the next document in the order of the request.
    async fn next_match(&mut self) -> StoreResult<Option<Candidate>>;
}

/// A cursor over matching documents with skip, limit and projection.
pub(crate) struct LimitCursor<M> {
    matches: M,
    selection: Arc<Selection>,
    /// The filter or the projection may take long.
    loops: bool,
    to_skip: u64,
    left: u64,
    /// A document that did not fit into the page before.
    next: Option<RawDocumentBuf>,
    /// A page is being read. If still set at the next call, the future of the call before was dropped together with the documents it had read.
    is_under_way: bool,
    _stop: StopOnDrop,
}

impl<M: MatchSource> LimitCursor<M> {
    /// Returns a cursor over the matches of a find. Dropping the cursor stops its computation.
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

    /// Returns the next document without taking it.
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
        let mut page = PageBuilder::new(limit);
        while let Some(document) = self.peek().await? {
            if !page.has_room_for(document) {
                return Ok(page.full());
            }
            page.take(self.next.take());
        }
        Ok(page.last())
    }
}

#[async_trait]
impl<M: MatchSource> Cursor for LimitCursor<M> {
    /// Returns the next page.
    ///
    /// # Errors
    /// Returns `CursorKilled` (237) after a page whose future was dropped, and the errors of the source.
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
