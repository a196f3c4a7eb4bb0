//! A cursor over any iterator of documents: cuts it into pages.

use async_trait::async_trait;
use bson::RawDocumentBuf;

use crate::{BatchLimit, Cursor, Page, Result};

/// A cursor over documents that an iterator gives, one at a time and no sooner than they are asked for.
///
/// After an error the cursor is at its end.
pub struct Paged<I> {
    /// None at the end.
    documents: Option<I>,
    /// Taken from the iterator, but too large for the page before.
    next: Option<RawDocumentBuf>,
}

impl<I: Iterator<Item = Result<RawDocumentBuf>>> Paged<I> {
    /// Over all that the iterator gives.
    pub fn new(documents: I) -> Self {
        Paged { documents: Some(documents), next: None }
    }

    /// The next page, without awaiting anything.
    ///
    /// # Errors
    /// Those of the iterator.
    pub fn page(&mut self, limit: BatchLimit) -> Result<Page> {
        let mut page = Page::default();
        let mut bytes = 0_usize;
        loop {
            let Some(document) = self.peek()? else {
                page.exhausted = true;
                return Ok(page);
            };
            bytes = bytes.saturating_add(document.as_bytes().len());
            let full = page.documents.len() >= limit.documents || bytes > limit.bytes;
            // Every page has a document, whatever the limit, if there is one.
            if full && !page.documents.is_empty() {
                return Ok(page);
            }
            page.documents.extend(self.next.take());
        }
    }

    /// The next document, which stays the next one.
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
impl<I: Iterator<Item = Result<RawDocumentBuf>> + Send> Cursor for Paged<I> {
    async fn next_page(&mut self, limit: BatchLimit) -> Result<Page> {
        self.page(limit)
    }
}

#[cfg(test)]
mod tests;
