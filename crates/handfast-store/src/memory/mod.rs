//! A simple and exact store in memory. It is the model that other backends are compared with, and the store for tests.
//!
//! The whole state is one value made of persistent maps: a copy costs a few pointers. A snapshot is such a copy. A write
//! copies the state, changes the copy, and replaces the state with it if nothing was refused:
//!
//! ```text
//! state ── copy ──> changed ── all checks passed? ──> state      (else the copy is dropped, and nothing happened)
//!   `──── snapshots and cursors keep their copy
//! ```
//!
//! Writes hold one lock and so run one after the other; reads hold it while they copy. There is no planner:
//! besides `_id`, an index is used only for a hint, and to enforce uniqueness. Documents are in the order of
//! their `_id`. The store is neither durable nor fast with many documents.

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

/// The default limit on the size of all documents, so that a test that leaks documents fails instead of using up the memory.
pub const DOCUMENT_BYTES_TOTAL_MAX: u64 = 1 << 30;
/// The number of deletions that a store remembers to find conflicts. A commit whose snapshot is older than a forgotten one
/// conflicts.
pub const DELETIONS_KEPT_MAX: usize = 100_000;
/// The number of document versions that a store remembers to find out whether a query of a batch would have another result now. A
/// batch whose snapshot is older than a forgotten one conflicts.
pub const VERSIONS_KEPT_MAX: usize = 10_000;

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
    /// Creates an empty store.
    pub fn new(sources: Sources) -> Self {
        MemoryStore::with_bytes_max(sources, DOCUMENT_BYTES_TOTAL_MAX)
    }

    /// Creates an empty store that holds at most this many bytes of documents.
    pub fn with_bytes_max(sources: Sources, bytes_max: u64) -> Self {
        MemoryStore { shared: Arc::new(Shared { sources, bytes_max, state: RwLock::default() }) }
    }

    fn sources(&self) -> &Sources {
        &self.shared.sources
    }

    /// Returns the current state. A panic of another thread cannot leave it half changed, as it is replaced as a whole.
    fn state(&self) -> State {
        self.shared.state.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Applies all changes of a function to the state in one step, or none if it fails.
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
