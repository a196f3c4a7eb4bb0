//! The write claims of open transactions, and the queues of transactions that wait for them.
//!
//! ```text
//! document A    held by 7    waiting: 9, 12         7 ends: 9 also wants B, so 12 gets A
//! document B    held by 8    waiting: 9             8 ends: 9 waits for A, until no other transaction may overtake it
//! ```
//!
//! Only transactions that have not begun wait. They wait for all their documents at once and hold none meanwhile, so there are no deadlocks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bson::{RawBsonRef, RawDocument};
use handfast_mql::Code;
use handfast_store::{Clock, Error as StoreError, Namespace, Result as StoreResult, Snapshot, notation};

use self::queues::{ClaimQueues, ClaimResult};
use crate::{Claims, DocumentKey};

mod queues;
#[cfg(test)]
mod tests;

/// The most documents that a transaction waits for. A transaction that wrote more waits only for the document that it was refused.
const WANTED_MAX: usize = 16;

/// Tells whether a document has changed since a snapshot.
#[async_trait]
pub(crate) trait ChangeDetector: Send + Sync {
    /// Returns `false` if a document is known to differ from `seen`, its state in the snapshot.
    async fn is_unchanged(
        &self,
        namespace: &Namespace,
        id: RawBsonRef<'_>,
        seen: Option<&RawDocument>,
        snapshot: &dyn Snapshot,
    ) -> StoreResult<bool>;
}

/// The claims of all open transactions.
pub(crate) struct ClaimTable {
    clock: Arc<dyn Clock>,
    queues: Mutex<ClaimQueues>,
}

/// The claims of one transaction.
pub(crate) struct TransactionClaims {
    table: Arc<ClaimTable>,
    changes: Arc<dyn ChangeDetector>,
    number: u64,
    deadline: Duration,
    /// The documents that it holds or waits for.
    documents: Mutex<Vec<DocumentKey>>,
    /// The document that it was refused.
    refused: Mutex<Option<DocumentKey>>,
}

impl ClaimTable {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        ClaimTable { clock, queues: Mutex::default() }
    }

    pub(crate) fn register(
        self: &Arc<Self>,
        changes: Arc<dyn ChangeDetector>,
        deadline: Duration,
    ) -> TransactionClaims {
        let number = lock(&self.queues).number();
        let (documents, refused) = Default::default();
        TransactionClaims { table: Arc::clone(self), changes, number, deadline, documents, refused }
    }
}

impl TransactionClaims {
    /// Waits until no other transaction has a claim on any of these documents, and claims them all.
    pub(crate) async fn wait_and_claim(&self, mut wanted: Vec<DocumentKey>) {
        wanted.sort_unstable();
        wanted.dedup();
        lock(&self.documents).clone_from(&wanted);
        let now = self.table.clock.elapsed();
        let comes = lock(&self.table.queues).claim_or_enqueue(wanted, self.number, self.deadline, now);
        if let Some(comes) = comes {
            // The sender is never dropped while this transaction waits, so there is no error.
            let _ = comes.await;
        }
    }

    /// Claims a document without waiting. Returns `false` if another transaction has it.
    fn try_enter(&self, document: DocumentKey) -> bool {
        let now = self.table.clock.elapsed();
        let claimed = lock(&self.table.queues).claim(&document, self.number, self.deadline, now);
        match claimed {
            ClaimResult::New => lock(&self.documents).push(document),
            ClaimResult::Held => {}
            ClaimResult::Refused => *lock(&self.refused) = Some(document),
        }
        claimed != ClaimResult::Refused
    }
}

#[async_trait]
impl Claims for TransactionClaims {
    async fn claim(
        &self,
        namespace: &Namespace,
        id: RawBsonRef<'_>,
        seen: Option<&RawDocument>,
        snapshot: &dyn Snapshot,
    ) -> StoreResult<()> {
        if !self.try_enter(DocumentKey::new(namespace, id)) {
            return Err(claimed(namespace, id));
        }
        if self.changes.is_unchanged(namespace, id, seen, snapshot).await? {
            return Ok(());
        }
        *lock(&self.refused) = Some(DocumentKey::new(namespace, id));
        Err(conflict(namespace, id, "it was changed since the transaction began"))
    }

    fn try_claim(&self, namespace: &Namespace, id: RawBsonRef<'_>) -> bool {
        self.try_enter(DocumentKey::new(namespace, id))
    }

    fn wanted(&self) -> Vec<DocumentKey> {
        let Some(refused) = lock(&self.refused).clone() else { return Vec::new() };
        let mut wanted = lock(&self.documents).clone();
        if wanted.len() >= WANTED_MAX {
            wanted.clear();
        }
        wanted.push(refused);
        wanted
    }
}

impl Drop for TransactionClaims {
    fn drop(&mut self) {
        let documents = std::mem::take(&mut *lock(&self.documents));
        lock(&self.table.queues).leave(&documents, self.number, self.table.clock.elapsed());
    }
}

/// Returns the error for a document that another transaction has claimed.
pub(crate) fn claimed(namespace: &Namespace, id: RawBsonRef<'_>) -> StoreError {
    conflict(namespace, id, "another open transaction has written it")
}

fn conflict(namespace: &Namespace, id: RawBsonRef<'_>, why: &str) -> StoreError {
    let id = notation::value(id);
    let text = format!("write conflict: the document with _id {id} in {namespace} cannot be written: {why}");
    StoreError::command(Code::WriteConflict, text)
}

/// Locks a mutex, also a poisoned one: no code that holds it can panic in the middle of a change.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
