//! Cuts documents into pages: [`Filling`] decides what belongs to one, [`Paged`] is a cursor over any iterator.

use async_trait::async_trait;
use bson::{RawDocument, RawDocumentBuf};

use crate::{BatchLimit, Cursor, Page, Result};

/// A page that is being filled.
pub struct Filling {
    page: Page,
    bytes: usize,
    limit: BatchLimit,
}

impl Filling {
    /// An empty one.
    pub fn new(limit: BatchLimit) -> Self {
        Filling { page: Page::default(), bytes: 0, limit }
    }

    /// Whether the next document belongs to this page. Every page has a document, whatever the limit, if there is one.
    pub fn has_room_for(&self, document: &RawDocument) -> bool {
        let bytes = self.bytes.saturating_add(document.as_bytes().len());
        let fits = self.page.documents.len() < self.limit.documents && bytes <= self.limit.bytes;
        fits || self.page.documents.is_empty()
    }

    /// Takes the next document, if there is one.
    pub fn take(&mut self, document: Option<RawDocumentBuf>) {
        self.bytes = self.bytes.saturating_add(document.as_ref().map_or(0, |document| document.as_bytes().len()));
        self.page.documents.extend(document);
    }

    /// The page, after which there are others.
    pub fn full(self) -> Page {
        self.page
    }

    /// The page, after which there is none.
    pub fn last(self) -> Page {
        Page { exhausted: true, ..self.page }
    }
}

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
        let mut filling = Filling::new(limit);
        while let Some(document) = self.peek()? {
            if !filling.has_room_for(document) {
                return Ok(filling.full());
            }
            filling.take(self.next.take());
        }
        Ok(filling.last())
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
