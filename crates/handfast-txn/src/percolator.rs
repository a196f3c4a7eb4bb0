//! The engine for a store that is atomic one document at a time.
//!
//! ```text
//!            Bob 10, Joe 2            start 7         prewrite            commit 8: the primary     after the answer
//! Bob        10                       read 10         10  lock{put 3}     3                         3
//! Joe         2                       read  2          2  lock{put 9}     2  lock{put 9}            9
//!                                                          `-> Bob              `-> Bob: committed at 8, so 9
//! ```
//!
//! A transaction reads at its start timestamp, buffers its writes, and at its commit locks all its rows with the new versions in the locks.
//! One of the rows is the primary. The transaction has committed when the version in the primary's lock is moved in: one atomic operation
//! on one document. A reader that finds a lock reads the outcome of its transaction from the primary.
//!
//! The steps are functions in [`row`]; everything else here carries them out.
//!
//! | for | read |
//! | --- | --- |
//! | the stored form of a document, and its state changes | [`row`] |
//! | timestamps | `oracle` |
//! | reads of a transaction | `snapshot`, `query`; the filter that is sent to the store: `push_down` |
//! | a read of one document outside of a transaction | `newest` |
//! | a commit | `committer`, `validation`; early conflicts: `recent_commits`, and the claims of both engines |
//! | records of outcomes | `records` |
//! | unique keys | `unique`, `catalog`, `definitions`, `build`, `indexes` |
//! | writes to the store without the engine | `unmanaged` |
//! | names of collections | `mapping`, `collections`, `definitions` |
//! | locks and versions that other processes left | `resolver`, `cleaner`; for operators: `inspection` |
//! | many rows with few requests, and a bound on requests under way | `batch`, `throttled` |
//! | indexes on the hidden field | `own_indexes` |
//! | how long history is kept | `history_lease`, `leases`, `ages` |
//!
//! # A cleaner beside a committer
//!
//! A cleaner that takes a lock away between the committer's look at it and its write would make readers see the old
//! version of something that has committed. It cannot: the commit of the primary is one operation that requires the lock.
//! If the cleaner was first, the row has another revision and a rollback record; the committer's operation changes nothing,
//! and no later one will.
//!
//! # What it assumes of the store
//!
//! An operation on one document is atomic, and what is acknowledged stays. A request that was sent arrives within
//! [`PercolatorOptions::retention`], or never: after that the records that refuse a copy of it are gone. All writes to a collection go
//! through this engine, with the same options.
//!
//! Source: Peng and Dabek, Large-scale Incremental Processing Using Distributed Transactions and Notifications; seed 2;
//! spec: transactions.

mod ages;
mod batch;
mod build;
mod catalog;
mod cleaner;
mod collections;
mod committer;
mod core;
mod definitions;
mod history_lease;
mod indexes;
mod inspection;
mod leases;
mod mapping;
mod newest;
mod options;
mod oracle;
mod own_indexes;
mod push_down;
mod query;
mod recent_commits;
mod records;
mod resolver;
pub mod row;
mod rows;
mod scan;
mod snapshot;
mod throttled;
mod unique;
mod unmanaged;
mod validation;
mod versioned_document;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bson::{DateTime, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_store::index::Index;
use handfast_store::{
    CollectionInfo, CollectionOptions, CommitTimestamp, CreateIndexes, Cursor, DocumentStore, DropIndexes,
    Error as StoreError, Explain, Find, IndexCounts, IndexInfo, IndexSpec, ModifyCollection, Namespace,
    RenameCollection, Result as StoreResult, Sources, StoreExt, Ticket,
};

use self::committer::{Committer, Prepared};
use self::core::{Core, KnownOutcome};
use self::oracle::Oracle;
use self::query::Reader;
use self::recent_commits::RecentCommits;
use self::row::{FIELD, Timestamp};
use self::rows::Rows;
use self::unique::IndexKey;
use crate::claims::ClaimTable;
use crate::{Catalog, DocumentKey, Engine, EngineTraits, Holder, Indexes, Outcome, Start, TransactionId, WriteSet};

pub use cleaner::Cleaned;
pub use inspection::{Decided, HeldLock, OpenTransaction, SafePoints, StoredCollection};
pub use options::{
    CLEANING_INTERVAL, LEASE_TTL, LOCK_TTL, OUTCOME_RETENTION, PercolatorOptions, REQUESTS_MAX, RETENTION,
    SEEN_BYTES_MAX,
};
pub use oracle::AHEAD_MAX;
pub use unmanaged::{Unmanaged, ensure_unmanaged};

/// The engine's own database.
pub const DATABASE: &str = "handfast";
/// The collection of the timestamp oracle.
const ORACLE: &str = "oracle";

/// The most looks at the locks on the keys of a dropped index, before its rows are removed.
const LOCK_LOOKS_MAX: u32 = 100;
/// The pause between two looks: all of them take longer than a lock lives without a heartbeat.
const LOCK_LOOKS_PAUSE: Duration = Duration::from_millis(100);

/// The engine for a store that is atomic one document at a time.
pub struct Percolator {
    core: Arc<Core>,
    /// The claims of this process's transactions, by which the second of two writers conflicts at once. Between processes the prewrites decide.
    claims: Arc<ClaimTable>,
    recent: Arc<RecentCommits>,
}

impl Percolator {
    /// Returns an engine on this store, which other processes may share. With a cleaning interval, it has to be called within a runtime.
    pub fn new(store: Arc<dyn DocumentStore>, sources: Sources, options: PercolatorOptions) -> StoreResult<Self> {
        let oracle = Oracle::new(Arc::clone(&store), Namespace::new(DATABASE, ORACLE)?, sources.clone());
        let rows = Rows::new(store, options.requests_max);
        let core = Arc::new(Core::new(rows, sources, options, oracle));
        cleaner::start(&core);
        let claims = Arc::new(ClaimTable::new(Arc::clone(&core.sources.clock)));
        Ok(Percolator { core, claims, recent: Arc::default() })
    }

    async fn begin_with(&self, claims: crate::claims::TransactionClaims, deadline: Duration) -> StoreResult<Start> {
        let snapshot = self.core.begin_until(deadline).await?;
        Ok(Start { snapshot: Arc::new(Reader(snapshot)), claims: Box::new(claims) })
    }

    /// Resolves the locks of decided and abandoned transactions, and removes history that is no longer needed, in all collections. Rows that
    /// fail are counted, and the others are cleaned.
    ///
    /// # Errors
    /// Returns errors of the store that concern more than single rows. Changes that were made before an error remain.
    pub async fn clean(&self) -> StoreResult<Cleaned> {
        self.core.clean().await
    }

    /// Takes or renews the lease on history for old snapshots of this process, and releases it when they are gone. The engine does this by
    /// itself periodically, and before a read that needs it.
    ///
    /// # Errors
    /// Errors of the store. A snapshot without a lease can be read until its history is removed, and then fails with `SnapshotTooOld` (239).
    pub async fn keep_history(&self) -> StoreResult<()> {
        self.core.maintain_lease().await
    }

    /// Returns once the background work of all commits of this process is done.
    pub async fn idle(&self) {
        self.core.background.idle().await;
    }
}

static TRAITS: EngineTraits = EngineTraits {
    name: "percolator",
    own_database: Some(DATABASE),
    // A record would cost a write.
    records_every_commit: false,
    uses_before: false,
    // A question for the outcome leaves a rollback record on the primary, or in place of the commit's own record.
    rolls_back_for_good: true,
};

#[async_trait]
impl Engine for Percolator {
    fn traits(&self) -> &'static EngineTraits {
        &TRAITS
    }

    fn catalog(&self) -> &dyn Catalog {
        self
    }

    fn plain(&self) -> Option<&Arc<dyn DocumentStore>> {
        None
    }

    fn check_document(&self, document: &RawDocument) -> StoreResult<()> {
        match document.get(FIELD).map_err(handfast_mql::Error::from)? {
            None => Ok(()),
            Some(_) => {
                let text = format!("the field '{FIELD}' is kept for transactions: a document cannot have its own");
                Err(StoreError::command(Code::BadValue, text))
            }
        }
    }

    async fn flush(&self) -> StoreResult<()> {
        self.idle().await;
        self.core.maintain_lease().await?;
        self.core.rows.store.flush().await
    }

    async fn begin(&self, deadline: Duration) -> StoreResult<Start> {
        self.begin_with(self.claims.register(self.recent.clone(), deadline), deadline).await
    }

    async fn begin_with_claims(&self, deadline: Duration, wanted: Vec<DocumentKey>) -> StoreResult<Option<Start>> {
        let claims = self.claims.register(self.recent.clone(), deadline);
        claims.wait_and_claim(wanted).await;
        self.begin_with(claims, deadline).await.map(Some)
    }

    async fn find_newest(&self, request: &Find) -> StoreResult<Option<Box<dyn Cursor>>> {
        newest::find(&self.core, request).await
    }

    async fn commit(&self, writes: WriteSet) -> StoreResult<CommitTimestamp> {
        let Some(snapshot) = self.core.open_snapshot(Timestamp(writes.read_at.0)) else {
            let text = "the write set was not made from a snapshot of this engine that is still open";
            return Err(StoreError::command(Code::NoSuchTransaction, text));
        };
        let written = RecentCommits::written_keys(&writes);
        let prepared = Committer::prepare(Arc::clone(&self.core), snapshot, writes).await;
        match prepared.map_err(committer::not_applied)? {
            Prepared::Commit(committer) => {
                let at = committer::carry_out(committer).await?;
                self.recent.note(written, Timestamp(at.0));
                Ok(at)
            }
            Prepared::Committed(at) => Ok(at.into()),
        }
    }

    async fn outcome(&self, id: TransactionId) -> StoreResult<Outcome> {
        match self.core.known_outcome(id) {
            Some(KnownOutcome::Committed(at)) => Ok(Outcome::Committed(at.into())),
            Some(KnownOutcome::RolledBack) => Ok(Outcome::RolledBack),
            Some(KnownOutcome::Unknown { start, primary }) => {
                let (known, outcome) = match self.core.abort_unless_committed(&primary, start).await? {
                    Some(at) => (KnownOutcome::Committed(at), Outcome::Committed(at.into())),
                    None => (KnownOutcome::RolledBack, Outcome::RolledBack),
                };
                self.core.remember_outcome(id, known);
                Ok(outcome)
            }
            None if id.is_named() => records::outcome(&self.core, id).await,
            None => {
                let text = format!(
                    "only the process that ran transaction {id} could tell what became of it, as nobody had asked for \
                     its id before it ended"
                );
                Err(StoreError::command(Code::NoSuchTransaction, text))
            }
        }
    }

    async fn forget_outcomes(&self, age: Duration) -> StoreResult<Option<u64>> {
        self.core.forget_outcomes(age).await.map(Some)
    }

    async fn forget_outcomes_before(&self, moment: DateTime) -> StoreResult<u64> {
        self.core.rows.store.delete_many(&Ticket::namespace()?, rawdoc! { "at": { "$lt": moment } }).await
    }
}

#[async_trait]
impl Catalog for Percolator {
    async fn list_databases(&self) -> StoreResult<Vec<String>> {
        self.core.list_databases().await
    }

    async fn list_collections(&self, database: &str) -> StoreResult<Vec<CollectionInfo>> {
        self.core.list_collections(database).await
    }

    async fn create_collection(&self, namespace: &Namespace, options: CollectionOptions) -> StoreResult<()> {
        options.refuse_any()?;
        self.core.create_collection(namespace).await
    }

    async fn rename_collection(&self, request: RenameCollection) -> StoreResult<()> {
        self.core.rename_collection(request).await
    }

    async fn drop_collection(&self, namespace: &Namespace) -> StoreResult<bool> {
        self.core.drop_collection(namespace).await
    }

    async fn drop_database(&self, database: &str) -> StoreResult<bool> {
        self.core.drop_database(database).await
    }

    async fn list_indexes(&self, namespace: &Namespace) -> StoreResult<Vec<IndexInfo>> {
        self.core.list_indexes(namespace).await
    }

    async fn create_indexes(&self, request: CreateIndexes) -> StoreResult<IndexCounts> {
        self.core.create_indexes(request).await
    }

    async fn drop_indexes(&self, request: DropIndexes) -> StoreResult<u32> {
        self.core.drop_indexes(request).await
    }

    async fn modify_collection(&self, request: ModifyCollection) -> StoreResult<RawDocumentBuf> {
        self.core.modify_collection(request).await
    }

    async fn explain(&self, request: Explain) -> StoreResult<RawDocumentBuf> {
        self.core.explain(request).await
    }

    /// Besides unique indexes, only an index on two fields can refuse a document, and only a document with arrays. The collection of request
    /// records has arrays, and no indexes but the engine's own.
    fn needed_indexes(&self, namespace: &Namespace, after: Option<&RawDocument>) -> Option<Indexes> {
        let (catalog, version) = self.core.catalog_at_hand()?;
        let collection = catalog.mapping.collection(namespace, version)?;
        let may_be_refused = || !definitions::is_fixed(namespace) && after.is_some_and(has_array);
        if !self.core.is_checked(&collection) || may_be_refused() {
            return None;
        }
        Some(catalog.unique(&collection, version).map(|kept| Arc::clone(&kept.index)).collect())
    }

    async fn kept_indexes(&self, namespace: &Namespace) -> StoreResult<Vec<IndexSpec>> {
        self.core.kept_indexes(namespace).await
    }

    async fn holder(
        &self,
        snapshot: CommitTimestamp,
        namespace: &Namespace,
        index: &Index,
        key: &[u8],
    ) -> StoreResult<Holder> {
        let (catalog, version) = self.core.catalog().await?;
        let collection = catalog.mapping.collection(namespace, version);
        let of = |collection: &Namespace| {
            catalog.unique(collection, version).find(|kept| kept.spec().name == index.spec().name)
        };
        let (Some(kept), Some(snapshot)) =
            (collection.as_ref().and_then(of), self.core.open_snapshot(Timestamp(snapshot.0)))
        else {
            return Ok(Holder::ToBeFound);
        };
        let key = IndexKey { index: kept.id, key: key.to_vec() };
        let owner = unique::owners(&snapshot, [&key]).await?.remove(&key);
        Ok(owner.map_or(Holder::Nobody, Holder::Document))
    }
}

/// Returns whether a document has an array at any depth.
fn has_array(document: &RawDocument) -> bool {
    document.iter().flatten().any(|(_, value)| match value {
        RawBsonRef::Array(_) => true,
        RawBsonRef::Document(inner) => has_array(inner),
        _ => false,
    })
}
