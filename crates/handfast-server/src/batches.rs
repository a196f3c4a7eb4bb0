//! Divides the results of a cursor into the batches of replies.
//!
//! A batch ends after the number of documents that the client asked for, or before the document with which the reply
//! would exceed 16 MiB; that document is kept for the next batch. Memory for a large batch is reserved before its
//! documents are fetched. The first page is small and needs no reservation; further pages wait for one.

use std::collections::VecDeque;

use async_trait::async_trait;
use bson::{RawDocument, RawDocumentBuf};
use handfast_mql::Code;
use handfast_mql::depth::ANSWER_BYTES_MAX;
use handfast_store::{BatchLimit, Cursor, Page};
use handfast_wire::limits::DOCUMENT_BYTES_MAX;

use crate::error::{CommandError, CommandResult};
use crate::memory_budget::{FREE_BYTES, MemoryBudget, MemoryReservation};
use crate::writer::{Writer, decimal};

/// Documents in the first batch if the client names no number; MongoDB's default.
pub(crate) const FIRST_BATCH: usize = 101;
/// The largest size of an array element without its document: a type, a number, a zero byte.
const ELEMENT_BYTES_MAX: usize = 12;
/// The largest size of a reply without its documents: a namespace, an id, field names.
pub(crate) const FRAME_BYTES_MAX: usize = 1024;
/// The usual size of the fields behind the documents of a reply.
const CLOSING_BYTES: usize = 128;
/// The bytes that are fetched from the store without a reservation.
pub(crate) const FIRST_PAGE_BYTES: usize = FREE_BYTES / 2;
/// Documents that are fetched from the store at once, at most.
const PAGE_DOCUMENTS_MAX: usize = 10_000;

/// A cursor, and the documents that were fetched from it and not yet written.
pub(crate) struct Batches {
    cursor: Box<dyn Cursor>,
    stash: VecDeque<RawDocumentBuf>,
    exhausted: bool,
}

impl Batches {
    pub(crate) fn new(cursor: Box<dyn Cursor>) -> Self {
        Batches { cursor, stash: VecDeque::new(), exhausted: false }
    }

    /// Returns whether all documents were written.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.exhausted && self.stash.is_empty()
    }

    /// Writes the next documents as the elements of the array that is open in `writer`. The reservation is to be kept
    /// until the reply is sent.
    ///
    /// # Errors
    /// Returns the cursor's errors; `BSONObjectTooLarge` (10334) if a pipeline has made a document that is too large for a reply.
    pub(crate) async fn fill(
        &mut self,
        writer: &mut Writer,
        documents_max: usize,
        budget: &MemoryBudget,
    ) -> CommandResult<Option<MemoryReservation>> {
        let bytes_max = DOCUMENT_BYTES_MAX - FRAME_BYTES_MAX;
        let mut reserved = None;
        let mut count = 0;
        let mut digits = [0; 20];
        while count < documents_max {
            while let Some(document) = self.stash.front() {
                check_size(document)?;
                let fits = writer.len() + document.as_bytes().len() + ELEMENT_BYTES_MAX <= bytes_max;
                if count >= documents_max || (count > 0 && !fits) {
                    return Ok(reserved);
                }
                writer.put(decimal(count, &mut digits), document);
                self.stash.pop_front();
                count += 1;
            }
            let left = bytes_max.saturating_sub(writer.len());
            if self.exhausted || count >= documents_max || left == 0 {
                break;
            }
            if reserved.is_none() && writer.len() > FIRST_PAGE_BYTES {
                reserved = Some(budget.reserve(DOCUMENT_BYTES_MAX).await);
            }
            let bytes = if reserved.is_some() { left } else { FIRST_PAGE_BYTES.min(left) };
            let limit = BatchLimit { documents: (documents_max - count).min(PAGE_DOCUMENTS_MAX), bytes };
            let page = self.cursor.next_page(limit).await?;
            // An empty page ends the cursor, even if its flag says that more may follow.
            self.exhausted = page.exhausted || page.documents.is_empty();
            let bytes: usize = page.documents.iter().map(|next| next.as_bytes().len() + ELEMENT_BYTES_MAX).sum();
            writer.reserve(bytes.min(left) + CLOSING_BYTES);
            // It is empty: a page is fetched when all of the one before is written.
            self.stash = page.documents.into();
        }
        Ok(reserved)
    }
}

pub(crate) fn check_size(document: &RawDocument) -> CommandResult<()> {
    let size = document.as_bytes().len();
    if size <= ANSWER_BYTES_MAX {
        return Ok(());
    }
    let text = format!(
        "a document of the result has {size} bytes, and the limit is {ANSWER_BYTES_MAX} bytes: select fewer fields"
    );
    Err(CommandError::new(Code::BSONObjectTooLarge, text))
}

/// A cursor over documents in memory.
pub(crate) struct ListCursor {
    documents: std::vec::IntoIter<RawDocumentBuf>,
}

impl ListCursor {
    pub(crate) fn new(documents: Vec<RawDocumentBuf>) -> Self {
        ListCursor { documents: documents.into_iter() }
    }
}

#[async_trait]
impl Cursor for ListCursor {
    async fn next_page(&mut self, limit: BatchLimit) -> handfast_store::Result<Page> {
        let mut documents = Vec::new();
        let mut bytes = 0;
        while documents.len() < limit.documents.max(1) {
            let Some(next) = self.documents.as_slice().first() else { break };
            let size = next.as_bytes().len();
            if bytes > 0 && bytes + size > limit.bytes {
                break;
            }
            bytes += size;
            documents.extend(self.documents.next());
        }
        Ok(Page { documents, exhausted: self.documents.as_slice().is_empty() })
    }
}

#[cfg(test)]
mod tests;
