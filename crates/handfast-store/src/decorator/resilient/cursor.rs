//! A cursor that is opened again if it breaks before it has shown anything.

use std::sync::Arc;

use async_trait::async_trait;

use super::{is_repeated_by_caller, is_transient};
use crate::{Aggregate, BatchLimit, Cursor, DocumentStore, Find, Page, Result};

/// What a cursor was opened for.
pub(super) enum Opening {
    Find(Find),
    Aggregate(Aggregate),
}

impl Opening {
    pub(super) async fn open<S: DocumentStore + ?Sized>(&self, store: &S) -> Result<Box<dyn Cursor>> {
        match self {
            Opening::Find(request) => store.find(request.clone()).await,
            Opening::Aggregate(request) => store.aggregate(request.clone()).await,
        }
    }
}

/// See the module's documentation.
pub(super) struct ResilientCursor<S: ?Sized> {
    pub(super) store: Arc<S>,
    pub(super) opening: Opening,
    pub(super) cursor: Box<dyn Cursor>,
    /// It has shown something, or was opened again.
    pub(super) settled: bool,
}

#[async_trait]
impl<S: DocumentStore + ?Sized> Cursor for ResilientCursor<S> {
    async fn next_page(&mut self, limit: BatchLimit) -> Result<Page> {
        let first = self.cursor.next_page(limit).await;
        let again = first.as_ref().is_err_and(is_transient) && !self.settled && !is_repeated_by_caller();
        self.settled = true;
        if !again {
            return first;
        }
        tracing::debug!("a cursor is opened again that broke before it showed anything");
        self.cursor = self.opening.open(&*self.store).await?;
        self.cursor.next_page(limit).await
    }
}
