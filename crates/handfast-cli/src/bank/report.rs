//! What a run is reported as.

use handfast_history::{Anomaly, Verdict};
use serde::Serialize;

use super::{Doubts, End, Run, Work};

/// A run, judged.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Whether everything that was promised held.
    pub(super) holds: bool,
    accounts: u32,
    workers: u32,
    seed: u64,
    money_in: i64,
    money_out: i64,
    transfers: u64,
    conflicts: u64,
    kills: u32,
    under_way_at_kills: u64,
    #[serde(flatten)]
    doubts: Doubts,
    records_left: u64,
    locks_left: u64,
    seconds: f64,
    transfers_per_second: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_micros: Option<Percentiles>,
    history_clean: bool,
    isolation: handfast_history::Isolation,
    anomalies: Vec<String>,
    old_version_reads: u64,
}

/// What became of lost answers, if any were.
fn told_of(doubts: &Doubts) -> Option<String> {
    let Doubts { answers_lost, settled_by_library, asked_committed, asked_rolled_back, unknown } = doubts;
    let asked = asked_committed + asked_rolled_back + unknown;
    (*answers_lost > 0).then(|| {
        format!(
            "{answers_lost} answers were lost; {settled_by_library} commits the library found to be done, {asked} \
             transactions were asked for by id: {asked_committed} had committed, {asked_rolled_back} were rolled back, \
             {unknown} stay unknown"
        )
    })
}

#[derive(Debug, Serialize)]
struct Percentiles {
    p50: u64,
    p99: u64,
    p999: u64,
}

impl Report {
    pub(super) fn new(run: &Run, work: &Work, end: &End, verdict: &Verdict) -> Self {
        let mut anomalies: Vec<String> = verdict.report.anomalies.iter().map(Anomaly::to_string).collect();
        anomalies.extend(verdict.second.explanations.iter().cloned());
        anomalies.extend(verdict.disagreement());
        let history_clean = verdict.is_clean() && verdict.disagreement().is_none();
        let seconds = work.took.as_secs_f64();
        let enough = work.committed + work.doubts.unknown >= run.transfers;
        Report {
            holds: history_clean && end.total == end.expected && end.records == 0 && end.locks == 0 && enough,
            accounts: run.accounts,
            workers: run.workers,
            seed: run.seed,
            money_in: end.expected,
            money_out: end.total,
            transfers: work.committed,
            conflicts: work.conflicts,
            kills: work.kills,
            under_way_at_kills: work.under_way,
            doubts: work.doubts,
            records_left: end.records,
            locks_left: end.locks,
            seconds,
            transfers_per_second: if seconds > 0.0 { work.committed as f64 / seconds } else { 0.0 },
            latency_micros: work.latencies.as_ref().map(|latencies| Percentiles {
                p50: latencies.value_at_quantile(0.5),
                p99: latencies.value_at_quantile(0.99),
                p999: latencies.value_at_quantile(0.999),
            }),
            history_clean,
            isolation: verdict.expectation.isolation,
            anomalies,
            old_version_reads: verdict.report.counts.old_version_reads,
        }
    }

    pub(super) fn text(&self) -> String {
        let mut lines = vec![
            format!(
                "money in {}, money out {}: {}",
                self.money_in,
                self.money_out,
                if self.money_in == self.money_out { "nothing is lost or made" } else { "THE MONEY IS WRONG" }
            ),
            format!(
                "{} transfers by {} workers between {} accounts in {:.1} s ({:.0}/s), {} conflicts, {} reads of old versions",
                self.transfers,
                self.workers,
                self.accounts,
                self.seconds,
                self.transfers_per_second,
                self.conflicts,
                self.old_version_reads
            ),
        ];
        if let Some(latency) = &self.latency_micros {
            lines.push(format!("latency p50 {} us, p99 {} us, p99.9 {} us", latency.p50, latency.p99, latency.p999));
        }
        if self.kills > 0 {
            lines.push(format!(
                "{} kills; {} transactions were under way when it happened",
                self.kills, self.under_way_at_kills
            ));
        }
        lines.extend(told_of(&self.doubts));
        let isolation = match self.isolation {
            handfast_history::Isolation::Snapshot => "snapshot isolation",
            handfast_history::Isolation::Serializable => "serializability",
        };
        if self.history_clean {
            lines.push(format!("the history is clean: two judges found nothing against {isolation}"));
        } else {
            lines.push(format!("the history breaks {isolation}:"));
            lines.extend(self.anomalies.iter().cloned());
        }
        if self.records_left > 0 {
            lines.push(format!("{} records were left behind", self.records_left));
        }
        if self.locks_left > 0 {
            lines.push(format!("{} accounts were left locked", self.locks_left));
        }
        lines.push(format!("seed {}", self.seed));
        lines.join("\n")
    }
}
