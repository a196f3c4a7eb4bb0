//! Inserts of several documents.

use std::future::IntoFuture;
use std::sync::Arc;

use bson::RawDocumentBuf;
use handfast_store::{DocumentStore, Error as StoreError, Insert, Namespace, Result, WriteError};

use super::{BoxFuture, Parts, Ready, after_changes};

/// An insert of documents, each atomically. It ends at the first error, unless it is not [`ordered`](InsertMany::ordered).
#[must_use = "a request runs when it is awaited"]
pub struct InsertMany {
    parts: Parts,
    documents: Vec<RawDocumentBuf>,
    ordered: bool,
}

/// The reason why not all documents were inserted.
#[derive(Clone, Debug, thiserror::Error)]
pub enum InsertManyError {
    /// The request failed as a whole: [`StoreError::applied`] says whether documents may have been inserted.
    #[error(transparent)]
    Request(#[from] StoreError),
    /// Some documents were refused.
    #[error(
        "{inserted} documents were inserted, and {} refused, the first one at index {}: {}",
        refused.len() + 1, first.index, first.error
    )]
    Documents {
        /// The number of documents that were inserted.
        inserted: u64,
        /// The first document that was refused, by its index from 0.
        first: Box<WriteError>,
        /// The others.
        refused: Vec<WriteError>,
    },
}

impl InsertMany {
    pub(in crate::collection) fn new(
        store: Arc<dyn DocumentStore>,
        namespace: Namespace,
        documents: Result<Vec<RawDocumentBuf>>,
    ) -> Self {
        let mut parts = Parts::new(store, namespace);
        let documents = parts.part(documents).unwrap_or_default();
        InsertMany { parts, documents, ordered: true }
    }

    /// Sets whether the documents after one that was refused are left out, which is the default.
    pub fn ordered(mut self, ordered: bool) -> Self {
        self.ordered = ordered;
        self
    }
}

impl IntoFuture for InsertMany {
    type Output = Result<(), InsertManyError>;
    type IntoFuture = BoxFuture<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let Ready { store, namespace, .. } = self.parts.ready().await?;
            let request = Insert { ordered: self.ordered, ..Insert::new(namespace, self.documents) };
            let outcome = store.insert(request).await?;
            let mut refused = outcome.errors.into_iter();
            match refused.next() {
                None => Ok(()),
                Some(first) => {
                    let (first, refused) = (Box::new(first), refused.collect());
                    Err(InsertManyError::Documents { inserted: outcome.inserted, first, refused })
                }
            }
        })
    }
}

impl From<InsertManyError> for StoreError {
    fn from(error: InsertManyError) -> Self {
        match error {
            InsertManyError::Request(error) => error,
            InsertManyError::Documents { inserted: 0, first, .. } => first.error,
            // The others are there.
            InsertManyError::Documents { first, .. } => after_changes(first.error),
        }
    }
}

impl From<InsertManyError> for handfast_txn::Error {
    fn from(error: InsertManyError) -> Self {
        StoreError::from(error).into()
    }
}
