//! Who is going to write which document.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bson::{RawBsonRef, RawDocument};
use handfast_mql::{Code, key};
use handfast_store::{AtomicStore, Clock, Error as StoreError, Namespace, Result as StoreResult, notation};

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
    number: u64,
    deadline: Duration,
    places: Mutex<Vec<Place>>,
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
        let mut encoded = Vec::new();
        key::encode(id, &mut encoded);
        let place = (namespace.clone(), encoded);
        match self.enter(&place) {
            Err(()) => return Err(conflict(namespace, id, "another open transaction has written it")),
            Ok(false) => return Ok(()),
            Ok(true) => lock(&self.places).push(place),
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
