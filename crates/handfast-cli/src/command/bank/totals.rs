//! What the report of every mechanism begins with.

#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::Serialize;

use super::Run;
use super::progress::Latencies;

/// Who moved how much money, and how fast.
#[derive(Debug, Serialize)]
pub(super) struct Totals {
    mechanism: &'static str,
    pub(super) accounts: u32,
    pub(super) workers: u32,
    seed: u64,
    money_in: i64,
    pub(super) money_out: i64,
    /// As the store says.
    pub(super) transfers: u64,
    pub(super) kills: u32,
    seconds: f64,
    transfers_per_second: f64,
    latency_micros: Percentiles,
}

/// How long transfers took, from their first attempt on.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Percentiles {
    p50: u64,
    p99: u64,
    p999: u64,
}

impl Totals {
    /// Of a run that has not begun.
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

    /// Notes how long it took, and how long each of the transfers that were acknowledged.
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

    /// The lines for people, of which the mechanism's own come between. `holds` is the verdict over the whole run: money may be lost by
    /// one account and made by another, and the sum says nothing of that.
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
