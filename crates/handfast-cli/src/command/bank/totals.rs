//! The beginning of the report of every mechanism.

#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::Serialize;

use super::Run;
use super::progress::Latencies;

#[derive(Debug, Serialize)]
pub(super) struct Totals {
    mechanism: &'static str,
    pub(super) accounts: u32,
    pub(super) workers: u32,
    seed: u64,
    money_in: i64,
    pub(super) money_out: i64,
    /// The number of transfers that the store holds.
    pub(super) transfers: u64,
    pub(super) kills: u32,
    seconds: f64,
    transfers_per_second: f64,
    latency_micros: Percentiles,
}

/// Durations of transfers, from their first attempt on.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Percentiles {
    p50: u64,
    p99: u64,
    p999: u64,
}

impl Totals {
    /// Returns the totals of a run that has not begun.
    pub(super) fn new(run: &Run, mechanism: &'static str, money_in: i64) -> Self {
        Totals {
            mechanism,
            accounts: run.accounts,
            workers: run.workers,
            seed: run.seed,
            money_in,
            money_out: 0,
            transfers: 0,
            kills: 0,
            seconds: 0.0,
            transfers_per_second: 0.0,
            latency_micros: Percentiles::default(),
        }
    }

    /// Notes the duration of the run, and of each acknowledged transfer.
    pub(super) fn finish(&mut self, acknowledged: u64, took: Duration, latencies: &Latencies) {
        self.seconds = took.as_secs_f64();
        self.transfers_per_second = if self.seconds > 0.0 { acknowledged as f64 / self.seconds } else { 0.0 };
        self.latency_micros = Percentiles {
            p50: latencies.value_at_quantile(0.5),
            p99: latencies.value_at_quantile(0.99),
            p999: latencies.value_at_quantile(0.999),
        };
    }

    pub(super) fn all_the_money_is_there(&self) -> bool {
        self.money_in == self.money_out
    }

    pub(super) fn mechanism(&self) -> &'static str {
        self.mechanism
    }

    /// Returns the line about the sum. `holds` is the verdict on the whole run: the sum does not show money that moved to the
    /// wrong account.
    pub(super) fn money(&self, holds: bool) -> String {
        let verdict = match (self.all_the_money_is_there(), holds) {
            (true, true) => "nothing is lost or made",
            (true, false) => "THE SUM IS RIGHT, AND SOMETHING ELSE IS WRONG",
            (false, _) => "THE MONEY IS WRONG",
        };
        format!("money in {}, money out {}: {verdict}", self.money_in, self.money_out)
    }

    pub(super) fn speed(&self) -> String {
        format!("in {:.1} s ({:.0}/s)", self.seconds, self.transfers_per_second)
    }

    pub(super) fn latency(&self) -> String {
        let Percentiles { p50, p99, p999 } = self.latency_micros;
        format!("latency p50 {p50} us, p99 {p99} us, p99.9 {p999} us")
    }

    pub(super) fn seed(&self) -> String {
        format!("seed {}", self.seed)
    }
}
