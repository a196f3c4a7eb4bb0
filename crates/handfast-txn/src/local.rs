//! The engine for a store that commits batches: one atomic domain, no locks that anybody could leave behind.
//!
//! ```text
//! begin    snapshot of the store                       (shared, free)
//! write    claim in a table in memory, then into the transaction's own writes
//! commit   one batch: unchanged since the snapshot? -> documents, indexes, outcome; synced together with other commits
//! ```
//!
//! The table of claims only makes the second writer of a document fail early. It is not what keeps transactions apart:
//! the store's check at the commit is. So a claim that is lost, or taken over after its deadline, costs nothing but work.
//!
//! A transaction that was refused a document and is run again stands in line for it and for what it had before, and begins
//! with claims on all of it. It holds nothing while it waits.
//!
//! Invariants: no claim outlives its transaction; a commit is applied once per ticket.

mod claims;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bson::rawdoc;
use handfast_store::{
    AtomicStore, CommitTimestamp, DocumentStore, Result as StoreResult, Sources, StoreExt, Ticket, ticket::Recorded,
};

use self::claims::{Holder, Table};
use crate::{Engine, Outcome, Place, Start, TransactionId, WriteSet};

/// Transactions on a store that commits batches.
pub struct Local {
    store: Arc<dyn AtomicStore>,
    documents: Arc<dyn DocumentStore>,
    table: Arc<Table>,
}

impl Local {
    /// On this store.
    pub fn new(store: Arc<dyn AtomicStore>, sources: Sources) -> Self {
        let documents: Arc<dyn DocumentStore> = store.clone();
        Local { store, documents, table: Arc::new(Table::new(sources.clock)) }
    }

    async fn begin_with(&self, holder: Holder) -> StoreResult<Start> {
        let snapshot = Arc::from(self.store.snapshot().await?);
        Ok(Start { snapshot, claims: Box::new(holder) })
    }
}

#[async_trait]
impl Engine for Local {
    fn name(&self) -> &'static str {
        "local"
    }

    fn store(&self) -> &Arc<dyn DocumentStore> {
        &self.documents
    }

    async fn begin(&self, deadline: Duration) -> StoreResult<Start> {
        self.begin_with(self.table.holder(self.store.clone(), deadline)).await
    }

    async fn begin_in_turn(&self, deadline: Duration, wanted: Vec<Place>) -> StoreResult<Option<Start>> {
        let holder = self.table.holder(self.store.clone(), deadline);
        holder.reserve(wanted).await;
        self.begin_with(holder).await.map(Some)
    }

    async fn commit(&self, writes: WriteSet) -> StoreResult<CommitTimestamp> {
        self.store.commit(writes).await
    }

    async fn outcome(&self, id: TransactionId) -> StoreResult<Outcome> {
        // What was asked of the store before is decided, and durable, once this returns.
        self.store.flush().await?;
        let ticket = id.ticket();
        let record = self.store.find_one(&Ticket::namespace()?, rawdoc! { "_id": ticket.record_id() }).await?;
        let Some(record) = record else { return Ok(Outcome::RolledBack) };
        match ticket.result(&record)? {
            Some(result) => Ok(Outcome::Committed(CommitTimestamp::from_result(&result)?)),
            None => Ok(Outcome::RolledBack),
        }
    }
}
