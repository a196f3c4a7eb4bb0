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
use handfast_store::{Clock, Error as StoreError, Namespace, Result as StoreResult, Snapshot, notation};

use self::lines::{Claimed, Lines};
use crate::{Claims, Place};

mod lines;
#[cfg(test)]
mod tests;

/// Documents that a transaction waits for at most. One that wrote more waits for the one that it was refused.
const WANTED_MAX: usize = 16;

/// Knows what has been committed.
#[async_trait]
pub(crate) trait Newest: Send + Sync {
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
pub(crate) struct Table {
    clock: Arc<dyn Clock>,
    lines: Mutex<Lines>,
}

/// One transaction's claims.
pub(crate) struct Holder {
    table: Arc<Table>,
    newest: Arc<dyn Newest>,
    number: u64,
    deadline: Duration,
    /// What it holds, or waits for.
    places: Mutex<Vec<Place>>,
    /// What it could not have.
    refused: Mutex<Option<Place>>,
}

impl Table {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Table { clock, lines: Mutex::default() }
    }

    pub(crate) fn holder(self: &Arc<Self>, newest: Arc<dyn Newest>, deadline: Duration) -> Holder {
        let number = lock(&self.lines).number();
        let (places, refused) = Default::default();
        Holder { table: Arc::clone(self), newest, number, deadline, places, refused }
    }
}

pub(crate) fn place(namespace: &Namespace, id: RawBsonRef<'_>) -> Place {
    (namespace.clone(), key::encoded(id))
}

impl Holder {
    /// Claims documents before the transaction begins, as soon as none of them is another's.
    pub(crate) async fn reserve(&self, mut wanted: Vec<Place>) {
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
            return Err(claimed(namespace, id));
        }
        if self.newest.is_unchanged(namespace, id, seen, snapshot).await? {
            return Ok(());
        }
        *lock(&self.refused) = Some(place(namespace, id));
        Err(conflict(namespace, id, "it was changed since the transaction began"))
    }

    fn try_claim(&self, namespace: &Namespace, id: RawBsonRef<'_>) -> bool {
        self.enter(place(namespace, id))
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
