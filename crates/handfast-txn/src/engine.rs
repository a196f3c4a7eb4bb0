//! What transactions need of whatever carries them out: a snapshot to read from, claims on what is written, and the commit
//! of a write set.
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
    Explain, Find, IndexInfo, IndexSpec, ModifyCollection, Namespace, RenameCollection, Result as StoreResult,
    Snapshot,
};

use crate::{Outcome, TransactionId};

/// Carries transactions out.
#[async_trait]
pub trait Engine: Send + Sync + 'static {
    /// What is always true of it.
    fn traits(&self) -> &'static EngineTraits;

    /// Its collections and indexes.
    fn catalog(&self) -> &dyn Catalog;

    /// Carries out requests outside of transactions, each of which is a transaction of its own. None if it takes the
    /// engine to make them one.
    fn plain(&self) -> Option<&Arc<dyn DocumentStore>>;

    /// Whether a document leaves the engine's own fields alone.
    ///
    /// # Errors
    /// `BadValue` (2) if it does not.
    fn check_document(&self, _document: &RawDocument) -> StoreResult<()> {
        Ok(())
    }

    /// Returns once nothing is left to do for what was acknowledged.
    async fn flush(&self) -> StoreResult<()>;

    /// Begins a transaction, whose claims nobody respects any more after the deadline.
    async fn begin(&self, deadline: Duration) -> StoreResult<Start>;

    /// Begins a transaction with claims on documents that another one had claimed before ([`Claims::wanted`]): waits in line for all
    /// of them, and takes the snapshot after that. None if the engine has no lines to wait in.
    ///
    /// # Cancellation
    /// The claims or the places in the lines are given up, and whoever is next has its turn.
    async fn begin_with_claims(&self, _deadline: Duration, _wanted: Vec<DocumentKey>) -> StoreResult<Option<Start>> {
        Ok(None)
    }

    /// Opens a cursor over what a find outside of a transaction finds, each document in its newest committed version, which is what
    /// was acknowledged before and may be newer. None if that takes a snapshot.
    ///
    /// # Errors
    /// Those of reading, and of compiling the find.
    async fn find_newest(&self, _request: &Find) -> StoreResult<Option<Box<dyn Cursor>>> {
        Ok(None)
    }

    /// Applies a write set in one atomic step.
    ///
    /// # Errors
    /// `WriteConflict` (112) if something that it read or wrote was changed after its snapshot. With
    /// [`Applied::Maybe`](handfast_store::Applied::Maybe) the outcome is unknown.
    async fn commit(&self, writes: WriteSet) -> StoreResult<CommitTimestamp>;

    /// What became of a transaction that is no longer open.
    ///
    /// # Errors
    /// Those of the store: then it is still unknown.
    async fn outcome(&self, id: TransactionId) -> StoreResult<Outcome>;

    /// Forgets outcomes that are older than this, by time that all processes count together that share the store; says how many.
    /// None if there is no such time.
    ///
    /// # Errors
    /// Those of the store.
    async fn forget_outcomes(&self, _age: Duration) -> StoreResult<Option<u64>> {
        Ok(None)
    }

    /// Forgets the outcomes that were recorded before this moment of [`Sources::steady_now`](handfast_store::Sources::steady_now);
    /// says how many.
    ///
    /// # Errors
    /// Those of the store.
    async fn forget_outcomes_before(&self, moment: DateTime) -> StoreResult<u64>;
}

/// What is always true of an engine.
#[derive(Clone, Copy, Debug)]
pub struct EngineTraits {
    /// A short name for messages and metrics: `local`, `percolator`.
    pub name: &'static str,
    /// The database of the store that the engine keeps for itself.
    pub own_database: Option<&'static str>,
    /// Whether a commit leaves a record of its outcome although nobody has asked for its name. Where that would be a
    /// write too many, such a transaction goes by a name that says so ([`TransactionId::unnamed`]).
    pub records_every_commit: bool,
    /// Whether a commit has a use for what the snapshot has in the places of its writes ([`BatchWrite::before`](handfast_store::BatchWrite::before)).
    pub uses_before: bool,
    /// Whether [`Outcome::RolledBack`] is for good when a commit's answer got lost: the commit cannot happen after all, neither
    /// by a request that arrives late nor by what a restarted store finds in its files. Then the caller of the commit learns
    /// that it has lost; else the outcome stays unknown.
    pub rolls_back_for_good: bool,
}

/// Collections and indexes, outside of transactions.
#[async_trait]
pub trait Catalog: Send + Sync {
    /// The databases that hold a collection, by name, without the engine's own.
    async fn list_databases(&self) -> StoreResult<Vec<String>>;

    /// As [`DocumentStore::list_collections`].
    async fn list_collections(&self, database: &str) -> StoreResult<Vec<CollectionInfo>>;

    /// As [`DocumentStore::create_collection`].
    async fn create_collection(&self, namespace: &Namespace, options: CollectionOptions) -> StoreResult<()>;

    /// As [`DocumentStore::check_rename`].
    fn check_rename(&self, from: &Namespace, to: &Namespace) -> StoreResult<()>;

    /// As [`DocumentStore::rename_collection`].
    async fn rename_collection(&self, request: RenameCollection) -> StoreResult<()>;

    /// As [`DocumentStore::drop_collection`].
    async fn drop_collection(&self, namespace: &Namespace) -> StoreResult<bool>;

    /// As [`DocumentStore::drop_database`].
    async fn drop_database(&self, database: &str) -> StoreResult<bool>;

    /// As [`DocumentStore::list_indexes`].
    async fn list_indexes(&self, namespace: &Namespace) -> StoreResult<Vec<IndexInfo>>;

    /// As [`DocumentStore::create_indexes`].
    async fn create_indexes(&self, request: CreateIndexes) -> StoreResult<(u32, u32)>;

    /// As [`DocumentStore::drop_indexes`].
    async fn drop_indexes(&self, request: DropIndexes) -> StoreResult<u32>;

    /// As [`DocumentStore::modify_collection`].
    async fn modify_collection(&self, request: ModifyCollection) -> StoreResult<RawDocumentBuf>;

    /// As [`DocumentStore::explain`].
    async fn explain(&self, request: Explain) -> StoreResult<RawDocumentBuf>;

    /// The indexes that have to be looked at before a document gets this new state, if the engine has them at hand. None:
    /// all of them are to be asked for.
    fn needed_indexes(&self, _namespace: &Namespace, _after: Option<&RawDocument>) -> Option<Indexes> {
        None
    }

    /// The indexes of a collection that a write has to keep, `_id_` first.
    ///
    /// # Errors
    /// `NamespaceNotFound` (26); `CommandNotSupported` (115) for one that the engine cannot keep.
    async fn kept_indexes(&self, namespace: &Namespace) -> StoreResult<Vec<IndexSpec>> {
        Ok(self.list_indexes(namespace).await?.into_iter().map(|index| index.spec).collect())
    }

    /// The document that has a key of a unique index, in the snapshot of this timestamp.
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

/// The collections and indexes of a store, as they are.
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

    fn check_rename(&self, from: &Namespace, to: &Namespace) -> StoreResult<()> {
        self.0.check_rename(from, to)
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

    async fn create_indexes(&self, request: CreateIndexes) -> StoreResult<(u32, u32)> {
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

/// Indexes of a collection, besides the one on `_id`.
pub type Indexes = Arc<[Arc<Index>]>;

/// Who has a key of a unique index.
#[derive(Clone, Debug, PartialEq)]
pub enum Holder {
    /// The document with this `_id`.
    Document(RawBson),
    /// No document.
    Nobody,
    /// The engine does not know without a search.
    ToBeFound,
}

/// A transaction's beginning.
pub struct Start {
    /// What it reads.
    pub snapshot: Arc<dyn Snapshot>,
    /// What it is going to write. Given up when dropped.
    pub claims: Box<dyn Claims>,
}

/// What a transaction commits: a batch whose ticket is the transaction's name.
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
    /// The key of the document with this `_id`.
    pub fn new(namespace: &Namespace, id: RawBsonRef<'_>) -> Self {
        DocumentKey { namespace: namespace.clone(), id: key::encoded(id) }
    }
}

/// Documents that a transaction is going to write.
#[async_trait]
pub trait Claims: Send + Sync {
    /// Claims a document, given as the transaction's snapshot has it, and the snapshot: so that of two writers the second
    /// one learns at once, not at its commit. A claim that is granted promises nothing: the commit decides. Without an
    /// implementation every claim is granted.
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

    /// After a refused claim, what the transaction will want if it is run again: the document that it was refused, and
    /// those that it has.
    fn wanted(&self) -> Vec<DocumentKey> {
        Vec::new()
    }
}
