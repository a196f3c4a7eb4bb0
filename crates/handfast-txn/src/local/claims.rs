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
use handfast_mql::{Code, key};
use handfast_store::{AtomicStore, Clock, Error as StoreError, Namespace, Result as StoreResult, Snapshot, notation};

use self::lines::{Claimed, Lines};
use crate::{Claims, Place};

mod lines;
#[cfg(test)]
mod tests;

/// Documents that a transaction waits for at most. One that wrote more waits for the one that it was refused.
const WANTED_MAX: usize = 16;

/// The claims of all open transactions.
pub(super) struct Table {
    clock: Arc<dyn Clock>,
    lines: Mutex<Lines>,
}

/// One transaction's claims.
pub(super) struct Holder {
    table: Arc<Table>,
    store: Arc<dyn AtomicStore>,
    number: u64,
    deadline: Duration,
    /// What it holds, or waits for.
    places: Mutex<Vec<Place>>,
    /// What it could not have.
    refused: Mutex<Option<Place>>,
}

impl Table {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Table { clock, lines: Mutex::default() }
    }

    pub(super) fn holder(self: &Arc<Self>, store: Arc<dyn AtomicStore>, deadline: Duration) -> Holder {
        let number = lock(&self.lines).number();
        let (places, refused) = Default::default();
        Holder { table: Arc::clone(self), store, number, deadline, places, refused }
    }
}

fn place(namespace: &Namespace, id: RawBsonRef<'_>) -> Place {
    let mut encoded = Vec::new();
    key::encode(id, &mut encoded);
    (namespace.clone(), encoded)
}

impl Holder {
    /// Claims documents before the transaction begins, as soon as none of them is another's.
    pub(super) async fn reserve(&self, mut wanted: Vec<Place>) {
        wanted.sort_unstable();
        wanted.dedup();
        lock(&self.places).clone_from(&wanted);
        let now = self.table.clock.elapsed();
        let comes = lock(&self.table.lines).stand_in_line(wanted, self.number, self.deadline, now);
        if let Some(comes) = comes {
            // An error would mean that it was sent away, which nobody is.
            let _ = comes.await;
        }
    }

    /// Whether it has the document now.
    fn enter(&self, place: Place) -> bool {
        let now = self.table.clock.elapsed();
        let claimed = lock(&self.table.lines).claim(&place, self.number, self.deadline, now);
        match claimed {
            Claimed::New => lock(&self.places).push(place),
            Claimed::Held => {}
            Claimed::Refused => *lock(&self.refused) = Some(place),
        }
        claimed != Claimed::Refused
    }
}

#[async_trait]
impl Claims for Holder {
    async fn claim(
        &self,
        namespace: &Namespace,
        id: RawBsonRef<'_>,
        seen: Option<&RawDocument>,
        snapshot: &dyn Snapshot,
    ) -> StoreResult<()> {
        if !self.enter(place(namespace, id)) {
            return Err(conflict(namespace, id, "another open transaction has written it"));
        }
        if snapshot.is_unchanged(namespace, id) {
            return Ok(());
        }
        let now = self.store.snapshot().await?.get(namespace, id).await?;
        if now.as_deref().map(RawDocument::as_bytes) != seen.map(RawDocument::as_bytes) {
            *lock(&self.refused) = Some(place(namespace, id));
            return Err(conflict(namespace, id, "it was changed since the transaction began"));
        }
        Ok(())
    }

    fn wanted(&self) -> Vec<Place> {
        let Some(refused) = lock(&self.refused).clone() else { return Vec::new() };
        let mut wanted = lock(&self.places).clone();
        if wanted.len() >= WANTED_MAX {
            wanted.clear();
        }
        wanted.push(refused);
        wanted
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let places = std::mem::take(&mut *lock(&self.places));
        lock(&self.table.lines).leave(&places, self.number, self.table.clock.elapsed());
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
