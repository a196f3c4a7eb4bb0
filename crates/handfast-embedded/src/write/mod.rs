//! How the store is changed: each request becomes operations of the committer.

pub(crate) mod atomic;
pub(crate) mod build;
pub(crate) mod change;
pub(crate) mod collections;
pub(crate) mod expiry;
pub(crate) mod indexes;
pub(crate) mod insert;
pub(crate) mod judge;
pub(crate) mod removal;
#[cfg(test)]
mod step_tests;
pub(crate) mod target;
#[cfg(test)]
mod tests;
pub(crate) mod ticketed;

use handfast_store::{Durability, Error as StoreError, Result as StoreResult};

use crate::committer::Answer;
use crate::store::EmbeddedStore;

/// The error of a request, some steps of which may have been applied before: they are not synced, or it is not known
/// whether they are.
fn after_steps(error: StoreError, stepped: bool) -> StoreError {
    if stepped { error.in_doubt() } else { error }
}

impl EmbeddedStore {
    /// Ends a request whose steps were answered once applied: waits until all of it is as durable as was asked for.
    /// This is done after a refusal too, as the refusal may tell of something that is not synced yet.
    pub(crate) async fn settle(&self, durability: Durability) -> StoreResult<()> {
        self.inner.committer.barrier(Answer::from(durability)).await
    }
}
