//! The report of a run.

use std::time::Duration;

use serde::Serialize;

use super::Plan;
use super::worker_processes::WorkerProcesses;
use crate::command::bank::progress::Latencies;
use crate::command::bank::totals::Totals;
use crate::listing::counted;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Whether every promise held.
    pub(super) holds: bool,
    #[serde(flatten)]
    pub(super) totals: Totals,
    processes: u32,
    acknowledged: u64,
    refused: u64,
    answers_lost: u64,
    /// Moments without work at which everything was counted.
    pub(super) moments: u32,
    pub(super) wrong: Option<String>,
}

impl Report {
    pub(super) fn new(plan: &Plan, money_in: i64) -> Self {
        Report {
            holds: false,
            totals: Totals::new(&plan.run, plan.kind.name(), money_in),
            processes: plan.processes,
            acknowledged: 0,
            refused: 0,
            answers_lost: 0,
            moments: 0,
            wrong: None,
        }
    }

    /// Takes over the counts of the processes.
    pub(super) fn finish(&mut self, processes: &WorkerProcesses, took: Duration, latencies: &Latencies) {
        self.holds = self.wrong.is_none();
        self.acknowledged = processes.acknowledged.len() as u64;
        self.refused = processes.refused;
        self.answers_lost = processes.answers_lost();
        self.totals.finish(self.acknowledged, took, latencies);
    }

    pub(super) fn text(&self) -> String {
        let Report { totals, processes, acknowledged, refused, answers_lost, moments, .. } = self;
        let Totals { transfers, workers, accounts, kills, .. } = totals;
        let verdict = match &self.wrong {
            None => {
                "each time all the money was there, no transfer was half done, and every balance agreed with the transfers"
            }
            Some(wrong) => wrong,
        };
        [
            totals.money(self.holds),
            format!(
                "{transfers} transfers by {} ({acknowledged} acknowledged, {refused} refused) by {} in {} between {accounts} accounts {}",
                totals.mechanism(),
                counted(*workers, "workers"),
                counted(*processes, "processes"),
                totals.speed()
            ),
            totals.latency(),
            format!("{}, {} lost", counted(*kills, "kills"), counted(*answers_lost, "answers")),
            format!("counted again at {}, while no worker was active: {verdict}", counted(*moments, "moments")),
            totals.seed(),
        ]
        .join("\n")
    }
}
