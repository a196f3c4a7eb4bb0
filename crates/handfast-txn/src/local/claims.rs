//! Who is going to write which document, and who waits for it.
//!
//! ```text
//! document A    held by 7    waiting: 9, 12          7 ends: 9 holds it, without anybody in between
//! document B    held by 8
//! ```
//!
//! Only transactions that have not begun wait, and they claim in the order of the documents' keys: there is no circle of
//! those who wait for each other.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bson::{RawBson, RawBsonRef, RawDocument};
use handfast_mql::{Code, key};
use handfast_store::{AtomicStore, Clock, Error as StoreError, Namespace, Result as StoreResult, Snapshot, notation};
use tokio::sync::oneshot;

use crate::Claims;

#[cfg(test)]
mod tests;

type Place = (Namespace, Vec<u8>);

/// The claims of all open transactions.
pub(super) struct Table {
    clock: Arc<dyn Clock>,
    claims: Mutex<Claimed>,
}

#[derive(Default)]
struct Claimed {
    by_place: HashMap<Place, Claim>,
    last_holder: u64,
}

struct Claim {
    holder: u64,
    deadline: Duration,
    waiting: VecDeque<Waiter>,
}

struct Waiter {
    holder: u64,
    deadline: Duration,
    /// Closed if it has given up.
    granted: oneshot::Sender<()>,
}

/// One transaction's claims.
pub(super) struct Holder {
    table: Arc<Table>,
    store: Arc<dyn AtomicStore>,
    number: u64,
    deadline: Duration,
    /// What it holds, or waits for.
    places: Mutex<Vec<Place>>,
}

/// What came of an attempt to claim.
enum Entered {
    New,
    Held,
    Refused,
}

impl Table {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Table { clock, claims: Mutex::default() }
    }

    pub(super) fn holder(self: &Arc<Self>, store: Arc<dyn AtomicStore>, deadline: Duration) -> Holder {
        let mut claims = lock(&self.claims);
        claims.last_holder += 1;
        let number = claims.last_holder;
        drop(claims);
        Holder { table: Arc::clone(self), store, number, deadline, places: Mutex::default() }
    }
}

fn place(namespace: &Namespace, id: RawBsonRef<'_>) -> Place {
    let mut encoded = Vec::new();
    key::encode(id, &mut encoded);
    (namespace.clone(), encoded)
}

impl Claimed {
    fn enter(&mut self, place: &Place, holder: u64, deadline: Duration, now: Duration) -> Entered {
        match self.by_place.entry(place.clone()) {
            Entry::Vacant(free) => {
                free.insert(Claim { holder, deadline, waiting: VecDeque::new() });
            }
            Entry::Occupied(held) if held.get().holder == holder => return Entered::Held,
            Entry::Occupied(held) if held.get().deadline > now => return Entered::Refused,
            Entry::Occupied(mut expired) => {
                let claim = expired.get_mut();
                (claim.holder, claim.deadline) = (holder, deadline);
            }
        }
        Entered::New
    }

    /// Gives a claim up, to whoever has waited longest.
    fn leave(&mut self, place: &Place, holder: u64) {
        // It may have been taken over after the deadline.
        let Some(claim) = self.by_place.get_mut(place).filter(|claim| claim.holder == holder) else { return };
        while let Some(next) = claim.waiting.pop_front() {
            if next.granted.send(()).is_ok() {
                (claim.holder, claim.deadline) = (next.holder, next.deadline);
                return;
            }
        }
        self.by_place.remove(place);
    }
}

impl Holder {
    fn enter(&self, place: &Place) -> Entered {
        let mut claims = lock(&self.table.claims);
        let entered = claims.enter(place, self.number, self.deadline, self.table.clock.elapsed());
        if matches!(entered, Entered::New) {
            lock(&self.places).push(place.clone());
        }
        entered
    }

    /// Claims documents before the transaction begins, each as soon as those who were there before are gone.
    pub(super) async fn reserve(&self, wanted: &[(Namespace, RawBson)]) {
        let mut wanted: Vec<Place> =
            wanted.iter().map(|(namespace, id)| place(namespace, id.as_raw_bson_ref())).collect();
        wanted.sort_unstable();
        for place in wanted {
            if let Some(granted) = self.stand_in_line(&place) {
                // An error would mean that the claim went away without a successor, which none does.
                let _ = granted.await;
            }
        }
    }

    /// Claims a document; if somebody else has it, says how to learn that it is one's own.
    fn stand_in_line(&self, place: &Place) -> Option<oneshot::Receiver<()>> {
        let mut claims = lock(&self.table.claims);
        match claims.enter(place, self.number, self.deadline, self.table.clock.elapsed()) {
            Entered::Held => return None,
            Entered::New | Entered::Refused => lock(&self.places).push(place.clone()),
        }
        let claim = claims.by_place.get_mut(place).filter(|claim| claim.holder != self.number)?;
        let (granted, comes) = oneshot::channel();
        claim.waiting.retain(|waiter| !waiter.granted.is_closed());
        claim.waiting.push_back(Waiter { holder: self.number, deadline: self.deadline, granted });
        Some(comes)
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
        match self.enter(&place(namespace, id)) {
            Entered::Refused => return Err(conflict(namespace, id, "another open transaction has written it")),
            Entered::Held | Entered::New if snapshot.is_unchanged(namespace, id) => return Ok(()),
            Entered::Held | Entered::New => {}
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
            claims.leave(&place, self.number);
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
