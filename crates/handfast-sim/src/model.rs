//! An engine small enough to be seen to be right, which can be told to be wrong.
//!
//! Each key has its versions, with the moment of their commit; a transaction reads at the moment of its begin, keeps its
//! writes to itself, and commits if nobody has written its keys since (and, if it is to be serializable, nobody has
//! written what it read, the gaps in its ranges included). That is all there is to snapshot isolation in one process.
//!
//! Each [`Fault`] is a way in which a real engine has been, or could be, wrong. A judge that does not catch one of them
//! would not catch it in a real engine either.

mod fault;
mod transaction;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use handfast_history::Isolation;
use handfast_store::Random;

use self::transaction::ModelTransaction;
use crate::{Cell, Client, Failure, Transaction};

pub use fault::Fault;

/// Moments by which [`Fault::StaleSnapshot`] is behind.
const STALE_BY: u64 = 6;

/// The engine. Clones share their keys.
#[derive(Clone)]
pub struct ModelStore {
    shared: Arc<Shared>,
}

struct Shared {
    isolation: Isolation,
    fault: Option<Fault>,
    /// Of how many commits one loses its answer, applied or not.
    one_lost_in: Option<i64>,
    random: Arc<dyn Random>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    now: u64,
    begun: u64,
    /// Of each key the versions with the moments of their commits, oldest first.
    versions: BTreeMap<i64, Vec<(u64, Cell)>>,
    /// What open transactions have written, for a fault that shows it.
    uncommitted: BTreeMap<i64, Vec<(u64, Cell)>>,
}

impl ModelStore {
    /// An empty engine, in order.
    pub fn new(isolation: Isolation, random: Arc<dyn Random>) -> Self {
        ModelStore::with(isolation, random, None, None)
    }

    /// One that loses the answer of one commit in so many. Half of those are applied. Nothing is wrong with that.
    pub fn with_lost_answers(isolation: Isolation, random: Arc<dyn Random>, one_in: i64) -> Self {
        ModelStore::with(isolation, random, None, Some(one_in))
    }

    /// One that is broken.
    pub fn broken(isolation: Isolation, random: Arc<dyn Random>, fault: Fault) -> Self {
        ModelStore::with(isolation, random, Some(fault), None)
    }

    fn with(isolation: Isolation, random: Arc<dyn Random>, fault: Option<Fault>, one_lost_in: Option<i64>) -> Self {
        ModelStore { shared: Arc::new(Shared { isolation, fault, one_lost_in, random, state: Mutex::default() }) }
    }
}

#[async_trait]
impl Client for ModelStore {
    async fn begin(&self) -> Result<Box<dyn Transaction>, Failure> {
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

    fn is(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }
}

impl State {
    /// The version of a key at a moment.
    fn at(&self, key: i64, moment: u64) -> Cell {
        let versions = self.versions.get(&key).map_or(&[][..], Vec::as_slice);
        versions.iter().rev().find(|(commit, _)| *commit <= moment).map_or(Cell::Nothing, |(_, cell)| cell.clone())
    }

    /// Whether a key has been written after a moment.
    fn is_newer(&self, key: i64, moment: u64) -> bool {
        self.versions.get(&key).and_then(|versions| versions.last()).is_some_and(|(commit, _)| *commit > moment)
    }

    /// Commits a cell at a new moment.
    fn put(&mut self, key: i64, cell: Cell) {
        let now = self.now;
        self.versions.entry(key).or_default().push((now, cell));
    }
}
