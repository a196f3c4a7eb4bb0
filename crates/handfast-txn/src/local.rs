//! The engine for a store that commits batches of documents atomically. It leaves no locks in the store.
//!
//! ```text
//! begin    snapshot of the store                       (shared, free)
//! write    claim in a table in memory, then into the write buffer
//! commit   one batch: unchanged since the snapshot? -> documents, indexes, outcome; synced together with other commits
//! ```
//!
//! Claims only let the second writer of a document fail early. Isolation comes from the store's check at the commit, so a claim that is lost,
//! or taken over after its deadline, wastes work and does no harm.
//!
//! A transaction that was refused a document and is run again waits in the queues of that document and those that it had, and begins with
//! claims on all of them. It holds no claims while it waits.
//!
//! Outcomes are forgotten, oldest first. A mark says up to which commit: an older transaction without a record may have committed.
//!
//! A document that a find of the transaction has returned, other than one by `_id` alone, is not read again when it is written ([`found_documents`]).
//!
//! Invariants: no claim outlives its transaction; a commit is applied once per ticket.

mod found_documents;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bson::{DateTime, RawBsonRef, RawDocument, rawdoc};
use handfast_store::{
    AtomicStore, CommitTimestamp, DocumentStore, Find, Namespace, Result as StoreResult, Snapshot, Sources, StoreExt,
    Ticket,
    ticket::{self, Recorded},
};

use self::found_documents::CachingSnapshot;
use crate::claims::{ChangeDetector, ClaimTable, TransactionClaims};
use crate::{Catalog, DocumentKey, Engine, EngineTraits, Outcome, Start, StoreCatalog, TransactionId, WriteSet};

/// The engine for a store that commits batches.
pub struct Local {
    store: Arc<dyn AtomicStore>,
    catalog: StoreCatalog,
    table: Arc<ClaimTable>,
}

impl Local {
    /// Returns an engine on this store.
    pub fn new(store: Arc<dyn AtomicStore>, sources: Sources) -> Self {
        let catalog = StoreCatalog(store.clone());
        Local { store, catalog, table: Arc::new(ClaimTable::new(sources.clock)) }
    }

    fn register(&self, deadline: Duration) -> TransactionClaims {
        self.table.register(Arc::new(StoreChangeDetector(Arc::clone(&self.store))), deadline)
    }

    async fn begin_with(&self, claims: TransactionClaims) -> StoreResult<Start> {
        let snapshot = Arc::new(CachingSnapshot::new(self.store.snapshot().await?));
        Ok(Start { snapshot, claims: Box::new(claims) })
    }
}

/// Compares documents with the newest state in the store.
pub(crate) struct StoreChangeDetector(pub(crate) Arc<dyn AtomicStore>);

#[async_trait]
impl ChangeDetector for StoreChangeDetector {
    async fn is_unchanged(
        &self,
        namespace: &Namespace,
        id: RawBsonRef<'_>,
        seen: Option<&RawDocument>,
        snapshot: &dyn Snapshot,
    ) -> StoreResult<bool> {
        if snapshot.is_unchanged(namespace, id) {
            return Ok(true);
        }
        let now = self.0.snapshot().await?.get(namespace, id).await?;
        Ok(now.as_deref().map(RawDocument::as_bytes) == seen.map(RawDocument::as_bytes))
    }
}

static TRAITS: EngineTraits = EngineTraits {
    name: "local",
    own_database: None,
    records_every_commit: true,
    uses_before: true,
    // A restarted store may find a commit in its files that has no record now.
    rolls_back_for_good: false,
};

#[async_trait]
impl Engine for Local {
    fn traits(&self) -> &'static EngineTraits {
        &TRAITS
    }

    fn catalog(&self) -> &dyn Catalog {
        &self.catalog
    }

    fn plain(&self) -> Option<&Arc<dyn DocumentStore>> {
        Some(&self.catalog.0)
    }

    async fn flush(&self) -> StoreResult<()> {
        self.store.flush().await
    }

    async fn begin(&self, deadline: Duration) -> StoreResult<Start> {
        self.begin_with(self.register(deadline)).await
    }

    /// Begins a transaction that only reads. The documents that it finds are not kept, as no write needs them.
    async fn begin_reads(&self, deadline: Duration) -> StoreResult<Start> {
        let claims = self.register(deadline);
        Ok(Start { snapshot: Arc::from(self.store.snapshot().await?), claims: Box::new(claims) })
    }

    async fn begin_with_claims(&self, deadline: Duration, wanted: Vec<DocumentKey>) -> StoreResult<Option<Start>> {
        let claims = self.register(deadline);
        claims.wait_and_claim(wanted).await;
        self.begin_with(claims).await.map(Some)
    }

    async fn commit(&self, writes: WriteSet) -> StoreResult<CommitTimestamp> {
        self.store.commit(writes).await
    }

    async fn outcome(&self, id: TransactionId) -> StoreResult<Outcome> {
        // After this, all earlier commits are decided and durable.
        self.store.flush().await?;
        let ticket = id.ticket();
        let record = self.store.find_one(&Ticket::namespace()?, rawdoc! { "_id": ticket.record_id() }).await?;
        let Some(record) = record else { return self.outcome_without_record(id).await };
        match ticket.result(&record)? {
            Some(result) => Ok(Outcome::Committed(CommitTimestamp::from_result(&result)?)),
            // A session's records are forgotten together.
            None => Ok(Outcome::RolledBack),
        }
    }

    /// Writes the mark before it removes records.
    async fn forget_outcomes_before(&self, moment: DateTime) -> StoreResult<u64> {
        let (records, old) = (Ticket::namespace()?, rawdoc! { "at": { "$lt": moment } });
        let sort = rawdoc! { "results.result.committed": -1 };
        let find = Find { sort, limit: Some(1), ..Find::new(records.clone(), old.clone()) };
        if let Some(newest) = self.store.find_all(find).await?.first().and_then(|record| newest_commit(record)) {
            let mark = ticket::forgotten(newest);
            self.store.upsert_one(&records, rawdoc! { "_id": ticket::forgotten_id() }, mark).await?;
        }
        self.store.delete_many(&records, old).await
    }
}

impl Local {
    /// Returns the outcome of a transaction without a record: it left none, or its record is among the forgotten ones.
    async fn outcome_without_record(&self, id: TransactionId) -> StoreResult<Outcome> {
        let mark = self.store.find_one(&Ticket::namespace()?, rawdoc! { "_id": ticket::forgotten_id() }).await?;
        let forgotten = mark.map(|mark| ticket::forgotten_up_to(&mark)).transpose()?;
        let is_younger = |forgotten: CommitTimestamp| id.snapshot().is_some_and(|snapshot| snapshot >= forgotten);
        Ok(if forgotten.is_none_or(is_younger) { Outcome::RolledBack } else { Outcome::Forgotten })
    }
}

fn newest_commit(record: &RawDocument) -> Option<CommitTimestamp> {
    let entries = record.get_array("results").ok()?.into_iter().flatten();
    let results = entries.filter_map(|entry| entry.as_document()?.get_document("result").ok());
    results.filter_map(|result| CommitTimestamp::from_result(result).ok()).max()
}
