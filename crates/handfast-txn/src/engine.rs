//! What transactions need of whatever carries them out: a snapshot to read from, claims on what is written, and the commit
//! of a write set.
//!
//! [`Transaction`](crate::Transaction) does the rest, once for all engines: it keeps the writes until the commit, shows
//! them to its own reads, and remembers what was read.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bson::{RawBson, RawBsonRef, RawDocument};
use handfast_store::{
    AtomicBatch, CommitTimestamp, DocumentStore, IndexSpec, Namespace, Result as StoreResult, Snapshot,
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

    /// Whether the indexes of a collection have to be looked at before a document gets this new state.
    fn needs_indexes(&self, _namespace: &Namespace, _after: Option<&RawDocument>) -> bool {
        true
    }

    /// Whether the engine can keep what these indexes of a collection promise.
    ///
    /// # Errors
    /// `CommandNotSupported` (115) if it cannot.
    fn check_indexes(&self, _namespace: &Namespace, _indexes: &[IndexSpec]) -> StoreResult<()> {
        Ok(())
    }

    /// Returns once nothing in a collection waits for what is in another one: before one is renamed or dropped.
    ///
    /// # Errors
    /// `WriteConflict` (112) if there is a transaction that does not end.
    async fn settle(&self) -> StoreResult<()> {
        Ok(())
    }

    /// Returns once nothing is left to do for what was acknowledged.
    async fn flush(&self) -> StoreResult<()> {
        self.store().flush().await
    }

    /// Begins a transaction, whose claims nobody respects any more after the deadline.
    async fn begin(&self, deadline: Duration) -> StoreResult<Start>;

    /// Begins a transaction that ran into others before, with claims on the documents that it is going to write again: waits
    /// in line for each, and takes the snapshot after that. None if the engine has no lines to wait in.
    ///
    /// # Cancellation
    /// What was claimed is given up, and whoever is next has its turn.
    async fn begin_in_turn(&self, _deadline: Duration, _wanted: &[(Namespace, RawBson)]) -> StoreResult<Option<Start>> {
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

    /// What became of a transaction that is no longer open.
    ///
    /// # Errors
    /// Those of the store: then it is still unknown.
    async fn outcome(&self, id: TransactionId) -> StoreResult<Outcome>;

    /// Forgets outcomes that are older than this, by a time that all have in common who share the store; says how many.
    /// None if there is no such time.
    ///
    /// # Errors
    /// Those of the store.
    async fn forget_outcomes(&self, _age: Duration) -> StoreResult<Option<u64>> {
        Ok(None)
    }
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

/// Documents that a transaction is going to write.
#[async_trait]
pub trait Claims: Send + Sync {
    /// Claims a document, given as the transaction's snapshot has it, and the snapshot: so that of two writers the second one learns at
    /// once, not at its commit. A claim that is granted promises nothing: the commit decides.
    ///
    /// # Errors
    /// `WriteConflict` (112) if another transaction has a claim on it, or has changed it since the snapshot.
    async fn claim(
        &self,
        namespace: &Namespace,
        id: RawBsonRef<'_>,
        seen: Option<&RawDocument>,
        snapshot: &dyn Snapshot,
    ) -> StoreResult<()>;
}
