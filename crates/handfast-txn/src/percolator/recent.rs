//! What this process has committed last: a transaction that began before that, and is about to write the same document, learns it at
//! its write. At its commit it would have come back with nothing after as many round trips as a commit takes.

use std::sync::Mutex;

use async_trait::async_trait;
use bson::{RawBsonRef, RawDocument};
use handfast_store::{AtomicBatch, Namespace, Result as StoreResult, Snapshot};

use super::core::{Bounded, lock};
use super::row::Timestamp;
use crate::Place;
use crate::claims::{Newest, place};

/// Documents that are remembered: some 200 bytes for each, and twice its `_id`.
const DOCUMENTS_MAX: usize = 10_000;
/// Documents of one commit that are remembered: one of more is not among those that many take turns at.
const DOCUMENTS_OF_COMMIT_MAX: usize = 100;

/// Longer `_id`s are not remembered.
const ID_BYTES_MAX: usize = 1024;

/// When documents were committed last.
pub(super) struct Recent(Mutex<Bounded<Place, Timestamp>>);

impl Default for Recent {
    fn default() -> Self {
        Recent(Mutex::new(Bounded::new(DOCUMENTS_MAX)))
    }
}

impl Recent {
    /// The documents of a commit.
    pub(super) fn places(writes: &AtomicBatch) -> Vec<Place> {
        let writes = writes.writes.iter().take(DOCUMENTS_OF_COMMIT_MAX);
        let places = writes.map(|write| place(&write.namespace, write.id.as_raw_bson_ref()));
        places.filter(|(_, id)| id.len() <= ID_BYTES_MAX).collect()
    }

    /// It has committed.
    pub(super) fn note(&self, places: Vec<Place>, at: Timestamp) {
        let mut recent = lock(&self.0);
        places.into_iter().for_each(|place| recent.insert(place, at));
    }
}

#[async_trait]
impl Newest for Recent {
    async fn is_unchanged(
        &self,
        namespace: &Namespace,
        id: RawBsonRef<'_>,
        _seen: Option<&RawDocument>,
        snapshot: &dyn Snapshot,
    ) -> StoreResult<bool> {
        let at = lock(&self.0).get(&place(namespace, id)).copied();
        Ok(at.is_none_or(|at| at.0 <= snapshot.timestamp().0))
    }
}
