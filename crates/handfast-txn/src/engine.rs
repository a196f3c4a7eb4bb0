//! The trait of engines, which carry transactions out: a snapshot to read from, claims on written documents, and the commit of a write
//! set.
//!
//! [`Transaction`](crate::Transaction) does the rest, once for all engines: it keeps the writes until the commit, shows
//! them to its own reads, and remembers what was read.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bson::{DateTime, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use handfast_mql::key;
use handfast_store::index::Index;
use handfast_store::{
    AtomicBatch, CollectionInfo, CollectionOptions, CommitTimestamp, CreateIndexes, Cursor, DocumentStore, DropIndexes,
    Explain, Find, IndexCounts, IndexInfo, IndexSpec, ModifyCollection, Namespace, RenameCollection,
    Result as StoreResult, Snapshot,
};

use crate::{Outcome, TransactionId};

/// Carries transactions out.
#[async_trait]
pub trait Engine: Send + Sync + 'static {
    /// Returns its constant properties.
    fn traits(&self) -> &'static EngineTraits;

    /// Returns its collections and indexes.
    fn catalog(&self) -> &dyn Catalog;

    /// Returns the store that carries out requests outside of transactions, each as a transaction of its own. `None` if only the engine can do
    /// that.
    fn plain(&self) -> Option<&Arc<dyn DocumentStore>>;

    /// Refuses a document with a field that the engine keeps for itself.
    ///
    /// # Errors
    /// `BadValue` (2) for such a field.
    fn check_document(&self, _document: &RawDocument) -> StoreResult<()> {
        Ok(())
    }

    /// Returns once all work for acknowledged commits is done.
    async fn flush(&self) -> StoreResult<()>;

    /// Begins a transaction. Other transactions respect its claims until the deadline.
    async fn begin(&self, deadline: Duration) -> StoreResult<Start>;

    /// Begins a transaction that only reads.
    async fn begin_reads(&self, deadline: Duration) -> StoreResult<Start> {
        self.begin(deadline).await
    }

    /// Begins a transaction with claims on documents that others have claimed ([`Claims::wanted`]): waits for all of them, and takes the
    /// snapshot after that. Returns `None` if the engine has no queues.
    ///
    /// # Cancellation
    /// The claims, or the places in the queues, are released for the next transaction.
    async fn begin_with_claims(&self, _deadline: Duration, _wanted: Vec<DocumentKey>) -> StoreResult<Option<Start>> {
        Ok(None)
    }

    /// Opens a cursor over the newest committed versions for a find outside of a transaction. Each is at least as new as what was acknowledged
    /// before. Returns `None` if the find takes a snapshot.
    async fn find_newest(&self, _request: &Find) -> StoreResult<Option<Box<dyn Cursor>>> {
        Ok(None)
    }

    /// Applies a write set in one atomic step.
    ///
    /// # Errors
    /// `WriteConflict` (112) if something that it read or wrote was changed after its snapshot. With
    /// [`Applied::Maybe`](handfast_store::Applied::Maybe) the outcome is unknown.
    async fn commit(&self, writes: WriteSet) -> StoreResult<CommitTimestamp>;

    /// Returns the outcome of a transaction that is no longer open. After an error it is still unknown.
    async fn outcome(&self, id: TransactionId) -> StoreResult<Outcome>;

    /// Forgets outcomes older than `age`, by a time that all processes on the store share, and returns how many. Returns `None` if there is no
    /// such time.
    async fn forget_outcomes(&self, _age: Duration) -> StoreResult<Option<u64>> {
        Ok(None)
    }

    /// Forgets the outcomes recorded before a moment of [`Sources::steady_now`](handfast_store::Sources::steady_now), and returns how many.
    async fn forget_outcomes_before(&self, moment: DateTime) -> StoreResult<u64>;
}

/// The constant properties of an engine.
#[derive(Clone, Copy, Debug)]
pub struct EngineTraits {
    /// A short name for messages and metrics: `local`, `percolator`.
    pub name: &'static str,
    /// The database of the store that the engine keeps for itself.
    pub own_database: Option<&'static str>,
    /// Whether a commit records its outcome even if its name was not asked for. Without a record, such a transaction has a name that says so
    /// ([`TransactionId::unnamed`]).
    pub records_every_commit: bool,
    /// Whether a commit uses the before-images of its writes ([`BatchWrite::before`](handfast_store::BatchWrite::before)).
    pub uses_before: bool,
    /// Whether [`Outcome::RolledBack`] is final after the answer to a commit got lost: neither a request that arrives late nor a restarted
    /// store can commit it. Then the commit returns a conflict; otherwise its outcome stays unknown.
    pub rolls_back_for_good: bool,
}

/// Collections and indexes, outside of transactions.
#[async_trait]
pub trait Catalog: Send + Sync {
    /// Returns the databases that hold a collection, sorted by name, without the engine's own.
    async fn list_databases(&self) -> StoreResult<Vec<String>>;

    /// Does the same as [`DocumentStore::list_collections`].
    async fn list_collections(&self, database: &str) -> StoreResult<Vec<CollectionInfo>>;

    /// Does the same as [`DocumentStore::create_collection`].
    async fn create_collection(&self, namespace: &Namespace, options: CollectionOptions) -> StoreResult<()>;

    /// Does the same as [`DocumentStore::rename_collection`].
    async fn rename_collection(&self, request: RenameCollection) -> StoreResult<()>;

    /// Does the same as [`DocumentStore::drop_collection`].
    async fn drop_collection(&self, namespace: &Namespace) -> StoreResult<bool>;

    /// Does the same as [`DocumentStore::drop_database`].
    async fn drop_database(&self, database: &str) -> StoreResult<bool>;

    /// Does the same as [`DocumentStore::list_indexes`].
    async fn list_indexes(&self, namespace: &Namespace) -> StoreResult<Vec<IndexInfo>>;

    /// Does the same as [`DocumentStore::create_indexes`].
    async fn create_indexes(&self, request: CreateIndexes) -> StoreResult<IndexCounts>;

    /// Does the same as [`DocumentStore::drop_indexes`].
    async fn drop_indexes(&self, request: DropIndexes) -> StoreResult<u32>;

    /// Does the same as [`DocumentStore::modify_collection`].
    async fn modify_collection(&self, request: ModifyCollection) -> StoreResult<RawDocumentBuf>;

    /// Does the same as [`DocumentStore::explain`].
    async fn explain(&self, request: Explain) -> StoreResult<RawDocumentBuf>;

    /// Returns the indexes to check before a document gets this new state, if the engine has them cached. With `None` the caller asks for all.
    fn needed_indexes(&self, _namespace: &Namespace, _after: Option<&RawDocument>) -> Option<Indexes> {
        None
    }

    /// Returns the indexes of a collection that a write has to keep, `_id_` first.
    ///
    /// # Errors
    /// `NamespaceNotFound` (26); `CommandNotSupported` (115) for one that the engine cannot keep.
    async fn kept_indexes(&self, namespace: &Namespace) -> StoreResult<Vec<IndexSpec>> {
        Ok(self.list_indexes(namespace).await?.into_iter().map(|index| index.spec).collect())
    }

    /// Returns the document that has a key of a unique index, in the snapshot of this timestamp.
    async fn holder(
        &self,
        _snapshot: CommitTimestamp,
        _namespace: &Namespace,
        _index: &Index,
        _key: &[u8],
    ) -> StoreResult<Holder> {
        Ok(Holder::ToBeFound)
    }
}

/// The catalog of a store, unchanged.
pub struct StoreCatalog(pub Arc<dyn DocumentStore>);

#[async_trait]
impl Catalog for StoreCatalog {
    async fn list_databases(&self) -> StoreResult<Vec<String>> {
        self.0.list_databases().await
    }

    async fn list_collections(&self, database: &str) -> StoreResult<Vec<CollectionInfo>> {
        self.0.list_collections(database).await
    }

    async fn create_collection(&self, namespace: &Namespace, options: CollectionOptions) -> StoreResult<()> {
        self.0.create_collection(namespace, options).await
    }

    async fn rename_collection(&self, request: RenameCollection) -> StoreResult<()> {
        self.0.rename_collection(request).await
    }

    async fn drop_collection(&self, namespace: &Namespace) -> StoreResult<bool> {
        self.0.drop_collection(namespace).await
    }

    async fn drop_database(&self, database: &str) -> StoreResult<bool> {
        self.0.drop_database(database).await
    }

    async fn list_indexes(&self, namespace: &Namespace) -> StoreResult<Vec<IndexInfo>> {
        self.0.list_indexes(namespace).await
    }

    async fn create_indexes(&self, request: CreateIndexes) -> StoreResult<IndexCounts> {
        self.0.create_indexes(request).await
    }

    async fn drop_indexes(&self, request: DropIndexes) -> StoreResult<u32> {
        self.0.drop_indexes(request).await
    }

    async fn modify_collection(&self, request: ModifyCollection) -> StoreResult<RawDocumentBuf> {
        self.0.modify_collection(request).await
    }

    async fn explain(&self, request: Explain) -> StoreResult<RawDocumentBuf> {
        self.0.explain(request).await
    }
}

/// The indexes of a collection, without the one on `_id`.
pub type Indexes = Arc<[Arc<Index>]>;

/// The document that has a key of a unique index.
#[derive(Clone, Debug, PartialEq)]
pub enum Holder {
    /// The document with this `_id`.
    Document(RawBson),
    /// There is no document.
    Nobody,
    /// The engine does not know without a search.
    ToBeFound,
}

/// The snapshot and the claims of a new transaction.
pub struct Start {
    /// The snapshot that it reads.
    pub snapshot: Arc<dyn Snapshot>,
    /// Its claims, which are released when dropped.
    pub claims: Box<dyn Claims>,
}

/// The write set of a commit: a batch whose ticket is the transaction's name.
pub type WriteSet = AtomicBatch;

/// Identifies a document: equal for `_id`s that compare as equal, whatever their types.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocumentKey {
    /// The collection.
    pub namespace: Namespace,
    /// The `_id` in the [key encoding](handfast_mql::key).
    pub id: Vec<u8>,
}

impl DocumentKey {
    /// Creates the key of the document with this `_id`.
    pub fn new(namespace: &Namespace, id: RawBsonRef<'_>) -> Self {
        DocumentKey { namespace: namespace.clone(), id: key::encoded(id) }
    }
}

/// The write claims of a transaction.
#[async_trait]
pub trait Claims: Send + Sync {
    /// Claims a document, whose state in the snapshot is `seen`, so that the second of two writers learns of the conflict at once. A granted
    /// claim promises nothing: the commit decides. The default grants every claim.
    ///
    /// # Errors
    /// `WriteConflict` (112) if another transaction has a claim on it, or has changed it since the snapshot.
    async fn claim(
        &self,
        _namespace: &Namespace,
        _id: RawBsonRef<'_>,
        _seen: Option<&RawDocument>,
        _snapshot: &dyn Snapshot,
    ) -> StoreResult<()> {
        Ok(())
    }

    /// Claims a document before it is read. Returns `false` if another transaction has a claim on it.
    fn try_claim(&self, _namespace: &Namespace, _id: RawBsonRef<'_>) -> bool {
        true
    }

    /// Returns, after a refused claim, the documents to claim before the transaction is run again: the refused one, and those it has.
    fn wanted(&self) -> Vec<DocumentKey> {
        Vec::new()
    }
}
