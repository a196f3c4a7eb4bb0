//! How the store is changed: each request becomes operations of the committer.

pub(crate) mod atomic;
pub(crate) mod change;
pub(crate) mod collections;
pub(crate) mod expiry;
pub(crate) mod indexes;
pub(crate) mod insert;
pub(crate) mod removal;
pub(crate) mod target;

use handfast_store::{Durability, Result as StoreResult};

use crate::committer::Answer;
use crate::store::EmbeddedStore;

impl EmbeddedStore {
    /// Ends a request whose steps were answered once applied: waits until all of it is as durable as was asked for.
    /// This is done after a refusal too, as the refusal may tell of something that is not synced yet.
    pub(crate) async fn settle(&self, durability: Durability) -> StoreResult<()> {
        self.inner.committer.barrier(Answer::from(durability)).await
    }
}
