//! Who is going to write which document.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bson::{RawBsonRef, RawDocument};
use handfast_mql::{Code, key};
use handfast_store::{AtomicStore, Clock, Error as StoreError, Namespace, Result as StoreResult, Snapshot, notation};
use tokio::sync::Notify;

use crate::Claims;

type Place = (Namespace, Vec<u8>);

/// The claims of all open transactions.
pub(super) struct Table {
    clock: Arc<dyn Clock>,
    claims: Mutex<Claimed>,
}

#[derive(Default)]
struct Claimed {
    by_place: HashMap<Place, Claim>,
    /// Where somebody waits until a claim is given up.
    queues: HashMap<Place, Arc<Notify>>,
    last_holder: u64,
}

#[derive(Clone, Copy)]
struct Claim {
    holder: u64,
    deadline: Duration,
}

/// One transaction's claims.
pub(super) struct Holder {
    table: Arc<Table>,
    store: Arc<dyn AtomicStore>,
    snapshot: Arc<dyn Snapshot>,
    number: u64,
    deadline: Duration,
    places: Mutex<Vec<Place>>,
}

impl Table {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Table { clock, claims: Mutex::default() }
    }

    /// For a transaction that reads from a snapshot.
    pub(super) fn holder(
        self: &Arc<Self>,
        store: Arc<dyn AtomicStore>,
        snapshot: Arc<dyn Snapshot>,
        deadline: Duration,
    ) -> Holder {
        let mut claims = lock(&self.claims);
        claims.last_holder += 1;
        let number = claims.last_holder;
        drop(claims);
        Holder { table: Arc::clone(self), store, snapshot, number, deadline, places: Mutex::default() }
    }

    /// Waits until the claim on a document is given up: first come, first served. `false` at once if there is none.
    pub(super) async fn released(&self, namespace: &Namespace, id: RawBsonRef<'_>) -> bool {
        let place = place(namespace, id);
        let queue = {
            let mut claims = lock(&self.claims);
            let now = self.clock.elapsed();
            if claims.by_place.get(&place).is_none_or(|held| held.deadline <= now) {
                return false;
            }
            Arc::clone(claims.queues.entry(place.clone()).or_default())
        };
        let waiting = Waiting { table: self, place, queue };
        waiting.queue.notified().await;
        true
    }
}

/// A place in a queue.
struct Waiting<'t> {
    table: &'t Table,
    place: Place,
    queue: Arc<Notify>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut claims = lock(&self.table.claims);
        // The table's and this one's: nobody else waits there, and whoever comes needs the lock.
        if Arc::strong_count(&self.queue) == 2 {
            claims.queues.remove(&self.place);
        }
    }
}

fn place(namespace: &Namespace, id: RawBsonRef<'_>) -> Place {
    let mut encoded = Vec::new();
    key::encode(id, &mut encoded);
    (namespace.clone(), encoded)
}

impl Holder {
    /// Enters a claim, unless another transaction's is in the way. `true` if it is new.
    fn enter(&self, place: &Place) -> Result<bool, ()> {
        let mut claims = lock(&self.table.claims);
        let claim = Claim { holder: self.number, deadline: self.deadline };
        match claims.by_place.get(place) {
            Some(held) if held.holder == self.number => return Ok(false),
            Some(held) if held.deadline > self.table.clock.elapsed() => return Err(()),
            _ => {}
        }
        claims.by_place.insert(place.clone(), claim);
        Ok(true)
    }
}

#[async_trait]
impl Claims for Holder {
    async fn claim(&self, namespace: &Namespace, id: RawBsonRef<'_>, seen: Option<&RawDocument>) -> StoreResult<()> {
        let place = place(namespace, id);
        match self.enter(&place) {
            Err(()) => return Err(conflict(namespace, id, "another open transaction has written it")),
            Ok(false) => return Ok(()),
            Ok(true) => lock(&self.places).push(place),
        }
        if self.snapshot.is_unchanged(namespace, id) {
            return Ok(());
        }
        let now = self.store.snapshot().await?.get(namespace, id).await?;
        if now.as_deref().map(RawDocument::as_bytes) != seen.map(RawDocument::as_bytes) {
            return Err(conflict(namespace, id, "it was changed since the transaction began"));
        }
        Ok(())
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let mut claims = lock(&self.table.claims);
        for place in lock(&self.places).drain(..) {
            // It may have been taken over after the deadline.
            if claims.by_place.get(&place).is_some_and(|claim| claim.holder == self.number) {
                claims.by_place.remove(&place);
                if let Some(queue) = claims.queues.get(&place) {
                    queue.notify_one();
                }
            }
        }
    }
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

#[cfg(test)]
mod tests {
    use handfast_store::{MemoryStore, Sources};

    use super::*;

    #[tokio::test]
    async fn queues_are_there_as_long_as_somebody_waits() {
        let sources = Sources::seeded(1);
        let store: Arc<dyn AtomicStore> = Arc::new(MemoryStore::new(sources.clone()));
        let table = Arc::new(Table::new(sources.clock));
        let (namespace, id) = (Namespace::new("d", "c").unwrap(), RawBsonRef::Int32(1));
        assert!(!table.released(&namespace, id).await, "nobody has it");
        let snapshot = Arc::from(store.snapshot().await.unwrap());
        let holder = table.holder(store, snapshot, Duration::from_secs(60));
        holder.claim(&namespace, id, None).await.unwrap();
        let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(table.released(&namespace, id))).collect();
        for one in &mut waiting {
            assert!(tokio::time::timeout(Duration::from_millis(1), one).await.is_err());
        }
        drop(holder);
        // The first one had the turn and goes away: the next has it.
        drop(waiting.remove(0));
        assert!(waiting.remove(0).await);
        assert!(tokio::time::timeout(Duration::from_millis(1), waiting.remove(0)).await.is_err());
        let left = lock(&table.claims);
        assert!(left.queues.is_empty() && left.by_place.is_empty());
    }
}
