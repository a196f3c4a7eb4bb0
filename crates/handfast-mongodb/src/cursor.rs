//! A cursor of the server as pages of the contract.
//!
//! Documents of the server pass the depth check before any recursive function reads them.

use std::collections::VecDeque;
use std::pin::Pin;
use std::time::Duration;

use async_trait::async_trait;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use futures_core::Stream;
use handfast_mql::depth::{self, Limits};
use handfast_store::page::PageBuilder;
use handfast_store::{BatchLimit, Cursor, Error, Page, Result};
use mongodb::raw_batch_cursor::{RawBatch, RawBatchCursor};

use crate::error::{Effect, incomplete, no_answer, of_driver};

/// The limits of a document in an answer, which may be larger than a stored one, and not deeper.
const LIMITS: Limits = Limits { nesting_max: depth::NESTING_MAX, bytes_max: depth::ANSWER_BYTES_MAX };

/// An open cursor of the server with the documents that have arrived.
pub(crate) struct MongoCursor {
    /// `None` after the last batch.
    source: Option<RawBatchCursor>,
    ready: VecDeque<RawDocumentBuf>,
    /// An error that follows the documents already returned.
    failed: Option<Error>,
    effect: Effect,
    reply_timeout: Option<Duration>,
}

impl MongoCursor {
    pub(crate) fn new(source: RawBatchCursor, effect: Effect, reply_timeout: Option<Duration>) -> Self {
        MongoCursor { source: Some(source), ready: VecDeque::new(), failed: None, effect, reply_timeout }
    }

    /// Waits for the next batch of the server, if there is one.
    pub(crate) async fn fetch(&mut self) -> Result<()> {
        let Some(source) = &mut self.source else { return Ok(()) };
        let next = std::future::poll_fn(|context| Pin::new(&mut *source).poll_next(context));
        let batch = match self.reply_timeout {
            None => next.await,
            Some(limit) => match tokio::time::timeout(limit, next).await {
                Ok(batch) => batch,
                Err(_) => {
                    self.source = None;
                    return Err(no_answer(limit, self.effect));
                }
            },
        };
        let read = match batch {
            None => {
                self.source = None;
                return Ok(());
            }
            Some(Ok(batch)) => self.take(&batch),
            Some(Err(error)) => Err(of_driver(error, self.effect)),
        };
        if read.is_err() {
            self.source = None;
        }
        read
    }

    fn take(&mut self, batch: &RawBatch) -> Result<()> {
        let documents = batch.doc_slices().map_err(|error| of_driver(error, self.effect))?;
        for document in documents {
            let Ok(RawBsonRef::Document(document)) = document else {
                return Err(incomplete("a batch holds something that is no document", self.effect));
            };
            depth::check(document.as_bytes(), LIMITS)?;
            self.ready.push_back(document.to_owned());
        }
        if is_last(batch.as_raw_document()) {
            self.source = None;
        }
        Ok(())
    }

    /// Returns all remaining documents.
    pub(crate) async fn drain(mut self) -> Result<VecDeque<RawDocumentBuf>> {
        while self.source.is_some() {
            self.fetch().await?;
        }
        Ok(self.ready)
    }
}

/// Returns whether the server has closed the cursor.
fn is_last(reply: &RawDocument) -> bool {
    reply.get_document("cursor").is_ok_and(|cursor| crate::reply::number(cursor, "id") == Some(0))
}

#[async_trait]
impl Cursor for MongoCursor {
    async fn next_page(&mut self, limit: BatchLimit) -> Result<Page> {
        let mut page = PageBuilder::new(limit);
        let mut is_empty = true;
        loop {
            while let Some(document) = self.ready.front() {
                if !page.has_room_for(document) {
                    return Ok(page.full());
                }
                page.take(self.ready.pop_front());
                is_empty = false;
            }
            match self.failed.take() {
                Some(error) if is_empty => return Err(error),
                Some(error) => {
                    self.failed = Some(error);
                    return Ok(page.full());
                }
                None if self.source.is_none() => return Ok(page.last()),
                None => self.failed = self.fetch().await.err(),
            }
        }
    }
}
