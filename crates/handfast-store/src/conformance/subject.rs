//! The store under test, with short forms of requests for the cases.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use bson::{RawBson, RawDocumentBuf, rawdoc};
use handfast_mql::Code;

use super::Needs;
use crate::{
    Aggregate, Applied, AtomicStore, BatchLimit, CreateIndexes, Cursor, Delete, DeleteStatement, DocumentStore, Error,
    ErrorClass, Find, IndexSpec, Insert, Namespace, Result, Update, UpdateOutcome, UpdateSpec, UpdateStatement,
};

/// An empty store under test, and its capabilities.
pub struct Subject {
    /// The store under test.
    pub store: Arc<dyn DocumentStore>,
    atomic: Option<Arc<dyn AtomicStore>>,
    snapshot_cursors: bool,
    tickets: bool,
    lacks: Vec<&'static str>,
    _keep: Option<Box<dyn Any + Send + Sync>>,
}

impl Subject {
    /// Creates a subject whose store is atomic one document at a time, and no more.
    pub fn new(store: Arc<dyn DocumentStore>) -> Self {
        Subject { store, atomic: None, snapshot_cursors: false, tickets: false, lacks: Vec::new(), _keep: None }
    }

    /// Creates a subject whose store also commits batches and has cursors that read one snapshot.
    pub fn atomic(store: Arc<dyn AtomicStore>) -> Self {
        let document_store: Arc<dyn DocumentStore> = store.clone();
        Subject {
            store: document_store,
            atomic: Some(store),
            snapshot_cursors: true,
            tickets: true,
            lacks: Vec::new(),
            _keep: None,
        }
    }

    /// Declares that the store honours tickets, although it is no [`AtomicStore`].
    #[must_use]
    pub fn with_tickets(self) -> Self {
        Subject { tickets: true, ..self }
    }

    /// Declares that each cursor reads one snapshot, although the store is no [`AtomicStore`].
    #[must_use]
    pub fn with_snapshot_cursors(self) -> Self {
        Subject { snapshot_cursors: true, ..self }
    }

    /// Keeps a value alive until the case has ended, such as the directory of the store.
    #[must_use]
    pub fn keeping(mut self, keep: impl Any + Send + Sync) -> Self {
        self._keep = Some(Box::new(keep));
        self
    }

    /// Declares features that the backend lacks. It refuses requests that need them with `CommandNotSupported` (115) and a
    /// message that ends with "has no" and one of these names.
    #[must_use]
    pub fn without(mut self, lacks: impl IntoIterator<Item = &'static str>) -> Self {
        self.lacks.extend(lacks);
        self
    }

    pub(super) fn lacks_by_name(&self) -> Vec<&'static str> {
        self.lacks.clone()
    }

    pub(super) fn lacks(&self, needs: Needs) -> Option<&'static str> {
        match needs {
            Needs::Atomic if self.atomic.is_none() => Some("the backend is no AtomicStore"),
            Needs::Tickets if !self.tickets => Some("the backend has no tickets"),
            Needs::SnapshotCursors if !self.snapshot_cursors => Some("the backend has no snapshots"),
            _ => None,
        }
    }

    pub(super) fn atomic_store(&self) -> Result<&Arc<dyn AtomicStore>, Failure> {
        self.atomic.as_ref().ok_or_else(|| Failure::new(line!(), "the backend is no AtomicStore".to_owned()))
    }

    /// Inserts documents into `conformance.c`; fails if one is refused.
    pub(super) async fn fill(&self, documents: impl IntoIterator<Item = RawDocumentBuf>) -> Result<(), Failure> {
        self.fill_in(&c(), documents).await
    }

    pub(super) async fn fill_in(
        &self,
        namespace: &Namespace,
        documents: impl IntoIterator<Item = RawDocumentBuf>,
    ) -> Result<(), Failure> {
        let documents: Vec<_> = documents.into_iter().collect();
        let wanted = documents.len() as u64;
        let outcome = self.store.insert(Insert::new(namespace.clone(), documents)).await?;
        if outcome.inserted == wanted && outcome.errors.is_empty() {
            return Ok(());
        }
        Err(Failure::new(line!(), format!("inserted {} of {wanted}: {:?}", outcome.inserted, outcome.errors)))
    }

    /// Inserts one document; returns the error if it was refused.
    pub(super) async fn insert_one(&self, document: RawDocumentBuf) -> Result<Option<Error>, Failure> {
        let outcome = self.store.insert(Insert::new(c(), vec![document])).await?;
        match (outcome.inserted, outcome.errors.as_slice()) {
            (1, []) => Ok(None),
            (0, [error]) if error.index == 0 => Ok(Some(error.error.clone())),
            _ => Err(Failure::new(line!(), format!("inconsistent outcome {outcome:?}"))),
        }
    }

    pub(super) async fn find(&self, find: Find) -> Result<Vec<RawDocumentBuf>, Failure> {
        drain(self.store.find(find).await?).await
    }

    /// Returns the matching documents of `conformance.c`, ordered by `_id`.
    pub(super) async fn matching(&self, filter: RawDocumentBuf) -> Result<Vec<RawDocumentBuf>, Failure> {
        self.find(Find { sort: rawdoc! { "_id": 1 }, ..Find::new(c(), filter) }).await
    }

    /// Returns all documents of `conformance.c`, ordered by `_id`.
    pub(super) async fn all(&self) -> Result<Vec<RawDocumentBuf>, Failure> {
        self.matching(rawdoc! {}).await
    }

    /// Returns the int32 `_id`s of the matching documents, in order.
    pub(super) async fn ids(&self, filter: RawDocumentBuf) -> Result<Vec<i32>, Failure> {
        ids(&self.matching(filter).await?)
    }

    pub(super) async fn update(&self, statement: UpdateStatement) -> Result<UpdateOutcome, Failure> {
        Ok(self.store.update(Update::new(c(), vec![statement])).await?)
    }

    /// Updates one document; fails if the update is refused.
    pub(super) async fn update_one(
        &self,
        filter: RawDocumentBuf,
        change: RawDocumentBuf,
    ) -> Result<UpdateOutcome, Failure> {
        let outcome = self.update(UpdateStatement::one(filter, UpdateSpec::Document(change))).await?;
        match outcome.errors.as_slice() {
            [] => Ok(outcome),
            [error, ..] => Err(error.error.clone().into()),
        }
    }

    /// Runs an update statement that must be refused, and returns the error: whether the whole request or the
    /// statement was refused makes no difference.
    pub(super) async fn update_refused(&self, statement: UpdateStatement) -> Result<Error, Failure> {
        match self.store.update(Update::new(c(), vec![statement])).await {
            Err(error) => Ok(error),
            Ok(UpdateOutcome { matched: 0 | 1, modified: 0, errors, upserted }) if upserted.is_empty() => {
                match errors.as_slice() {
                    [error] if error.index == 0 => Ok(error.error.clone()),
                    _ => Err(Failure::new(line!(), format!("one error expected, found {errors:?}"))),
                }
            }
            Ok(outcome) => Err(Failure::new(line!(), format!("an error expected, found {outcome:?}"))),
        }
    }

    pub(super) async fn delete(&self, filter: RawDocumentBuf, multi: bool) -> Result<u64, Failure> {
        let statement = DeleteStatement { filter, multi, hint: None };
        let outcome = self.store.delete(Delete::new(c(), vec![statement])).await?;
        match outcome.errors.as_slice() {
            [] => Ok(outcome.deleted),
            [error, ..] => Err(error.error.clone().into()),
        }
    }

    pub(super) async fn index(&self, spec: IndexSpec) -> Result<(), Failure> {
        self.store.create_indexes(CreateIndexes { namespace: c(), indexes: vec![spec] }).await?;
        Ok(())
    }

    pub(super) async fn index_refused(&self, spec: IndexSpec, code: Code) -> Result<(), Failure> {
        let shown = format!("{spec:?}");
        let created = self.store.create_indexes(CreateIndexes { namespace: c(), indexes: vec![spec] }).await;
        refused(created, code).map(|_| ()).map_err(|failure| failure.about(&shown))
    }

    pub(super) async fn aggregate(&self, pipeline: Vec<RawDocumentBuf>) -> Result<Vec<RawDocumentBuf>, Failure> {
        drain(self.store.aggregate(Aggregate::new(c(), pipeline)).await?).await
    }
}

/// The reason why a case failed.
#[derive(Debug)]
pub struct Failure {
    line: u32,
    text: String,
}

impl Failure {
    pub(super) fn new(line: u32, text: String) -> Self {
        Failure { line, text }
    }

    /// Returns the feature of `lacks` because of which the case was refused, found in the text of the failure.
    pub(super) fn refused_for(&self, lacks: &[&'static str]) -> Option<&'static str> {
        let refused = self.text.contains("CommandNotSupported(115)");
        lacks.iter().copied().find(|lack| refused && self.text.contains(&format!("has no {lack}")))
    }

    pub(super) fn about(mut self, what: &str) -> Self {
        self.text = format!("{} ({what})", self.text);
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.text)
    }
}

impl From<Error> for Failure {
    #[track_caller]
    fn from(error: Error) -> Self {
        let line = std::panic::Location::caller().line();
        Failure { line, text: format!("unexpected error {:?}: {error}", error.code()) }
    }
}

impl From<bson::error::Error> for Failure {
    #[track_caller]
    fn from(error: bson::error::Error) -> Self {
        Failure { line: std::panic::Location::caller().line(), text: format!("unexpected document: {error}") }
    }
}

impl From<tokio::task::JoinError> for Failure {
    #[track_caller]
    fn from(error: tokio::task::JoinError) -> Self {
        Failure { line: std::panic::Location::caller().line(), text: format!("a task died: {error}") }
    }
}

/// Returns the collection that most cases use.
pub(super) fn c() -> Namespace {
    named("c")
}

/// Returns a collection of the database `conformance`.
pub(super) fn named(collection: &str) -> Namespace {
    Namespace::valid("conformance", collection)
}

/// Returns the error of a call that must be refused with this code and certainly not applied.
#[track_caller]
pub(super) fn refused<T>(result: Result<T>, code: Code) -> Result<Error, Failure> {
    let line = std::panic::Location::caller().line();
    match result {
        Ok(_) => Err(Failure::new(line, format!("it was accepted; {code:?} expected"))),
        Err(error) => refusal(error, code).map_err(|failure| Failure { line, ..failure }),
    }
}

/// Checks that an error is a refusal with this code that was certainly not applied.
#[track_caller]
pub(super) fn refusal(error: Error, code: Code) -> Result<Error, Failure> {
    let line = std::panic::Location::caller().line();
    if error.code() != code {
        return Err(Failure::new(line, format!("{:?} expected, found {:?}: {error}", code, error.code())));
    }
    if error.class() != ErrorClass::Command || error.applied() != Applied::No {
        return Err(Failure::new(line, format!("a refusal is a command error, not applied; found {error:?}")));
    }
    Ok(error)
}

/// Reads a cursor to its end.
pub(super) async fn drain(mut cursor: Box<dyn Cursor>) -> Result<Vec<RawDocumentBuf>, Failure> {
    let mut documents = Vec::new();
    loop {
        let page = cursor.next_page(BatchLimit::REPLY).await?;
        if page.documents.is_empty() && !page.exhausted {
            return Err(Failure::new(line!(), "an empty page that is not the last".to_owned()));
        }
        documents.extend(page.documents);
        if page.exhausted {
            return Ok(documents);
        }
    }
}

/// Returns the `_id`s, all of which are int32.
pub(super) fn ids(documents: &[RawDocumentBuf]) -> Result<Vec<i32>, Failure> {
    documents.iter().map(|document| Ok(document.get_i32("_id")?)).collect()
}

/// Returns the values of an int32 field.
pub(super) fn ints(documents: &[RawDocumentBuf], field: &str) -> Result<Vec<i32>, Failure> {
    documents.iter().map(|document| Ok(document.get_i32(field)?)).collect()
}

/// Returns documents `{_id: 0, n: 0}`, `{_id: 1, n: 1}`, ..
pub(super) fn numbered(count: i32) -> impl Iterator<Item = RawDocumentBuf> {
    (0..count).map(|n| rawdoc! { "_id": n, "n": n })
}

/// Returns a filter for one `_id`.
pub(super) fn id(id: impl Into<RawBson>) -> RawDocumentBuf {
    rawdoc! { "_id": id.into() }
}
