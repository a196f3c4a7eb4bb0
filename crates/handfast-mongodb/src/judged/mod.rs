//! A server that keeps documents, but does not judge them as MongoDB does: here the requests are judged by handfast-mql.
//!
//! ```text
//! update {a: {$gt: 5}} {$inc: {a: 1}}
//!
//!   turn        nobody else of this process writes
//!   image       the documents that it may be about, with their indexes, in a store in memory
//!   judge       the update on the image
//!   write back  each document that has changed, whole, by its `_id`
//! ```
//!
//! That is for servers without atomic updates ([`Capability::AtomicUpdates`]): two updates at the same time lose one of
//! them, so that all writes have to take turns, and then it costs little more to have them right as well. FerretDB 1 is
//! one: of MongoDB's language it has a part, and passes over some of the rest in silence.
//!
//! It is right as long as nobody else writes to the server: no other process, and no other store of this one. Whoever
//! connects has to say so ([`ConnectOptions::sole_writer`]). What a crash leaves is a prefix of the documents of a
//! statement, as on any store.
//!
//! [`ConnectOptions::sole_writer`]: crate::ConnectOptions::sole_writer
//! [`Capability::AtomicUpdates`]: crate::Capability::AtomicUpdates

mod contract;
mod define;
mod image;
mod write;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use handfast_mql::Code;
use handfast_store::{Applied, DocumentStore, ErrorClass, IndexSpec, Namespace, Result, Sources};
use tokio::sync::OwnedMutexGuard;

use crate::direct::DirectStore;

/// How long nobody writes after an answer got lost: the server may still be at it. It gives up with the connection, unless
/// it is writing already, which takes it milliseconds.
const DOUBT_PAUSE: Duration = Duration::from_secs(1);

/// A store that judges every request itself. See the module's documentation.
#[derive(Clone)]
pub(crate) struct JudgedStore {
    inner: Arc<Inner>,
}

struct Inner {
    direct: DirectStore,
    sources: Sources,
    turn: Arc<tokio::sync::Mutex<()>>,
    indexes: Mutex<KnownIndexes>,
}

/// The indexes of collections, as long as nobody changes any.
#[derive(Default)]
struct KnownIndexes {
    of: HashMap<Namespace, Arc<Vec<IndexSpec>>>,
    /// How often they were forgotten: what was asked before, may be out of date.
    forgotten: u64,
}

impl JudgedStore {
    pub(crate) fn new(direct: DirectStore, sources: Sources) -> Self {
        let inner = Inner { direct, sources, turn: Arc::default(), indexes: Mutex::default() };
        JudgedStore { inner: Arc::new(inner) }
    }

    /// Runs a write when it is its turn, to its end even if nobody waits for it any more.
    async fn in_turn<T: Send + 'static>(&self, write: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
        let turn = Arc::clone(&self.inner.turn).lock_owned().await;
        let run = tokio::spawn(async move {
            let result = write.await;
            let is_in_doubt = result.as_ref().err().is_some_and(|error| error.applied() == Applied::Maybe);
            (result, is_in_doubt.then_some(turn))
        });
        match run.await {
            Ok((result, turn)) => {
                if let Some(turn) = turn {
                    pause(turn);
                }
                result
            }
            Err(_) => Err(crate::error::incomplete("the write broke off", crate::error::Effect::Several)),
        }
    }
}

/// Gives the turn back when nothing can be under way any more.
fn pause(turn: OwnedMutexGuard<()>) {
    tokio::spawn(async move {
        tokio::time::sleep(DOUBT_PAUSE).await;
        drop(turn);
    });
}

impl Inner {
    /// The indexes of a collection; none of one that does not exist.
    async fn indexes(&self, namespace: &Namespace) -> Result<Arc<Vec<IndexSpec>>> {
        let forgotten = {
            let known = self.known_indexes();
            if let Some(known) = known.of.get(namespace) {
                return Ok(Arc::clone(known));
            }
            known.forgotten
        };
        let listed = match self.direct.list_indexes(namespace).await {
            Ok(listed) => Arc::new(listed.into_iter().map(|info| info.spec).collect::<Vec<_>>()),
            Err(error) if error.code() == Code::NamespaceNotFound && error.class() == ErrorClass::Command => {
                return Ok(Arc::default());
            }
            Err(error) => return Err(error),
        };
        let mut known = self.known_indexes();
        if known.forgotten == forgotten {
            known.of.insert(namespace.clone(), Arc::clone(&listed));
        }
        Ok(listed)
    }

    /// Whether an index beside the one on `_id` looks at every write.
    async fn has_indexes(&self, namespace: &Namespace) -> Result<bool> {
        Ok(self.indexes(namespace).await?.iter().any(|index| !index.is_id()))
    }

    fn known_indexes(&self) -> std::sync::MutexGuard<'_, KnownIndexes> {
        self.indexes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Collections or indexes have changed, or may have.
    fn forget_indexes(&self) {
        let mut known = self.known_indexes();
        known.of.clear();
        known.forgotten += 1;
    }
}
