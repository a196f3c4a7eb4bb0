//! Defects of the engine and its users that the tests have to find.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bson::DateTime;
use handfast_store::{AtomicBatch, CommitTimestamp, DocumentStore, Result};
use handfast_txn::{Catalog, Engine, EngineTraits, Local, Outcome, Start, TransactionId, WriteSet};

/// A defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    /// A commit is two batches, each with half of the writes.
    HalfABatch,
    /// A commit does not store its outcome.
    LostTicket,
    /// A retryable update does not store its result.
    UnticketedUpdate,
    /// Writes are acknowledged before they are synced.
    Unsynced,
}

impl Defect {
    /// All defects with the expected messages.
    pub(crate) const ALL: [(Defect, &str); 4] = [
        (Defect::HalfABatch, "an action is applied in part"),
        (Defect::LostTicket, "the outcome is RolledBack"),
        (Defect::UnticketedUpdate, "RetryableUpsert, repeated, answered"),
        // Even the accounts that were inserted first are gone.
        (Defect::Unsynced, "an action is applied in part: []"),
    ];
}

/// The engine `Local` with or without a defect.
pub(crate) struct DefectiveEngine {
    pub(crate) inner: Local,
    pub(crate) defect: Option<Defect>,
}

static TRAITS: EngineTraits = EngineTraits {
    name: "defective",
    own_database: None,
    records_every_commit: true,
    uses_before: false,
    rolls_back_for_good: false,
};

#[async_trait]
impl Engine for DefectiveEngine {
    fn traits(&self) -> &'static EngineTraits {
        &TRAITS
    }

    fn catalog(&self) -> &dyn Catalog {
        self.inner.catalog()
    }

    fn plain(&self) -> Option<&Arc<dyn DocumentStore>> {
        self.inner.plain()
    }

    async fn flush(&self) -> Result<()> {
        self.inner.flush().await
    }

    async fn forget_outcomes_before(&self, moment: DateTime) -> Result<u64> {
        self.inner.forget_outcomes_before(moment).await
    }

    async fn begin(&self, deadline: Duration) -> Result<Start> {
        self.inner.begin(deadline).await
    }

    async fn commit(&self, mut writes: WriteSet) -> Result<CommitTimestamp> {
        match self.defect {
            Some(Defect::LostTicket) => writes.ticket = None,
            Some(Defect::HalfABatch) => {
                let second = writes.writes.split_off(writes.writes.len() / 2);
                let rest =
                    AtomicBatch { writes: second, ticket: writes.ticket.take(), ..AtomicBatch::new(writes.read_at) };
                self.inner.commit(writes).await?;
                return self.inner.commit(rest).await;
            }
            Some(Defect::UnticketedUpdate | Defect::Unsynced) | None => {}
        }
        self.inner.commit(writes).await
    }

    async fn outcome(&self, id: TransactionId) -> Result<Outcome> {
        self.inner.outcome(id).await
    }
}
