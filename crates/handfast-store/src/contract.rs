//! The contract of a store ([`DocumentStore`]), and the second, optional one of a store that can also change several
//! documents at once ([`AtomicStore`]).
//!
//! What is atomic: each inserted, updated, replaced or deleted document, together with its entries in every index. A
//! request that names several documents is a sequence of such steps; after an error its outcome says how far it came.
//! What a statement or a document of a request is refused for (a bad filter, a duplicate key) stands in the outcome's
//! `errors`; an operation returns an error of its own if it could not carry out the request at all.
//!
//! What an error means: [`Error::class`](crate::Error::class) says whether to retry,
//! [`Error::applied`](crate::Error::applied) whether the step that failed may have happened.
//!
//! Cancellation: a future that is dropped before it is ready leaves its request either wholly done, not done at all,
//! or, when it names several documents, done for a prefix of them: the same as an answer that got lost. What was computed
//! for it, or for a cursor that is dropped, ends soon, on whatever thread it is: that is all that a time limit needs.

mod by_reading;
pub(crate) mod operations;
mod shared;

use async_trait::async_trait;
use bson::{RawBson, RawBsonRef, RawDocumentBuf};

use crate::{
    Aggregate, AtomicBatch, BatchLimit, CollectionCheck, CollectionInfo, CollectionOptions, CollectionStats,
    CommitTimestamp, Count, CreateIndexes, Delete, DeleteOutcome, Distinct, DropIndexes, Explain, Find, FindAndModify,
    FindAndModifyOutcome, IndexInfo, Insert, InsertOutcome, ModifyCollection, Namespace, Page, RenameCollection,
    Result, Update, UpdateOutcome,
};

pub use by_reading::check_by_reading;

/// Documents in collections, one of which is changed all or nothing.
#[async_trait]
pub trait DocumentStore: Send + Sync + 'static {
    /// A short name for messages and metrics: `memory`, `embedded`, `mongodb`.
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

    /// The distinct values of a field, arrays unwound, in the order of values.
    async fn distinct(&self, request: Distinct) -> Result<Vec<RawBson>>;

    /// How a request would be carried out, or was: MongoDB's `queryPlanner` and `executionStats` documents.
    async fn explain(&self, request: Explain) -> Result<RawDocumentBuf>;

    /// Creates indexes, and the collection if it is not there. An index that exists with the same definition is kept.
    /// Returns how many indexes the collection had before and has now.
    async fn create_indexes(&self, request: CreateIndexes) -> Result<(u32, u32)>;

    /// Drops indexes by name or key; returns how many indexes there were.
    async fn drop_indexes(&self, request: DropIndexes) -> Result<u32>;

    /// The indexes of a collection, `_id_` first.
    ///
    /// # Errors
    /// `NamespaceNotFound` if the collection does not exist.
    async fn list_indexes(&self, namespace: &Namespace) -> Result<Vec<IndexInfo>>;

    /// Creates an empty collection.
    ///
    /// # Errors
    /// `NamespaceExists` if it exists with other options; with the same options it is left as it is.
    async fn create_collection(&self, namespace: &Namespace, options: CollectionOptions) -> Result<()>;

    /// Changes what `collMod` can change: the lifetime of a TTL index.
    async fn modify_collection(&self, request: ModifyCollection) -> Result<RawDocumentBuf>;

    /// Gives a collection another name, in one step.
    async fn rename_collection(&self, request: RenameCollection) -> Result<()>;

    /// Drops a collection with its indexes; `false` if there was none.
    async fn drop_collection(&self, namespace: &Namespace) -> Result<bool>;

    /// The collections of a database, by name.
    async fn list_collections(&self, database: &str) -> Result<Vec<CollectionInfo>>;

    /// The databases that hold a collection, by name.
    async fn list_databases(&self) -> Result<Vec<String>>;

    /// Drops a database with its collections; `false` if there was none.
    async fn drop_database(&self, database: &str) -> Result<bool>;

    /// Counts and sizes of a collection; zeros if it does not exist.
    async fn collection_stats(&self, namespace: &Namespace) -> Result<CollectionStats>;

    /// Reads all of a collection, and compares each index with the documents where the backend can see what it holds.
    /// Another one says how many keys its documents have: [`check_by_reading`].
    ///
    /// # Errors
    /// `NamespaceNotFound` (26) if the collection does not exist.
    ///
    /// # Cancellation
    /// The reading ends soon.
    async fn check_collection(&self, namespace: &Namespace) -> Result<CollectionCheck> {
        check_by_reading(self, namespace).await
    }

    /// Returns once everything acknowledged before the call is durable.
    async fn flush(&self) -> Result<()>;
}

/// The results of a find or an aggregation, batch by batch. Dropping a cursor frees what it holds.
#[async_trait]
pub trait Cursor: Send {
    /// The next documents, at most as many as the limit allows (but at least one, if there is one). The page says
    /// whether more may follow; after the last page every further page is empty.
    async fn next_page(&mut self, limit: BatchLimit) -> Result<Page>;
}

/// A store that can read a snapshot of all its documents and commit a batch of writes in one atomic step.
///
/// Engine `Local` of the transaction layer needs this; `Percolator` does not (spec: transactions). Such a store also
/// honours the tickets of requests ([`Ticket`](crate::Ticket)): a statement with a ticket that was used answers its
/// first result and changes nothing.
#[async_trait]
pub trait AtomicStore: DocumentStore {
    /// A snapshot of everything that is committed (and, with `Journaled` durability, durable).
    async fn snapshot(&self) -> Result<Box<dyn Snapshot>>;

    /// Applies all writes or none. The first committer wins: if a document that the batch writes, or something that it
    /// read, was changed after [`AtomicBatch::read_at`], nothing is applied. A store that cannot tell any more takes it
    /// for changed.
    ///
    /// # Errors
    /// `WriteConflict` (112) as said above, and if a unique key of the batch was taken by a document that came, or was
    /// changed, after `read_at`: the batch was made by one who could not see that. `DuplicateKey` if a unique index would
    /// be violated in any other way. `TransactionTooOld` (225) for a ticket that a later one of its session has replaced.
    async fn commit(&self, batch: AtomicBatch) -> Result<CommitTimestamp>;
}

/// The documents of a store as they were at one moment.
#[async_trait]
pub trait Snapshot: Send + Sync {
    /// The commit that the snapshot includes last.
    fn timestamp(&self) -> CommitTimestamp;

    /// The document with this `_id`.
    async fn get(&self, namespace: &Namespace, id: RawBsonRef<'_>) -> Result<Option<RawDocumentBuf>>;

    /// Opens a cursor over the documents that match at the snapshot.
    async fn find(&self, request: Find) -> Result<Box<dyn Cursor>>;

    /// Whether it can be told without reading the document with this `_id` that nothing which is committed since the snapshot
    /// has changed it. `false` says nothing. It saves transactions a read; what they commit is looked at again.
    fn is_unchanged(&self, _namespace: &Namespace, _id: RawBsonRef<'_>) -> bool {
        false
    }
}
