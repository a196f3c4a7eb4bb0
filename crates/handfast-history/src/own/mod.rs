//! The judge of this crate.
//!
//! It reads the events once and keeps of each transaction what its reads saw as a position, not as a list: the versions
//! of a key are numbered by the longest read so far, of which every other must be the beginning. Memory is therefore
//! proportional to the micro-operations, whatever the length of the lists. Then:
//!
//! 1. [`direct`](self): what needs no order (values nobody wrote, aborted reads, appends lost or doubled, lost updates);
//! 2. `dependencies`: who must be before whom: `ww` (wrote the next version), `wr` (read what the other wrote), `rw`
//!    (read what the other overwrote), and the order of the session or of the world where that was promised;
//! 3. `cycles`: what cannot be put in an order.
//!
//! Snapshot isolation forbids the cycles in which no two `rw` follow each other (Cerone and Gotsman, *Analysing Snapshot
//! Isolation*, 2018); serializability forbids all. Both are questions about strongly connected components, so that they
//! take time proportional to the dependencies. Nothing recurses.
//!
//! A transaction of unknown outcome counts as committed if anybody saw a value of it, and as never run otherwise.

mod cycles;
mod dependencies;
mod direct;
mod graph;
mod names;
mod observed;
#[cfg(test)]
mod tests;
mod transaction;

use std::collections::HashMap;

use self::observed::{Observed, Outcome};
use crate::event::{Event, EventKind, Expectation, Header, MicroOp};
use crate::report::{Findings, Report};
use crate::{Error, Result};

/// Judges a history, event by event.
#[derive(Debug)]
pub struct Judge {
    observed: Observed,
    findings: Findings,
    /// What each process has begun and not ended.
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

impl Judge {
    /// A judge of the history with this header.
    pub fn new(header: &Header) -> Self {
        Judge { observed: Observed::new(header), findings: Findings::default(), pending: HashMap::new(), events: 0 }
    }

    /// Takes the next event.
    ///
    /// # Errors
    /// The events do not make a history: an end without a beginning, a value written twice, lists among registers.
    pub fn observe(&mut self, event: Event) -> Result<()> {
        let position = self.events;
        self.events = position.checked_add(1).ok_or_else(|| Error::malformed("more than 4 billion events"))?;
        let Event { kind, process, transaction, operations, error, .. } = event;
        if kind == EventKind::Invoke {
            let label = transaction.unwrap_or(u64::from(position));
            let pending = Pending { label, transaction, invoked: position, planned: operations };
            // The client of an earlier one has died without a word.
            return match self.pending.insert(process, pending) {
                Some(lost) => self.end(process, lost, None, Outcome::Unknown, &[]),
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
            EventKind::Ok => Outcome::Committed,
            EventKind::Fail if error.is_some() => Outcome::Failed,
            EventKind::Fail => Outcome::GivenUp,
            EventKind::Info | EventKind::Invoke => Outcome::Unknown,
        };
        self.end(process, pending, Some(position), outcome, &operations)
    }

    /// Judges what was taken.
    ///
    /// # Errors
    /// As with [`Judge::observe`].
    pub fn finish(mut self, expectation: Expectation) -> Result<Report> {
        let mut left: Vec<(i64, Pending)> = self.pending.drain().collect();
        left.sort_unstable_by_key(|(_, pending)| pending.invoked);
        for (process, pending) in left {
            self.end(process, pending, None, Outcome::Unknown, &[])?;
        }
        let Judge { observed, mut findings, .. } = self;
        let committed = observed.committed();
        let mut counts = observed.counts(&committed);
        direct::find(&observed, &committed, &mut findings, &mut counts);
        let dependencies = dependencies::Dependencies::of(&observed, &committed, expectation.order);
        counts.dependencies = dependencies.count;
        counts.dependencies_left_out = dependencies.left_out;
        cycles::find(&observed, &dependencies, expectation, &mut findings);
        Ok(findings.into_report(counts))
    }

    fn end(
        &mut self,
        process: i64,
        pending: Pending,
        completed: Option<u32>,
        outcome: Outcome,
        operations: &[MicroOp],
    ) -> Result<()> {
        let Pending { label, invoked, planned, .. } = pending;
        let begun = transaction::Begun { label, process, invoked, completed, outcome };
        transaction::take(&mut self.observed, &mut self.findings, &begun, &planned, operations)
    }
}
