//! The report of a run.

use std::time::Duration;

use serde::Serialize;

use super::Plan;
use super::worker_processes::WorkerProcesses;
use crate::command::bank::progress::Latencies;
use crate::command::bank::totals::Totals;

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
                "at each all the money was there, nothing half done, and every balance was what the transfers had made of it"
            }
            Some(wrong) => wrong,
        };
        [
            totals.money(self.holds),
            format!(
                "{transfers} transfers by {} ({acknowledged} acknowledged, {refused} refused) by {workers} workers in {processes} \
                 processes between {accounts} accounts {}",
                totals.mechanism(),
                totals.speed()
            ),
            totals.latency(),
            format!("{kills} kills, {answers_lost} answers lost"),
            format!("counted anew at {moments} moments when nobody worked: {verdict}"),
            totals.seed(),
        ]
        .join("\n")
    }
}
