//! The judge of this crate: finds anomalies in a history.
//!
//! The checker reads the events once. It keeps a read as a position, not as a list: the versions of a key are numbered by
//! the longest read so far, of which every other read must be a prefix. Memory is therefore proportional to the
//! micro-operations, whatever the length of the lists. Then it works in three steps:
//!
//! 1. `non_cyclic` finds anomalies that need no order: values without a writer, aborted reads, lost or duplicate appends,
//!    lost updates;
//! 2. `dependencies` builds the graph of transactions: `ww` (wrote the next version), `wr` (read the version that the
//!    other wrote), `rw` (read the version that the other overwrote), and session or real-time order where it was promised;
//! 3. `cycles` finds transactions that cannot be put in an order.
//!
//! Snapshot isolation forbids the cycles in which no two `rw` follow each other (Cerone and Gotsman, *Analysing Snapshot
//! Isolation*, 2018); serializability forbids all cycles. Strongly connected components answer both questions in time
//! proportional to the dependencies. No function is recursive.
//!
//! A transaction of unknown outcome counts as committed if a committed transaction read a value of it, and is ignored otherwise.

mod cycles;
mod dependencies;
mod graph;
mod indexed;
mod names;
mod non_cyclic;
#[cfg(test)]
mod tests;
mod transaction;

use std::collections::HashMap;

use self::indexed::{IndexedHistory, TransactionOutcome};
use crate::event::{Event, EventKind, Expectation, Header, MicroOp};
use crate::report::{Findings, Report};
use crate::{Error, Result};

/// Checks a history, event by event.
#[derive(Debug)]
pub struct Checker {
    history: IndexedHistory,
    findings: Findings,
    /// The open transaction of each process.
    pending: HashMap<i64, Pending>,
    events: u32,
}

#[derive(Debug)]
struct Pending {
    label: u64,
    transaction: Option<u64>,
    invoked: u32,
    planned: Vec<MicroOp>,
}

impl Checker {
    /// Creates a checker for a history with this header.
    pub fn new(header: &Header) -> Self {
        Checker {
            history: IndexedHistory::new(header),
            findings: Findings::default(),
            pending: HashMap::new(),
            events: 0,
        }
    }

    /// Adds the next event.
    ///
    /// # Errors
    /// [`Error::Malformed`] for an end without a beginning, a value that is written twice, and a key that is both a list and
    /// a register.
    pub fn observe(&mut self, event: Event) -> Result<()> {
        let position = self.events;
        self.events = position.checked_add(1).ok_or_else(|| Error::malformed("more than 4 billion events"))?;
        let Event { kind, process, transaction, operations, error, .. } = event;
        if kind == EventKind::Invoke {
            let label = transaction.unwrap_or(u64::from(position));
            let pending = Pending { label, transaction, invoked: position, planned: operations };
            // The client has stopped without an end for its earlier transaction.
            return match self.pending.insert(process, pending) {
                Some(lost) => self.end(process, lost, None, TransactionOutcome::Unknown, &[]),
                None => Ok(()),
            };
        }
        let pending = self.pending.remove(&process).filter(|pending| {
            transaction.is_none() || pending.transaction.is_none() || transaction == pending.transaction
        });
        let Some(pending) = pending else {
            return Err(Error::malformed(format!("process {process} ends a transaction that it has not begun")));
        };
        let outcome = match kind {
            EventKind::Ok => TransactionOutcome::Committed,
            EventKind::Fail if error.is_some() => TransactionOutcome::Failed,
            EventKind::Fail => TransactionOutcome::GivenUp,
            EventKind::Info | EventKind::Invoke => TransactionOutcome::Unknown,
        };
        self.end(process, pending, Some(position), outcome, &operations)
    }

    /// Checks the events against an expectation.
    ///
    /// # Errors
    /// [`Error::Malformed`], as with [`Checker::observe`].
    pub fn finish(mut self, expectation: Expectation) -> Result<Report> {
        let mut left: Vec<(i64, Pending)> = self.pending.drain().collect();
        left.sort_unstable_by_key(|(_, pending)| pending.invoked);
        for (process, pending) in left {
            self.end(process, pending, None, TransactionOutcome::Unknown, &[])?;
        }
        let Checker { history, mut findings, .. } = self;
        let committed = history.committed();
        let mut counts = history.counts(&committed);
        non_cyclic::find(&history, &committed, &mut findings, &mut counts);
        let dependencies = dependencies::Dependencies::of(&history, &committed, expectation.order);
        counts.dependencies = dependencies.count;
        counts.dependencies_left_out = dependencies.left_out;
        cycles::find(&history, &dependencies, expectation, &mut findings);
        Ok(findings.into_report(counts))
    }

    fn end(
        &mut self,
        process: i64,
        pending: Pending,
        completed: Option<u32>,
        outcome: TransactionOutcome,
        operations: &[MicroOp],
    ) -> Result<()> {
        let Pending { label, invoked, planned, .. } = pending;
        let ended = transaction::EndedTransaction { label, process, invoked, completed, outcome };
        transaction::record(&mut self.history, &mut self.findings, &ended, &planned, operations)
    }
}
