//! A transaction of the reference engine.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use handfast_history::Isolation;

use super::{Fault, Shared, State};
use crate::workload::one_in;
use crate::{Cell, ClientTransaction, Failure};

/// The number of commits of which an intermittent fault affects one.
const WRONG_ONE_IN: i64 = 16;

pub(super) struct ModelTransaction {
    shared: Arc<Shared>,
    number: u64,
    /// The moment of its snapshot.
    at: u64,
    writes: BTreeMap<i64, Cell>,
    reads: Vec<i64>,
    ranges: Vec<Range<i64>>,
}

impl ModelTransaction {
    pub(super) fn new(shared: Arc<Shared>, number: u64, at: u64) -> Self {
        ModelTransaction { shared, number, at, writes: BTreeMap::new(), reads: Vec::new(), ranges: Vec::new() }
    }

    /// Reads a key from the own writes or the snapshot.
    fn read_key(&self, state: &State, key: i64) -> Cell {
        match self.writes.get(&key) {
            Some(own) if !self.shared.has(Fault::OwnWritesUnseen) => own.clone(),
            _ => self.read_committed(state, key),
        }
    }

    fn read_committed(&self, state: &State, key: i64) -> Cell {
        if self.shared.has(Fault::ReadsUncommitted)
            && let Some((_, cell)) = state.uncommitted.get(&key).and_then(|cells| cells.last())
        {
            return cell.clone();
        }
        let moment = if self.shared.has(Fault::ReadsLatest) { state.now } else { self.at };
        state.at(key, moment)
    }

    fn put(&mut self, key: i64, cell: Cell) {
        if self.shared.has(Fault::ReadsUncommitted) {
            self.shared.state().uncommitted.entry(key).or_default().push((self.number, cell.clone()));
        }
        self.writes.insert(key, cell);
    }

    /// Removes the own writes from those that others can see uncommitted.
    fn remove_uncommitted(&self, state: &mut State) {
        for cells in state.uncommitted.values_mut() {
            cells.retain(|(number, _)| *number != self.number);
        }
    }

    /// Checks for conflicts with transactions that have committed since.
    fn check(&self, state: &State) -> Result<(), Failure> {
        let is_newer = |key: &i64| state.is_newer(*key, self.at);
        if !self.shared.has(Fault::NoWriteCheck) && self.writes.keys().any(is_newer) {
            return Err(Failure::Conflict("a key has been written since".to_owned()));
        }
        let is_serializable = self.shared.isolation == Isolation::Serializable && !self.writes.is_empty();
        if !is_serializable || self.shared.has(Fault::NoReadCheck) {
            return Ok(());
        }
        let mut ranges = self.ranges.iter().cloned().flatten();
        let is_range_newer = !self.shared.has(Fault::NoRangeCheck) && ranges.any(|key| is_newer(&key));
        if self.reads.iter().any(is_newer) || is_range_newer {
            return Err(Failure::Conflict("a key has been written since it was read".to_owned()));
        }
        Ok(())
    }

    /// Returns the writes to apply: all of them, unless a fault changes them.
    fn applied(&self) -> Vec<(i64, Cell)> {
        let mut writes: Vec<(i64, Cell)> = self.writes.clone().into_iter().collect();
        let Some(fault) = self.shared.fault.filter(|_| one_in(&*self.shared.random, WRONG_ONE_IN)) else {
            return writes;
        };
        match (fault, writes.last_mut()) {
            (Fault::HalfCommit, Some(_)) => writes.truncate(writes.len().div_ceil(2)),
            (Fault::ForgottenCommit, _) => writes.clear(),
            (Fault::AppliedTwice, Some((_, Cell::List(list)))) => list.extend(list.last().copied()),
            (Fault::InventedValue, Some((_, Cell::List(list)))) => list.push(-1 - list.len() as i64),
            _ => {}
        }
        writes
    }
}

#[async_trait]
impl ClientTransaction for ModelTransaction {
    async fn read(&mut self, key: i64) -> Result<Cell, Failure> {
        self.reads.push(key);
        Ok(self.read_key(&self.shared.state(), key))
    }

    async fn scan(&mut self, keys: Range<i64>) -> Result<Vec<(i64, Cell)>, Failure> {
        self.ranges.push(keys.clone());
        let state = self.shared.state();
        let cells = keys.map(|key| (key, self.read_key(&state, key)));
        Ok(cells.filter(|(_, cell)| *cell != Cell::Nothing).collect())
    }

    async fn append(&mut self, key: i64, value: i64) -> Result<(), Failure> {
        let own = self.writes.get(&key).cloned();
        let before = own.unwrap_or_else(|| self.read_committed(&self.shared.state(), key));
        let mut list = match before {
            Cell::List(list) => list,
            Cell::Nothing | Cell::Value { .. } => Vec::new(),
        };
        list.push(value);
        self.put(key, Cell::List(list));
        Ok(())
    }

    async fn write(&mut self, key: i64, value: i64, amount: Option<i64>) -> Result<(), Failure> {
        self.put(key, Cell::Value { value, amount });
        Ok(())
    }

    async fn commit(self: Box<Self>) -> Result<(), Failure> {
        let random = &*self.shared.random;
        let is_lost = self.shared.one_lost_in.is_some_and(|times| one_in(random, times));
        if is_lost && one_in(random, 2) {
            return Err(Failure::Unknown("the answer is lost, and so was the request".to_owned()));
        }
        let writes = {
            let mut state = self.shared.state();
            self.remove_uncommitted(&mut state);
            self.check(&state)?;
            let writes = self.applied();
            if !self.shared.has(Fault::TornCommit) {
                state.now += 1;
                writes.iter().for_each(|(key, cell)| state.put(*key, cell.clone()));
            }
            writes
        };
        if self.shared.has(Fault::TornCommit) {
            for (key, cell) in writes {
                {
                    let mut state = self.shared.state();
                    state.now += 1;
                    state.put(key, cell);
                }
                tokio::task::yield_now().await;
            }
        }
        if self.shared.has(Fault::RefusedAndApplied) && one_in(random, WRONG_ONE_IN) {
            return Err(Failure::Conflict("so it says".to_owned()));
        }
        match is_lost {
            true => Err(Failure::Unknown("the answer is lost".to_owned())),
            false => Ok(()),
        }
    }

    async fn abort(self: Box<Self>) -> Result<(), Failure> {
        let mut state = self.shared.state();
        self.remove_uncommitted(&mut state);
        if self.shared.has(Fault::NoRollback) {
            state.now += 1;
            self.writes.iter().for_each(|(key, cell)| state.put(*key, cell.clone()));
        }
        Ok(())
    }
}

impl Drop for ModelTransaction {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        self.remove_uncommitted(&mut state);
    }
}
