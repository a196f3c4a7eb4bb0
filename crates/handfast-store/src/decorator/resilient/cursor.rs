//! A cursor that is opened again if it fails before its first page.

use std::sync::Arc;

use async_trait::async_trait;

use super::{is_repeated_by_caller, is_transient};
use crate::{Aggregate, BatchLimit, Cursor, DocumentStore, Find, Page, Result};

/// The request that opened a cursor.
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

/// A cursor that is opened again after an error. See the module's documentation.
pub(super) struct ResilientCursor<S: ?Sized> {
    pub(super) store: Arc<S>,
    pub(super) opening: Opening,
    pub(super) cursor: Box<dyn Cursor>,
    /// The cursor has returned a page, or was opened again.
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

    fn depends_on_catalog(&self) -> bool {
        self.cursor.depends_on_catalog()
    }
}
