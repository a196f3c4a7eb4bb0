//! Finding documents: cursors over one snapshot.

use std::ops::ControlFlow;

use async_trait::async_trait;
use bson::RawDocumentBuf;
use handfast_store::{BatchLimit, Cursor, Find, Page, Result as StoreResult};

use super::query::{Question, matching};
use super::scan::{Access, Progress, Reader, Scan};
use crate::committer::Snapshot;
use crate::engine::Direction;
use crate::format::Verify;
use crate::store::EmbeddedStore;

impl EmbeddedStore {
    /// Opens a cursor over the documents that match at a snapshot.
    pub(crate) fn find_at(&self, snapshot: Snapshot, request: &Find) -> StoreResult<Box<dyn Cursor>> {
        let question = Question::compile(&request.filter, &request.variables, &self.inner.sources)?;
        let Some(collection) = self.collection(&snapshot, &request.namespace) else {
            return Ok(Box::new(EmptyCursor));
        };
        let expected = snapshot.catalog().counts(collection.id).documents;
        let access = Access::everything(Direction::Forward);
        let walk = Walk {
            snapshot,
            verify: self.shared().verify,
            scan: Scan::new(collection, access, Some(expected)),
            question,
            skip: request.skip,
            limit: request.limit.unwrap_or(u64::MAX),
            held_back: None,
        };
        Ok(Box::new(FindCursor { walk: Some(walk) }))
    }
}

/// Nothing.
pub(crate) struct EmptyCursor;

#[async_trait]
impl Cursor for EmptyCursor {
    async fn next_page(&mut self, _limit: BatchLimit) -> StoreResult<Page> {
        Ok(Page { documents: Vec::new(), exhausted: true })
    }
}

/// Documents as the scan finds them.
struct FindCursor {
    /// None once it is done, or after an error.
    walk: Option<Walk>,
}

/// Where the cursor is.
struct Walk {
    snapshot: Snapshot,
    verify: Verify,
    scan: Scan,
    question: Question,
    skip: u64,
    limit: u64,
    /// A document that was found and did not fit on the page.
    held_back: Option<RawDocumentBuf>,
}

#[async_trait]
impl Cursor for FindCursor {
    async fn next_page(&mut self, limit: BatchLimit) -> StoreResult<Page> {
        let mut page = Page::default();
        let mut bytes = 0;
        while let Some(walk) = self.walk.take() {
            // Reading blocks; a turn is short enough that a reader who has gone away is noticed.
            let turn = tokio::task::spawn_blocking(move || {
                let mut walk = walk;
                let mut documents = Vec::new();
                let end = walk.turn(limit, bytes, &mut documents)?;
                Ok::<_, handfast_store::Error>((walk, end, documents))
            });
            let (walk, end, documents) = turn.await.map_err(|error| crate::Error::Engine(error.to_string()))??;
            bytes += documents.iter().map(|document| document.as_bytes().len()).sum::<usize>();
            page.documents.extend(documents);
            match end {
                Turn::Done => page.exhausted = true,
                Turn::PageFull => {
                    self.walk = Some(walk);
                    return Ok(page);
                }
                Turn::Over => self.walk = Some(walk),
            }
        }
        page.exhausted = true;
        Ok(page)
    }
}

enum Turn {
    /// There is nothing more.
    Done,
    /// The page holds what it may.
    PageFull,
    /// Neither; go on.
    Over,
}

impl Walk {
    fn turn(&mut self, limit: BatchLimit, bytes: usize, documents: &mut Vec<RawDocumentBuf>) -> StoreResult<Turn> {
        let mut fill = Fill { limit, bytes, full: false };
        if let Some(document) = self.held_back.take() {
            fill.take(document, documents);
        }
        if self.limit == 0 {
            return Ok(Turn::Done);
        }
        let reader = Reader { view: self.snapshot.view()?, verify: self.verify };
        let (skip, left, held_back) = (&mut self.skip, &mut self.limit, &mut self.held_back);
        let progress = matching(&mut self.scan, &reader, &self.question, &mut |_, stored| {
            if *skip > 0 {
                *skip -= 1;
                return Ok(ControlFlow::Continue(()));
            }
            *left -= 1;
            *held_back = fill.take(stored.document()?.to_owned(), documents);
            let stop = fill.full || *left == 0;
            Ok(if stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        let no_more = progress == Progress::Done || self.limit == 0;
        Ok(match (no_more && self.held_back.is_none(), fill.full) {
            (true, _) => Turn::Done,
            (false, true) => Turn::PageFull,
            (false, false) => Turn::Over,
        })
    }
}

struct Fill {
    limit: BatchLimit,
    bytes: usize,
    full: bool,
}

impl Fill {
    /// Puts a document on the page, or gives it back if it does not fit.
    fn take(&mut self, document: RawDocumentBuf, documents: &mut Vec<RawDocumentBuf>) -> Option<RawDocumentBuf> {
        let size = document.as_bytes().len();
        let is_first = self.bytes == 0 && documents.is_empty();
        if !is_first && self.bytes.saturating_add(size) > self.limit.bytes {
            self.full = true;
            return Some(document);
        }
        self.bytes += size;
        documents.push(document);
        self.full = documents.len() >= self.limit.documents;
        None
    }
}
