//! Cuts documents into pages: [`PageBuilder`] decides what belongs to one, [`IteratorCursor`] is a cursor over any iterator.

use async_trait::async_trait;
use bson::{RawDocument, RawDocumentBuf};

use crate::{BatchLimit, Cursor, Page, Result};

/// A builder of one page.
pub struct PageBuilder {
    page: Page,
    bytes: usize,
    limit: BatchLimit,
}

impl PageBuilder {
    /// Creates an empty page.
    pub fn new(limit: BatchLimit) -> Self {
        PageBuilder { page: Page::default(), bytes: 0, limit }
    }

    /// Returns whether the next document fits. The first document of a page fits whatever the limit.
    pub fn has_room_for(&self, document: &RawDocument) -> bool {
        let bytes = self.bytes.saturating_add(document.as_bytes().len());
        let fits = self.page.documents.len() < self.limit.documents && bytes <= self.limit.bytes;
        fits || self.page.documents.is_empty()
    }

    /// Adds the next document, if there is one.
    pub fn take(&mut self, document: Option<RawDocumentBuf>) {
        self.bytes = self.bytes.saturating_add(document.as_ref().map_or(0, |document| document.as_bytes().len()));
        self.page.documents.extend(document);
    }

    /// Returns a page that others follow.
    pub fn full(self) -> Page {
        self.page
    }

    /// Returns the last page.
    pub fn last(self) -> Page {
        Page { exhausted: true, ..self.page }
    }
}

/// A cursor over an iterator, which is advanced no further than a page needs. An error ends the cursor.
pub struct IteratorCursor<I> {
    /// `None` once the iterator has ended.
    documents: Option<I>,
    /// A document that did not fit into the previous page.
    next: Option<RawDocumentBuf>,
}

impl<I: Iterator<Item = Result<RawDocumentBuf>>> IteratorCursor<I> {
    /// Creates a cursor over an iterator.
    pub fn new(documents: I) -> Self {
        IteratorCursor { documents: Some(documents), next: None }
    }

    /// Returns the next page without awaiting anything, or the error of the iterator.
    pub fn page(&mut self, limit: BatchLimit) -> Result<Page> {
        let mut page = PageBuilder::new(limit);
        while let Some(document) = self.peek()? {
            if !page.has_room_for(document) {
                return Ok(page.full());
            }
            page.take(self.next.take());
        }
        Ok(page.last())
    }

    /// Returns the next document without consuming it.
    fn peek(&mut self) -> Result<Option<&RawDocumentBuf>> {
        if self.next.is_none() {
            match self.documents.as_mut().and_then(Iterator::next) {
                Some(Ok(document)) => self.next = Some(document),
                Some(Err(error)) => {
                    self.documents = None;
                    return Err(error);
                }
                None => self.documents = None,
            }
        }
        Ok(self.next.as_ref())
    }
}

#[async_trait]
impl<I: Iterator<Item = Result<RawDocumentBuf>> + Send> Cursor for IteratorCursor<I> {
    async fn next_page(&mut self, limit: BatchLimit) -> Result<Page> {
        self.page(limit)
    }
}

#[cfg(test)]
mod tests;
