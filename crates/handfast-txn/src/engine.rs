//! What transactions need of whatever carries them out: a snapshot to read from, claims on what is written, and the commit
//! of a write set.
//!
//! [`Transaction`](crate::Transaction) does the rest, once for all engines: it keeps the writes until the commit, shows
//! them to its own reads, and remembers what was read.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bson::{DateTime, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use handfast_store::index::Index;
use handfast_store::{
    AtomicBatch, CommitTimestamp, CreateIndexes, Cursor, DocumentStore, DropIndexes, Explain, Find, IndexInfo,
    IndexSpec, ModifyCollection, Namespace, RenameCollection, Result as StoreResult, Snapshot, StoreExt, Ticket,
};

use crate::{Outcome, TransactionId};

/// Carries transactions out.
#[async_trait]
pub trait Engine: Send + Sync + 'static {
    /// A short name for messages and metrics: `local`, `percolator`.
    fn name(&self) -> &'static str;

    /// Where collections and indexes are.
    fn store(&self) -> &Arc<dyn DocumentStore>;

    /// Carries out requests outside of transactions, each of which is a transaction of its own. None if it takes the
    /// engine to make them one.
    fn plain(&self) -> Option<&Arc<dyn DocumentStore>> {
        Some(self.store())
    }

    /// The database of the store that the engine keeps for itself.
    fn own_database(&self) -> Option<&'static str> {
        None
    }

    /// Whether a document leaves the engine's own fields alone.
    ///
    /// # Errors
    /// `BadValue` (2) if it does not.
    fn check_document(&self, _document: &RawDocument) -> StoreResult<()> {
        Ok(())
    }

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

    /// Who has a key of a unique index, in the snapshot of this timestamp.
    async fn holder(
        &self,
        _snapshot: CommitTimestamp,
        _namespace: &Namespace,
        _index: &Index,
        _key: &[u8],
    ) -> StoreResult<Holder> {
        Ok(Holder::ToBeFound)
    }

    /// As [`DocumentStore::explain`].
    async fn explain(&self, request: Explain) -> StoreResult<RawDocumentBuf> {
        self.store().explain(request).await
    }

    /// As [`DocumentStore::list_indexes`].
    async fn list_indexes(&self, namespace: &Namespace) -> StoreResult<Vec<IndexInfo>> {
        self.store().list_indexes(namespace).await
    }

    /// As [`DocumentStore::create_indexes`].
    async fn create_indexes(&self, request: CreateIndexes) -> StoreResult<(u32, u32)> {
        self.store().create_indexes(request).await
    }

    /// As [`DocumentStore::drop_indexes`].
    async fn drop_indexes(&self, request: DropIndexes) -> StoreResult<u32> {
        self.store().drop_indexes(request).await
    }

    /// As [`DocumentStore::modify_collection`].
    async fn modify_collection(&self, request: ModifyCollection) -> StoreResult<RawDocumentBuf> {
        self.store().modify_collection(request).await
    }

    /// As [`DocumentStore::rename_collection`].
    async fn rename_collection(&self, request: RenameCollection) -> StoreResult<()> {
        self.store().rename_collection(request).await
    }

    /// As [`DocumentStore::drop_collection`].
    async fn drop_collection(&self, namespace: &Namespace) -> StoreResult<bool> {
        self.store().drop_collection(namespace).await
    }

    /// As [`DocumentStore::drop_database`].
    async fn drop_database(&self, database: &str) -> StoreResult<bool> {
        self.store().drop_database(database).await
    }

    /// Returns once nothing is left to do for what was acknowledged.
    async fn flush(&self) -> StoreResult<()> {
        self.store().flush().await
    }

    /// Begins a transaction, whose claims nobody respects any more after the deadline.
    async fn begin(&self, deadline: Duration) -> StoreResult<Start>;

    /// Begins a transaction that was refused a document before, with claims on what it [wanted](Claims::wanted): waits in
    /// line for all of it, and takes the snapshot after that. None if the engine has no lines to wait in.
    ///
    /// # Cancellation
    /// The claims or the places in the lines are given up, and whoever is next has its turn.
    async fn begin_in_turn(&self, _deadline: Duration, _wanted: Vec<Place>) -> StoreResult<Option<Start>> {
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

    /// Whether a commit leaves a record of its outcome although nobody has asked for its name. Where that would be a
    /// write too many, such a transaction goes by a name that says so ([`TransactionId::unnamed`]).
    fn records_every_commit(&self) -> bool {
        true
    }

    /// Whether a commit has a use for what the snapshot has in the places of its writes
    /// ([`AtomicBatch::before`](handfast_store::AtomicBatch::before)).
    fn uses_before(&self) -> bool {
        false
    }

    /// What became of a transaction that is no longer open.
    ///
    /// # Errors
    /// Those of the store: then it is still unknown.
    async fn outcome(&self, id: TransactionId) -> StoreResult<Outcome>;

    /// Whether [`Outcome::RolledBack`] is for good when a commit's answer got lost: the commit cannot happen after all, neither
    /// by a request that arrives late nor by what a restarted store finds in its files. Then whoever commits is told that
    /// it has lost; else it stays unknown.
    fn rolls_back_for_good(&self) -> bool {
        false
    }

    /// Forgets outcomes that are older than this, by a time that all have in common who share the store; says how many.
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
    async fn forget_outcomes_before(&self, moment: DateTime) -> StoreResult<u64> {
        self.store().delete_many(&Ticket::namespace()?, rawdoc! { "at": { "$lt": moment } }).await
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

/// Where a document is: its namespace, and its `_id` as a [key](handfast_mql::key::encode).
pub type Place = (Namespace, Vec<u8>);

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

    /// After a refused claim, what the transaction will want if it is run again: the document that it was refused, and
    /// those that it has.
    fn wanted(&self) -> Vec<Place> {
        Vec::new()
    }
}
