//! A scenario over a store, once without faults to list its operations, then once for each pair of an operation and a fault.
//!
//! ```text
//! start       a store with fresh data, for each run
//! scenario    the code under test, with the store behind a Faulty
//! late        delayed requests and copies reach the store
//! invariant   what has to hold for the store after each run; it recovers before, if the process of the scenario may have died
//! ```
//!
//! ```
//! # use std::sync::Arc;
//! # use handfast_store::{DocumentStore, MemoryStore, Sources, decorator::Exploration};
//! # async fn pay(_: Arc<dyn DocumentStore>) {}
//! # async fn total(_: &MemoryStore) -> i64 { 20 }
//! # async fn test() -> Result<(), handfast_store::decorator::ExplorationError> {
//! let explored = Exploration::default()
//!     .explore(
//!         async || Arc::new(MemoryStore::new(Sources::seeded(1))),
//!         async |store| pay(store).await,
//!         async |store| match total(store).await {
//!             20 => Ok(()),
//!             other => Err(format!("the total is {other}, not 20")),
//!         },
//!     )
//!     .await?;
//! explored.check()?; // the error names each pair after which the invariant does not hold
//! # Ok(())
//! # }
//! ```
//!
//! The crate handfast-blackpipe explores a program over the wire in the same way.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use super::{Address, Fault, Faulty, Plan, STARTED_KEPT_MAX};
use crate::DocumentStore;
use crate::decorator::Operation;

/// The choices of an exploration.
#[derive(Clone, Debug)]
pub struct Exploration {
    /// The faults that each operation meets.
    pub faults: Vec<Fault>,
    /// The number of requests of an operation in a row that meet the fault, up to [`Exploration::TIMES_MAX`]. With 2 a retry meets it, too.
    pub times: NonZeroU32,
    /// The time that a scenario may take.
    pub time_limit: Duration,
}

impl Default for Exploration {
    /// Returns an exploration of [`Fault::DEFAULT`], once each, in which a scenario may take a minute.
    fn default() -> Self {
        Exploration { faults: Fault::DEFAULT.to_vec(), times: NonZeroU32::MIN, time_limit: Duration::from_secs(60) }
    }
}

/// An operation and the fault that it meets: `update:2/lose-reply` for the second update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The operation.
    pub operation: Operation,
    /// The number among the requests of this operation, which begins with 1.
    pub number: u64,
    /// The fault.
    pub fault: Fault,
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}/{}", self.operation, self.number, self.fault)
    }
}

/// The outcome of the run of a pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PairOutcome {
    /// The invariant holds.
    Right,
    /// The invariant does not hold, for this reason.
    Wrong(String),
    /// The scenario did not end within its time, and was dropped.
    TimedOut,
    /// The operation did not occur, because the scenario sends other operations from run to run. Nothing is known about the pair.
    NotReached,
}

impl fmt::Display for PairOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PairOutcome::Right => "right",
            PairOutcome::Wrong(reason) => reason,
            PairOutcome::TimedOut => "the scenario did not end",
            PairOutcome::NotReached => "the operation did not occur",
        })
    }
}

/// The reason why a scenario cannot be explored, or is not right.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ExplorationError {
    /// The field `times` exceeds [`Exploration::TIMES_MAX`].
    #[error("`times` is {0}, and {max} at most: choose a number a little larger than that of the tries of the scenario", max = Exploration::TIMES_MAX)]
    TooManyTimes(NonZeroU32),
    /// A scenario is wrong without any fault.
    #[error("the scenario fails without any fault: {0}")]
    WithoutFault(String),
    /// A scenario is not right after some faults.
    #[error("{wrong} of {all} pairs are not right:\n{report}")]
    Wrong {
        /// The number of pairs that are not right.
        wrong: usize,
        /// The number of all pairs.
        all: usize,
        /// A line for each pair that is not right.
        report: String,
    },
}

/// The results of all pairs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explored {
    /// The pairs in the order of their operations, with their outcomes.
    pub pairs: Vec<(Pair, PairOutcome)>,
}

impl Explored {
    /// Returns an error unless all pairs are right.
    ///
    /// # Errors
    /// [`ExplorationError::Wrong`] with a line for each other pair.
    pub fn check(&self) -> Result<(), ExplorationError> {
        let wrong = self.pairs.iter().filter(|(_, outcome)| *outcome != PairOutcome::Right);
        let report: Vec<String> = wrong.map(|(pair, outcome)| format!("{pair}: {outcome}")).collect();
        match report.is_empty() {
            true => Ok(()),
            false => {
                let (wrong, all) = (report.len(), self.pairs.len());
                Err(ExplorationError::Wrong { wrong, all, report: report.join("\n") })
            }
        }
    }
}

/// A run of a scenario.
struct Run {
    started: Vec<Operation>,
    is_reached: bool,
    outcome: PairOutcome,
}

impl Exploration {
    /// The largest number of `times`: each of them is an entry of the plan of a run, and no scenario repeats a request as often.
    pub const TIMES_MAX: u32 = 1_000;

    /// Explores a scenario. `start` returns a store with fresh data. The scenario handles its own errors: the invariant decides.
    ///
    /// # Errors
    /// [`ExplorationError::TooManyTimes`] if `times` exceeds its bound; [`ExplorationError::WithoutFault`] if the invariant does not hold, the scenario does not end, or it starts no operation, without any fault.
    ///
    /// # Cancellation
    /// Dropping it drops the scenario that runs.
    pub async fn explore<S: DocumentStore>(
        &self,
        start: impl AsyncFn() -> Arc<S>,
        scenario: impl AsyncFn(Arc<Faulty<S>>),
        invariant: impl AsyncFn(&S) -> Result<(), String>,
    ) -> Result<Explored, ExplorationError> {
        if self.times.get() > Self::TIMES_MAX {
            return Err(ExplorationError::TooManyTimes(self.times));
        }
        let run = async |plan| self.run(plan, &start, &scenario, &invariant).await;
        let Run { started, outcome, .. } = run(Plan::none()).await;
        let reason = match outcome {
            PairOutcome::Right if started.is_empty() => Some("it starts no operation of the store".to_owned()),
            PairOutcome::Right if started.len() >= STARTED_KEPT_MAX => Some("it starts too many operations".to_owned()),
            PairOutcome::Right => None,
            outcome => Some(outcome.to_string()),
        };
        if let Some(reason) = reason {
            return Err(ExplorationError::WithoutFault(reason));
        }
        let (mut pairs, mut numbers) = (Vec::new(), BTreeMap::new());
        for operation in started {
            let number = numbers.entry(operation).and_modify(|number| *number += 1).or_insert(1_u64);
            for &fault in &self.faults {
                let pair = Pair { operation, number: *number, fault };
                let Run { is_reached, outcome, .. } = run(self.plan(pair)).await;
                let outcome = match outcome {
                    PairOutcome::Right if !is_reached => PairOutcome::NotReached,
                    outcome => outcome,
                };
                pairs.push((pair, outcome));
            }
        }
        Ok(Explored { pairs })
    }

    /// Returns the plan in which the operation of a pair and those behind it meet the fault.
    fn plan(&self, pair: Pair) -> Plan {
        let first = Address::first(pair.operation).after(pair.number - 1);
        let addresses = (0..self.times.get()).map(|more| first.clone().after(more.into()));
        Plan::at_requests(addresses.map(|address| (address, pair.fault)))
    }

    async fn run<S: DocumentStore>(
        &self,
        plan: Plan,
        start: &impl AsyncFn() -> Arc<S>,
        scenario: &impl AsyncFn(Arc<Faulty<S>>),
        invariant: &impl AsyncFn(&S) -> Result<(), String>,
    ) -> Run {
        let faulty = Arc::new(Faulty::new(start().await, plan));
        let ended = tokio::time::timeout(self.time_limit, scenario(Arc::clone(&faulty))).await;
        // A copy may fail where the first request did not, as the copy of an insert does.
        let _results = faulty.deliver_late().await;
        let outcome = match ended {
            Ok(()) => invariant(faulty.inner()).await.map_or_else(PairOutcome::Wrong, |()| PairOutcome::Right),
            Err(_) => PairOutcome::TimedOut,
        };
        Run { started: faulty.started(), is_reached: !faulty.injected().is_empty(), outcome }
    }
}

#[cfg(test)]
mod tests;
