//! The contract of a store ([`DocumentStore`]), and the second, optional one of a store that can also change several
//! documents at once ([`AtomicStore`]).
//!
//! Atomicity: each inserted, updated, replaced or deleted document, together with its entries in every index. A
//! request that names several documents is a sequence of such steps; after an error its outcome says how many were applied.
//! The outcome's `errors` hold the refusals of single statements and documents (a bad filter, a duplicate key); an operation returns
//! an error of its own if it could not run the request at all.
//!
//! Errors: [`Error::class`](crate::Error::class) says whether to retry,
//! [`Error::applied`](crate::Error::applied) whether the step that failed may have happened.
//!
//! Cancellation: a future that is dropped before it is ready leaves its request either wholly done, not done at all,
//! or, when it names several documents, done for a prefix of them: the same as a lost answer. A computation for it, or for a
//! dropped cursor, ends soon, on whatever thread it runs, so that a caller can implement time limits by dropping.

mod by_reading;
pub(crate) mod operations;
mod shared;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bson::{RawBson, RawBsonRef, RawDocumentBuf};

use crate::validation::Validator;
use crate::view::ResolvedView;
use crate::{
    Aggregate, AtomicBatch, BatchLimit, ChangePage, CollectionCheck, CollectionInfo, CollectionOptions,
    CollectionStats, CommitTimestamp, Count, CreateIndexes, Delete, DeleteOutcome, Distinct, DropIndexes, Explain,
    Find, FindAndModify, FindAndModifyOutcome, IndexCounts, IndexInfo, Insert, InsertOutcome, ModifyCollection,
    Namespace, Page, RenameCollection, Result, Update, UpdateOutcome, Watch, change_stream,
};

pub use by_reading::check_by_reading;

/// A store of documents in collections, which changes one document atomically.
#[async_trait]
pub trait DocumentStore: Send + Sync + 'static {
    /// Returns a short name for messages and metrics: `memory`, `embedded`, `mongodb`.
    fn name(&self) -> &'static str;

    /// Inserts documents in the order given. A document without `_id` gets one, as its first field.
    async fn insert(&self, request: Insert) -> Result<InsertOutcome>;

    /// Opens a cursor over the documents that match, on one snapshot of the store where the backend has snapshots.
    async fn find(&self, request: Find) -> Result<Box<dyn Cursor>>;

    /// Runs update statements in the order given.
    async fn update(&self, request: Update) -> Result<UpdateOutcome>;

    /// Changes or removes one document and returns it as it was or as it became, in one atomic step.
    async fn find_and_modify(&self, request: FindAndModify) -> Result<FindAndModifyOutcome>;

    /// Runs delete statements in the order given.
    async fn delete(&self, request: Delete) -> Result<DeleteOutcome>;

    /// Opens a cursor over the output of an aggregation pipeline.
    async fn aggregate(&self, request: Aggregate) -> Result<Box<dyn Cursor>>;

    /// Counts the documents that match.
    async fn count(&self, request: Count) -> Result<u64>;

    /// Returns the distinct values of a field in ascending order; an array counts as its elements.
    async fn distinct(&self, request: Distinct) -> Result<Vec<RawBson>>;

    /// Explains how a request runs, in MongoDB's documents `queryPlanner` and `executionStats`.
    async fn explain(&self, request: Explain) -> Result<RawDocumentBuf>;

    /// Creates indexes, and the collection if it is not there. An index that exists with the same definition is kept.
    /// Returns how many indexes the collection had before and has now.
    async fn create_indexes(&self, request: CreateIndexes) -> Result<IndexCounts>;

    /// Drops indexes by name or key; returns how many indexes there were.
    async fn drop_indexes(&self, request: DropIndexes) -> Result<u32>;

    /// Returns the indexes of a collection, `_id_` first.
    ///
    /// # Errors
    /// `NamespaceNotFound` if the collection does not exist.
    async fn list_indexes(&self, namespace: &Namespace) -> Result<Vec<IndexInfo>>;

    /// Creates an empty collection, or a view.
    ///
    /// # Errors
    /// `NamespaceExists` if it exists with other options; with the same options it is left as it is. The errors of
    /// [`check_definition`](crate::view::check_definition) for a view.
    async fn create_collection(&self, namespace: &Namespace, options: CollectionOptions) -> Result<()>;

    /// Changes what `collMod` can change: settings of an index, such as its lifetime, the validator, the definition of a view.
    async fn modify_collection(&self, request: ModifyCollection) -> Result<RawDocumentBuf>;

    /// Gives a collection another name, in one step.
    async fn rename_collection(&self, request: RenameCollection) -> Result<()>;

    /// Drops a collection with its indexes, or a view; returns `false` if there was none.
    async fn drop_collection(&self, namespace: &Namespace) -> Result<bool>;

    /// Returns the collections and views of a database, ordered by name.
    async fn list_collections(&self, database: &str) -> Result<Vec<CollectionInfo>>;

    /// Returns the names of the databases that have a collection, in order.
    async fn list_databases(&self) -> Result<Vec<String>>;

    /// Drops a database with its collections; returns `false` if there was none.
    async fn drop_database(&self, database: &str) -> Result<bool>;

    /// Returns the counts and sizes of a collection; zeros if it does not exist.
    async fn collection_stats(&self, namespace: &Namespace) -> Result<CollectionStats>;

    /// Reads a whole collection and compares each index with the documents. A backend that cannot read an index by itself only
    /// counts the keys that it should hold ([`check_by_reading`]).
    ///
    /// # Errors
    /// `NamespaceNotFound` (26) if the collection does not exist.
    ///
    /// # Cancellation
    /// The reading stops when the future is dropped.
    async fn check_collection(&self, namespace: &Namespace) -> Result<CollectionCheck> {
        check_by_reading(self, namespace).await
    }

    /// Opens a stream of the changes that are committed from now on, or after a moment that the request names. A backend without a
    /// log of changes refuses it.
    ///
    /// # Errors
    /// 40573 if there is no log of changes; `ChangeStreamHistoryLost` (286) if the log no longer has the moment of the request;
    /// the errors of resume tokens and of the stages.
    async fn watch(&self, _request: Watch) -> Result<Box<dyn ChangeStream>> {
        Err(change_stream::unsupported())
    }

    /// Returns once everything acknowledged before the call is durable.
    async fn flush(&self) -> Result<()>;
}

/// A cursor over the results of a find or an aggregation. Dropping it frees its resources.
#[async_trait]
pub trait Cursor: Send {
    /// Returns the next documents: at most as many as the limit allows, but at least one if there is one. The page says whether
    /// more may follow; after the last page every further page is empty.
    async fn next_page(&mut self, limit: BatchLimit) -> Result<Page>;

    /// Returns whether the documents follow not from the request alone, but also from what the catalog says of its collection: they are
    /// the output of a view, and may have no `_id` or equal ones, or strings were compared by a default collation.
    fn depends_on_catalog(&self) -> bool {
        false
    }
}

/// A stream of committed changes. Dropping it frees its resources.
#[async_trait]
pub trait ChangeStream: Send {
    /// Returns the next events, at most as many as the limit allows. If there are none, waits for some of them for at most
    /// `wait`, and returns no events if none has come.
    ///
    /// # Errors
    /// `ChangeStreamHistoryLost` (286) if the log no longer has the changes after the last ones; `ChangeStreamFatalError` (280)
    /// if a stage has changed `_id`; the errors of the stages.
    ///
    /// # Cancellation
    /// Events may be lost: a stream whose future was dropped must not be read again, except while the future waited.
    async fn next_events(&mut self, limit: BatchLimit, wait: Duration) -> Result<ChangePage>;
}

/// A store that can read a snapshot of all its documents and commit a batch of writes in one atomic step.
///
/// Engine `Local` of the transaction layer needs this; `Percolator` does not (spec: transactions). Such a store also
/// honours the tickets of requests ([`Ticket`](crate::Ticket)): a statement with a ticket that was used answers its
/// first result and changes nothing.
#[async_trait]
pub trait AtomicStore: DocumentStore {
    /// Opens a snapshot of everything that is committed (and, with `Journaled` durability, durable).
    async fn snapshot(&self) -> Result<Box<dyn Snapshot>>;

    /// Applies all writes or none. The first committer wins: if a document that the batch writes or has read was changed after
    /// [`AtomicBatch::read_at`], nothing is applied. A store that no longer remembers treats the document as changed.
    ///
    /// # Errors
    /// `WriteConflict` (112) as said above, and if a unique key of the batch belongs to a document that was inserted or changed
    /// after `read_at`, which the author of the batch could not see. `DuplicateKey` (11000) for any other violation of a unique
    /// index. `TransactionTooOld` (225) for a ticket that a later one of its session has replaced.
    async fn commit(&self, batch: AtomicBatch) -> Result<CommitTimestamp>;
}

/// A snapshot: the documents of a store as they were at one moment.
#[async_trait]
pub trait Snapshot: Send + Sync {
    /// Returns the timestamp of the last commit in the snapshot.
    fn timestamp(&self) -> CommitTimestamp;

    /// Returns the document with this `_id`.
    async fn get(&self, namespace: &Namespace, id: RawBsonRef<'_>) -> Result<Option<RawDocumentBuf>>;

    /// Opens a cursor over the documents that match at the snapshot.
    async fn find(&self, request: Find) -> Result<Box<dyn Cursor>>;

    /// Returns `true` if the store knows, without reading the document, that no commit since the snapshot has changed it. `false`
    /// means nothing. It saves a transaction a read; the commit checks again.
    fn is_unchanged(&self, _namespace: &Namespace, _id: RawBsonRef<'_>) -> bool {
        false
    }

    /// Returns the validator that a collection has at the snapshot, so that a transaction learns of a document that does not fulfil it
    /// before the commit, which checks again.
    fn validator(&self, _namespace: &Namespace) -> Option<Arc<Validator>> {
        None
    }

    /// Returns the default collation that a collection has at the snapshot.
    fn default_collation(&self, _namespace: &Namespace) -> Option<RawDocumentBuf> {
        None
    }

    /// Returns what a view stands for at the snapshot; `None` if the name is that of a collection, or of nothing.
    ///
    /// # Errors
    /// The errors of [`resolve`](crate::view::resolve).
    fn view(&self, _namespace: &Namespace) -> Result<Option<ResolvedView>> {
        Ok(None)
    }
}
