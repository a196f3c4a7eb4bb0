//! A store in memory: simple and exact. It is the model that other backends are compared with, and the store for tests.
//!
//! The whole state is one value made of persistent maps: a copy costs a few pointers. A snapshot is such a copy. A write
//! copies the state, changes its copy, and puts it in place of the old one if nothing was refused:
//!
//! ```text
//! state ── copy ──> changed ── all checks passed? ──> state      (else the copy is dropped, and nothing happened)
//!   `──── snapshot, cursor: keep theirs for as long as they like
//! ```
//!
//! Writes hold one lock, so that they happen one after the other; reads hold it while they copy. There is no planner:
//! besides `_id`, an index is used only under a hint, and to enforce what it promises. Documents are in the order of
//! their `_id`.
//!
//! What it is not: fast with many documents, or durable.

mod atomic;
mod candidates;
mod catalog;
mod state;
mod store;
#[cfg(test)]
mod tests;
mod ticketed;
mod write;

use std::sync::{Arc, PoisonError, RwLock};

use handfast_mql::Code;

use self::state::State;
use crate::{Error, Result, Sources};

/// Bytes of documents that a store holds unless told otherwise: a test that leaks should fail, not the machine.
pub const DOCUMENT_BYTES_TOTAL_MAX: u64 = 1 << 30;
/// Deletions that a store remembers to find conflicts with them. Beyond, a commit whose snapshot is older than what was
/// forgotten conflicts, to be on the safe side.
pub const DELETIONS_KEPT_MAX: usize = 100_000;
/// States of documents that a store remembers to tell whether a query would answer differently now. Beyond, a batch with
/// such a query whose snapshot is older than what was forgotten conflicts.
pub const IMAGES_KEPT_MAX: usize = 10_000;

/// A store in memory. Clones share their documents.
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

struct Shared {
    sources: Sources,
    bytes_max: u64,
    state: RwLock<State>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new(sources: Sources) -> Self {
        MemoryStore::with_bytes_max(sources, DOCUMENT_BYTES_TOTAL_MAX)
    }

    /// An empty store that refuses to hold more bytes of documents than this.
    pub fn with_bytes_max(sources: Sources, bytes_max: u64) -> Self {
        MemoryStore { shared: Arc::new(Shared { sources, bytes_max, state: RwLock::default() }) }
    }

    fn sources(&self) -> &Sources {
        &self.shared.sources
    }

    /// The state as it is now. A panic of another thread cannot have left it half changed: it is replaced as a whole.
    fn state(&self) -> State {
        self.shared.state.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the state in one step: all that the function does, or nothing if it fails.
    fn write<T>(&self, change: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        let mut current = self.shared.state.write().unwrap_or_else(PoisonError::into_inner);
        let mut changed = current.clone();
        changed.begin();
        let result = change(&mut changed)?;
        if changed.bytes > self.shared.bytes_max && changed.bytes > current.bytes {
            let text = format!("the store in memory is full: it holds at most {} bytes", self.shared.bytes_max);
            return Err(Error::command(Code::OutOfDiskSpace, text));
        }
        *current = changed;
        Ok(result)
    }
}
