//! Records the operations of clients and their results in real-time order.
//!
//! A beginning is recorded before the client sends its first request, an end after the last answer. So if a transaction
//! ends before another begins in the history, it did so in the store as well.

use std::sync::{Mutex, PoisonError};

use handfast_history::{Event, EventKind, MicroOp};
use handfast_store::Sources;

/// Records a history.
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
    /// Creates a recorder with an empty history.
    pub fn new(sources: Sources) -> Self {
        Recorder { sources, history: Mutex::default() }
    }

    /// Records that a process begins a transaction; returns its number.
    pub fn begin(&self, process: i64, planned: Vec<MicroOp>) -> u64 {
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        let transaction = history.transactions;
        history.transactions += 1;
        history.events.push(Event {
            kind: EventKind::Invoke,
            process,
            transaction: Some(transaction),
            operations: planned,
            nanoseconds: self.nanoseconds(),
            error: None,
        });
        transaction
    }

    /// Records that a process learns the outcome of its transaction.
    pub fn end(&self, kind: EventKind, process: i64, transaction: u64, done: Vec<MicroOp>, error: Option<String>) {
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        let nanoseconds = self.nanoseconds();
        history.events.push(Event {
            kind,
            process,
            transaction: Some(transaction),
            operations: done,
            nanoseconds,
            error,
        });
    }

    /// Returns the recorded events and removes them.
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.history.lock().unwrap_or_else(PoisonError::into_inner).events)
    }

    fn nanoseconds(&self) -> Option<i64> {
        i64::try_from(self.sources.clock.elapsed().as_nanos()).ok()
    }
}
