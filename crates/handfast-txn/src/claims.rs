//! Who is going to write which document, and who waits for it.
//!
//! ```text
//! document A    held by 7    waiting: 9, 12         7 ends: 9 also wants B, so 12 holds A
//! document B    held by 8    waiting: 9             8 ends: 9 waits for A, until nobody may pass it any more
//! ```
//!
//! Only transactions that have not begun wait, for all their documents at once and holding none: there is no circle of those
//! who wait for each other.

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

/// Documents that a transaction waits for at most. One that wrote more waits for the one that it was refused.
const WANTED_MAX: usize = 16;

/// Knows what has been committed.
#[async_trait]
pub(crate) trait ChangeDetector: Send + Sync {
    /// Whether a document is still what a snapshot has, as far as that can be told; `seen` is what it has there.
    ///
    /// # Errors
    /// Those of the store.
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

/// One transaction's claims.
pub(crate) struct TransactionClaims {
    table: Arc<ClaimTable>,
    changes: Arc<dyn ChangeDetector>,
    number: u64,
    deadline: Duration,
    /// What it holds, or waits for.
    documents: Mutex<Vec<DocumentKey>>,
    /// What it could not have.
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
    /// Claims documents before the transaction begins, as soon as none of them is another's.
    pub(crate) async fn wait_and_claim(&self, mut wanted: Vec<DocumentKey>) {
        wanted.sort_unstable();
        wanted.dedup();
        lock(&self.documents).clone_from(&wanted);
        let now = self.table.clock.elapsed();
        let comes = lock(&self.table.queues).claim_or_enqueue(wanted, self.number, self.deadline, now);
        if let Some(comes) = comes {
            // An error would mean that it was sent away, which nobody is.
            let _ = comes.await;
        }
    }

    /// Whether it has the document now.
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

/// The error for a document that another transaction has claimed.
pub(crate) fn claimed(namespace: &Namespace, id: RawBsonRef<'_>) -> StoreError {
    conflict(namespace, id, "another open transaction has written it")
}

fn conflict(namespace: &Namespace, id: RawBsonRef<'_>, why: &str) -> StoreError {
    let id = notation::value(id);
    let text = format!("write conflict: the document with _id {id} in {namespace} cannot be written: {why}");
    StoreError::command(Code::WriteConflict, text)
}

/// Nothing that holds one of these locks can panic half way.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
