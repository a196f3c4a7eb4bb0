//! A store for servers that only keep documents: handfast-mql evaluates the requests in this process.
//!
//! ```text
//! update {a: {$gt: 5}} {$inc: {a: 1}}
//!
//!   lock        excludes other writes of this process
//!   copy        reads the documents that may match, with their indexes, into a store in memory
//!   evaluate    runs the update on the copy
//!   write back  replaces each changed document by its `_id`
//! ```
//!
//! Servers without atomic updates ([`Capability::AtomicUpdates`]) lose one of two concurrent updates, so all writes have to be
//! serialized; then it costs little more to evaluate them correctly as well. FerretDB 1 is such a server: it supports a part
//! of MongoDB's language and silently ignores some of the rest.
//!
//! The results are correct as long as no other process and no other store of this process writes to the server. The caller has
//! to confirm that with [`ConnectOptions::sole_writer`]. After a crash, a prefix of the documents of a statement is written, as
//! on any store.
//!
//! [`ConnectOptions::sole_writer`]: crate::ConnectOptions::sole_writer
//! [`Capability::AtomicUpdates`]: crate::Capability::AtomicUpdates

mod contract;
mod definitions;
mod working_copy;
mod write;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use handfast_mql::Code;
use handfast_store::{Applied, DocumentStore, ErrorClass, IndexSpec, Namespace, Result, Sources};
use tokio::sync::OwnedMutexGuard;

use crate::direct::DirectStore;

/// The pause of all writes after a lost answer. The server may still execute the write: it stops when the connection ends, or
/// finishes a write that has begun within milliseconds.
const UNKNOWN_OUTCOME_PAUSE: Duration = Duration::from_secs(1);

/// A store that evaluates every request itself. See the module's documentation.
#[derive(Clone)]
pub(crate) struct ClientSideStore {
    inner: Arc<Inner>,
}

struct Inner {
    direct: DirectStore,
    sources: Sources,
    lock: Arc<tokio::sync::Mutex<()>>,
    indexes: Mutex<KnownIndexes>,
}

/// A cache of the indexes of collections, which every definition clears.
#[derive(Default)]
struct KnownIndexes {
    of: HashMap<Namespace, Arc<Vec<IndexSpec>>>,
    /// The number of times the cache was cleared: a list read before that may be out of date.
    generation: u64,
}

impl ClientSideStore {
    pub(crate) fn new(direct: DirectStore, sources: Sources) -> Self {
        let inner = Inner { direct, sources, lock: Arc::default(), indexes: Mutex::default() };
        ClientSideStore { inner: Arc::new(inner) }
    }

    /// Runs a write while no other runs. The write goes on if the caller is dropped.
    async fn run_serially<T: Send + 'static>(
        &self,
        write: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let lock = Arc::clone(&self.inner.lock).lock_owned().await;
        let run = tokio::spawn(async move {
            let result = write.await;
            let is_unknown = result.as_ref().err().is_some_and(|error| error.applied() == Applied::Maybe);
            (result, is_unknown.then_some(lock))
        });
        match run.await {
            Ok((result, lock)) => {
                if let Some(lock) = lock {
                    release_later(lock);
                }
                result
            }
            Err(_) => Err(crate::error::incomplete("the write did not finish", crate::error::Effect::Several)),
        }
    }
}

/// Releases the lock when the server cannot be executing the write any more.
fn release_later(lock: OwnedMutexGuard<()>) {
    tokio::spawn(async move {
        tokio::time::sleep(UNKNOWN_OUTCOME_PAUSE).await;
        drop(lock);
    });
}

impl Inner {
    /// Returns the indexes of a collection; none if it does not exist.
    async fn indexes(&self, namespace: &Namespace) -> Result<Arc<Vec<IndexSpec>>> {
        let generation = {
            let known = self.known_indexes();
            if let Some(known) = known.of.get(namespace) {
                return Ok(Arc::clone(known));
            }
            known.generation
        };
        let listed = match self.direct.list_indexes(namespace).await {
            Ok(listed) => Arc::new(listed.into_iter().map(|info| info.spec).collect::<Vec<_>>()),
            Err(error) if error.code() == Code::NamespaceNotFound && error.class() == ErrorClass::Command => {
                return Ok(Arc::default());
            }
            Err(error) => return Err(error),
        };
        let mut known = self.known_indexes();
        if known.generation == generation {
            known.of.insert(namespace.clone(), Arc::clone(&listed));
        }
        Ok(listed)
    }

    /// Returns whether the collection has an index beside the one on `_id`.
    async fn has_indexes(&self, namespace: &Namespace) -> Result<bool> {
        Ok(self.indexes(namespace).await?.iter().any(|index| !index.is_id()))
    }

    fn known_indexes(&self) -> std::sync::MutexGuard<'_, KnownIndexes> {
        self.indexes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Clears the cache, because collections or indexes may have changed.
    fn forget_indexes(&self) {
        let mut known = self.known_indexes();
        known.of.clear();
        known.generation += 1;
    }
}
