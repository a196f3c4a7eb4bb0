//! The documents of a cursor, read a page at a time.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use bson::RawDocumentBuf;
use futures_core::Stream;
use handfast_mql::Code;
use handfast_store::{BatchLimit, Cursor, Error as StoreError, Page, Result};
use serde::de::DeserializeOwned;

/// The number of documents that a cursor reads ahead.
const READ_AHEAD: BatchLimit = BatchLimit { documents: 1000, bytes: 4 * 1024 * 1024 };

/// A cursor over documents that are values of type `T`. It is a [`Stream`] as well.
///
/// A document that is no `T` gives the error `TypeMismatch` (14), and the next ones follow it. After an error of the store the cursor
/// has ended.
pub struct Documents<T> {
    state: State,
    ready: VecDeque<RawDocumentBuf>,
    documents: PhantomData<fn() -> T>,
}

/// A cursor, and the page that it has read.
type Read = (Box<dyn Cursor>, Result<Page>);

/// What the cursor does. A page that is being read stays here, so that nothing is lost if a reader is dropped meanwhile.
enum State {
    Idle(Box<dyn Cursor>),
    Reading(Pin<Box<dyn Future<Output = Read> + Send>>),
    Ended,
}

impl<T: DeserializeOwned> Documents<T> {
    pub(super) fn new(cursor: Box<dyn Cursor>) -> Self {
        Documents { state: State::Idle(cursor), ready: VecDeque::new(), documents: PhantomData }
    }

    /// Returns the next document, or `None` at the end.
    ///
    /// # Errors
    /// `TypeMismatch` (14) for a document that is no `T`, and errors of the store.
    pub async fn next(&mut self) -> Result<Option<T>> {
        poll_fn(|context| self.poll_document(context)).await.transpose()
    }

    /// Returns all remaining documents, for results that are known to be small.
    ///
    /// # Errors
    /// Returns the errors of [`Documents::next`].
    pub async fn all(mut self) -> Result<Vec<T>> {
        let mut all = Vec::new();
        while let Some(document) = self.next().await? {
            all.push(document);
        }
        Ok(all)
    }

    fn poll_document(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<T>>> {
        loop {
            if let Some(document) = self.ready.pop_front() {
                return Poll::Ready(Some(read(&document)));
            }
            match std::mem::replace(&mut self.state, State::Ended) {
                State::Ended => return Poll::Ready(None),
                State::Idle(mut cursor) => {
                    let page = async move {
                        let page = cursor.next_page(READ_AHEAD).await;
                        (cursor, page)
                    };
                    self.state = State::Reading(Box::pin(page));
                }
                State::Reading(mut page) => {
                    let Poll::Ready((cursor, page)) = page.as_mut().poll(context) else {
                        self.state = State::Reading(page);
                        return Poll::Pending;
                    };
                    let page = match page {
                        Ok(page) => page,
                        Err(error) => return Poll::Ready(Some(Err(error))),
                    };
                    if !page.exhausted {
                        self.state = State::Idle(cursor);
                    }
                    self.ready = page.documents.into();
                }
            }
        }
    }
}

impl<T: DeserializeOwned> Stream for Documents<T> {
    type Item = Result<T>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<T>>> {
        self.poll_document(context)
    }
}

/// Reads a stored document as a value.
pub(super) fn read<T: DeserializeOwned>(document: &RawDocumentBuf) -> Result<T> {
    bson::deserialize_from_slice(document.as_bytes()).map_err(|error| {
        let kind = std::any::type_name::<T>();
        StoreError::command(Code::TypeMismatch, format!("a stored document cannot be read as {kind}: {error}"))
    })
}
