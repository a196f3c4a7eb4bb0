//! A small reference engine with snapshot isolation, and faults that can be switched on.
//!
//! Each key has versions with the moments of their commits. A transaction reads at the moment of its begin, buffers its
//! writes, and commits if no other transaction has written its keys since (and, if serializable, none has written the keys
//! and ranges that it read).
//!
//! Each [`Fault`] is one that a real engine has had or could have. A judge that misses it here would also miss it in a real
//! engine.

mod fault;
mod transaction;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use handfast_history::Isolation;
use handfast_store::Random;

use self::transaction::ModelTransaction;
use crate::{Cell, Client, ClientTransaction, Failure};

pub use fault::Fault;

/// The number of commits that a snapshot of [`Fault::StaleSnapshot`] lacks.
const STALE_BY: u64 = 6;

/// The reference engine. Clones share their keys.
#[derive(Clone)]
pub struct ModelStore {
    shared: Arc<Shared>,
}

struct Shared {
    isolation: Isolation,
    fault: Option<Fault>,
    /// The number of commits of which one loses its answer, whether or not it is applied.
    one_lost_in: Option<i64>,
    random: Arc<dyn Random>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    now: u64,
    begun: u64,
    /// The versions of each key with the moments of their commits, oldest first.
    versions: BTreeMap<i64, Vec<(u64, Cell)>>,
    /// The writes of open transactions, by transaction, for [`Fault::ReadsUncommitted`].
    uncommitted: BTreeMap<i64, Vec<(u64, Cell)>>,
}

impl ModelStore {
    /// Creates an empty engine without faults.
    pub fn new(isolation: Isolation, random: Arc<dyn Random>) -> Self {
        ModelStore::with(isolation, random, None, None)
    }

    /// Creates an engine that loses the answer of one commit in `one_in` and applies half of those, which is no fault.
    pub fn with_lost_answers(isolation: Isolation, random: Arc<dyn Random>, one_in: i64) -> Self {
        ModelStore::with(isolation, random, None, Some(one_in))
    }

    /// Creates an engine with a fault.
    pub fn broken(isolation: Isolation, random: Arc<dyn Random>, fault: Fault) -> Self {
        ModelStore::with(isolation, random, Some(fault), None)
    }

    fn with(isolation: Isolation, random: Arc<dyn Random>, fault: Option<Fault>, one_lost_in: Option<i64>) -> Self {
        ModelStore { shared: Arc::new(Shared { isolation, fault, one_lost_in, random, state: Mutex::default() }) }
    }
}

#[async_trait]
impl Client for ModelStore {
    async fn begin(&self) -> Result<Box<dyn ClientTransaction>, Failure> {
        let mut state = self.shared.state();
        state.begun += 1;
        let behind = if self.shared.fault == Some(Fault::StaleSnapshot) { STALE_BY } else { 0 };
        let at = state.now.saturating_sub(behind);
        Ok(Box::new(ModelTransaction::new(Arc::clone(&self.shared), state.begun, at)))
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }
}

impl State {
    /// Returns the value of a key at a moment.
    fn at(&self, key: i64, moment: u64) -> Cell {
        let versions = self.versions.get(&key).map_or(&[][..], Vec::as_slice);
        versions.iter().rev().find(|(commit, _)| *commit <= moment).map_or(Cell::Nothing, |(_, cell)| cell.clone())
    }

    /// Returns whether a key was written after a moment.
    fn is_newer(&self, key: i64, moment: u64) -> bool {
        self.versions.get(&key).and_then(|versions| versions.last()).is_some_and(|(commit, _)| *commit > moment)
    }

    /// Adds a version of a key at the current moment.
    fn put(&mut self, key: i64, cell: Cell) {
        let now = self.now;
        self.versions.entry(key).or_default().push((now, cell));
    }
}
