//! Takes down what clients do and are told, in the order in which it happens.
//!
//! The beginning is taken down before the client says anything to the store, the end after it has been answered: so a
//! transaction that ended before another began did so for the store too.

use std::sync::{Mutex, PoisonError};

use handfast_history::{Event, EventKind, MicroOp};
use handfast_store::Sources;

/// A history in the making.
#[derive(Debug)]
pub struct Recorder {
    sources: Sources,
    history: Mutex<History>,
}

#[derive(Debug, Default)]
struct History {
    events: Vec<Event>,
    transactions: u64,
}

impl Recorder {
    /// An empty history.
    pub fn new(sources: Sources) -> Self {
        Recorder { sources, history: Mutex::default() }
    }

    /// A process begins a transaction; returns its number.
    pub fn begin(&self, process: i64, planned: Vec<MicroOp>) -> u64 {
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        let transaction = history.transactions;
        history.transactions += 1;
        self.add(&mut history, EventKind::Invoke, (process, transaction), planned, None);
        transaction
    }

    /// A process learns how its transaction ended.
    pub fn end(&self, kind: EventKind, process: i64, transaction: u64, done: Vec<MicroOp>, error: Option<String>) {
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        self.add(&mut history, kind, (process, transaction), done, error);
    }

    /// What was taken down. Further events make another history.
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.history.lock().unwrap_or_else(PoisonError::into_inner).events)
    }

    fn add(
        &self,
        history: &mut History,
        kind: EventKind,
        (process, transaction): (i64, u64),
        operations: Vec<MicroOp>,
        error: Option<String>,
    ) {
        let nanoseconds = i64::try_from(self.sources.clock.elapsed().as_nanos()).ok();
        history.events.push(Event { kind, process, transaction: Some(transaction), operations, nanoseconds, error });
    }
}
