//! A scenario in a Rust test, once without faults to list its operations, then once for each pair of an operation and a fault.
//!
//! ```text
//! start       a server with fresh data, for each run
//! scenario    the code under test, with the connection string of a proxy in front of the server
//! late        delayed requests and copies reach the server
//! invariant   what has to hold for the server after each run
//! ```

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::rules::OPERATIONS_MAX;
use crate::{Condition, Error, Fault, ObservedOperation, Pair, Proxy, Result, Rule, Rules};

/// The choices of an exploration.
#[derive(Clone, Debug)]
pub struct Exploration {
    /// The faults that each operation meets.
    pub faults: Vec<Fault>,
    /// Returns whether an operation meets them: those of the code under test do, and those that prepare it, such as the ones of a library that tries a
    /// server when it connects, need not.
    pub only: fn(&ObservedOperation) -> bool,
    /// The number of operations of a command in a row that meet the fault. With 2 the retry of a driver meets it, too.
    pub times: NonZeroU32,
    /// The time that a scenario may take.
    pub time_limit: Duration,
}

impl Default for Exploration {
    /// Returns an exploration of all operations with [`Fault::DEFAULT`], once each, in which a scenario may take a minute.
    fn default() -> Self {
        Exploration {
            faults: Fault::DEFAULT.to_vec(),
            only: |_| true,
            times: NonZeroU32::MIN,
            time_limit: Duration::from_secs(60),
        }
    }
}

/// The results of all pairs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explored {
    /// The pairs in the order of their operations, with their outcomes.
    pub pairs: Vec<(Pair, PairOutcome)>,
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
    /// The server did not get a request that the fault sends later, for instance because its copy had no memory. Nothing is known about the pair.
    NotDelivered,
}

impl fmt::Display for PairOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PairOutcome::Right => f.write_str("right"),
            PairOutcome::Wrong(reason) => f.write_str(reason),
            PairOutcome::TimedOut => f.write_str("the scenario did not end"),
            PairOutcome::NotReached => f.write_str("the operation did not occur"),
            PairOutcome::NotDelivered => f.write_str("the server did not answer a request that the fault sends later"),
        }
    }
}

impl Explored {
    /// Returns an error unless all pairs are right.
    ///
    /// # Errors
    /// [`Error::Explored`] with a line for each other pair.
    pub fn check(&self) -> Result<()> {
        let wrong = self.pairs.iter().filter(|(_, outcome)| *outcome != PairOutcome::Right);
        let report: Vec<String> = wrong.map(|(pair, outcome)| format!("{pair}: {outcome}")).collect();
        match report.is_empty() {
            true => Ok(()),
            false => Err(Error::Explored { wrong: report.len(), all: self.pairs.len(), report: report.join("\n") }),
        }
    }
}

/// A run of a scenario.
struct Run {
    operations: Vec<ObservedOperation>,
    /// The number of late requests that the server did not answer.
    undelivered: u64,
    outcome: PairOutcome,
}

impl Exploration {
    /// Explores a scenario. `start` returns the address of a server with fresh data, as `host:port`, and what keeps the server alive and shows its
    /// data to the invariant. The scenario handles its own errors: the invariant decides.
    ///
    /// # Errors
    /// [`Error::WithoutFault`] if the invariant does not hold, the scenario does not end, or it sends no operation that is explored, without any fault.
    ///
    /// # Cancellation
    /// Dropping it drops the scenario that runs.
    pub async fn explore<S>(
        &self,
        start: impl AsyncFn() -> (String, S),
        scenario: impl AsyncFn(String),
        invariant: impl AsyncFn(&S) -> std::result::Result<(), String>,
    ) -> Result<Explored> {
        let run = async |rules| self.run(rules, &start, &scenario, &invariant).await;
        let Run { operations, outcome, .. } = run(Rules::default()).await?;
        let reason = match outcome {
            PairOutcome::Right if operations.is_empty() => Some("it sends no operation to the proxy".to_owned()),
            PairOutcome::Right if !operations.iter().any(self.only) => {
                Some("`only` takes none of its operations".to_owned())
            }
            PairOutcome::Right if operations.len() >= OPERATIONS_MAX => Some("it sends too many operations".to_owned()),
            PairOutcome::Right => None,
            outcome => Some(outcome.to_string()),
        };
        if let Some(reason) = reason {
            return Err(Error::WithoutFault(reason));
        }
        let mut pairs = Vec::new();
        let explored = operations.iter().filter(|observed| (self.only)(observed));
        for pair in explored.flat_map(|observed| observed.pairs(&self.faults)) {
            let condition = Condition::of_operations(pair.operation.clone(), self.times);
            let Run { operations, undelivered, outcome } =
                run(Rules::new(vec![Rule { injection: pair.fault.into(), condition }])).await?;
            let is_reached = operations.iter().any(|operation| operation.fault.is_some());
            let outcome = match outcome {
                PairOutcome::Right if !is_reached => PairOutcome::NotReached,
                PairOutcome::Right if undelivered > 0 => PairOutcome::NotDelivered,
                outcome => outcome,
            };
            pairs.push((pair, outcome));
        }
        Ok(Explored { pairs })
    }

    async fn run<S>(
        &self,
        rules: Rules,
        start: &impl AsyncFn() -> (String, S),
        scenario: &impl AsyncFn(String),
        invariant: &impl AsyncFn(&S) -> std::result::Result<(), String>,
    ) -> Result<Run> {
        let (address, server) = start().await;
        let proxy = Proxy::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), address, rules).await?;
        let (uri, handle) = (format!("mongodb://{}/", proxy.address()), proxy.handle());
        // It ends with the run.
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { match proxy.run().await {} });
        let ended = tokio::time::timeout(self.time_limit, scenario(uri)).await;
        let late = tokio::time::timeout(self.time_limit, handle.deliver_late()).await;
        let outcome = match (ended, late) {
            (Ok(()), Ok(())) => invariant(&server).await.map_or_else(PairOutcome::Wrong, |()| PairOutcome::Right),
            _ => PairOutcome::TimedOut,
        };
        Ok(Run { operations: handle.operations(), undelivered: handle.undelivered_count(), outcome })
    }
}

#[cfg(test)]
mod tests;
