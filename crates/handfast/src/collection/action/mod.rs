//! Requests of a collection that are put together, and run when they are awaited.

mod insert_many;
mod options;
mod read;
mod write;

pub use insert_many::{InsertMany, InsertManyError};
pub use read::{Aggregate, Count, Distinct, Find, FindOne};
pub use write::{Delete, FindOneAndDelete, FindOneAndUpdate, Update};

use std::pin::Pin;
use std::sync::Arc;

use bson::RawDocumentBuf;
use handfast_mql::collation::with_variable;
use handfast_store::{DocumentStore, Error as StoreError, Namespace, Result, Sources};

use self::options::Options;
use super::document::IntoDocument;

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What all requests are put together of.
struct Parts {
    store: Arc<dyn DocumentStore>,
    namespace: Namespace,
    filter: RawDocumentBuf,
    options: Options,
    /// The error of the first document that cannot be written.
    invalid: Option<StoreError>,
}

/// The parts of a request whose documents all can be written.
struct Ready {
    store: Arc<dyn DocumentStore>,
    namespace: Namespace,
    filter: RawDocumentBuf,
    options: Options,
    /// The values of `let`, and the collation.
    variables: RawDocumentBuf,
}

/// Returns the error of a request that had changed documents before it failed. A conflict stays one, so that its transaction is repeated.
fn after_changes(error: StoreError) -> StoreError {
    match handfast_txn::Error::of_store(error) {
        handfast_txn::Error::Conflict(error) => error,
        other => StoreError::from(other).in_doubt(),
    }
}

impl Parts {
    fn new(store: Arc<dyn DocumentStore>, namespace: Namespace) -> Self {
        Parts { store, namespace, filter: RawDocumentBuf::new(), options: Options::default(), invalid: None }
    }

    fn with_filter(mut self, filter: impl IntoDocument) -> Self {
        self.filter = self.document(filter);
        self
    }

    fn document(&mut self, document: impl IntoDocument) -> RawDocumentBuf {
        self.part(document.into_document()).unwrap_or_default()
    }

    /// Returns a part that can be written, or keeps its error for when the request runs.
    fn part<P>(&mut self, part: Result<P>) -> Option<P> {
        match part {
            Ok(part) => Some(part),
            Err(error) => {
                self.invalid.get_or_insert(error);
                None
            }
        }
    }

    /// Fails for a part that cannot be written, and evaluates `let`.
    async fn ready(self) -> Result<Ready> {
        let Parts { store, namespace, filter, options, invalid } = self;
        if let Some(error) = invalid {
            return Err(error);
        }
        let values = match &options.let_vars {
            None => RawDocumentBuf::new(),
            Some(expressions) => Sources::system()?.evaluate(expressions.clone()).await?,
        };
        let variables = with_variable(values, options.collation.as_deref());
        Ok(Ready { store, namespace, filter, options, variables })
    }
}
