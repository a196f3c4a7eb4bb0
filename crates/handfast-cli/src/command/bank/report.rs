//! The report of a run.

use handfast_history::{Anomaly, Verdict};
use serde::Serialize;

use super::arguments::BankMechanism;
use super::progress::Latencies;
use super::totals::Totals;
use super::{FinalState, LostAnswers, Run, RunResult};
use crate::listing::counted;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Whether every promise held.
    pub(super) holds: bool,
    #[serde(flatten)]
    totals: Totals,
    transfers_asked_for: u64,
    conflicts: u64,
    under_way_at_kills: u64,
    #[serde(flatten)]
    lost_answers: LostAnswers,
    records_left: u64,
    #[serde(skip)]
    records_stay: bool,
    locks_left: u64,
    history_clean: bool,
    isolation: handfast_history::Isolation,
    anomalies: Vec<String>,
    old_version_reads: u64,
}

/// Returns the line about lost answers, if there were any.
fn lost_answers_line(lost_answers: &LostAnswers) -> Option<String> {
    let LostAnswers { answers_lost, found_committed, asked_committed, asked_rolled_back, unknown } = lost_answers;
    let asked = asked_committed + asked_rolled_back + unknown;
    (*answers_lost > 0).then(|| {
        format!(
            "{answers_lost} answers were lost; {found_committed} commits were found to be done, {asked} \
             transactions were asked for by id: {asked_committed} had committed, {asked_rolled_back} were rolled back, \
             {unknown} stay unknown"
        )
    })
}

/// Returns whether as many transfers as asked for were made, or may have been.
fn made_enough(committed: u64, lost_answers: &LostAnswers, asked_for: u64) -> bool {
    committed + lost_answers.unknown >= asked_for
}

impl Report {
    pub(super) fn new(run: &Run, work: &RunResult, latencies: &Latencies, end: &FinalState, verdict: &Verdict) -> Self {
        let mut anomalies: Vec<String> = verdict.report.anomalies.iter().map(Anomaly::to_string).collect();
        anomalies.extend(verdict.adya.explanations.iter().cloned());
        anomalies.extend(verdict.disagreement());
        let history_clean = verdict.is_clean() && verdict.disagreement().is_none();
        let mechanism = match run.mechanism {
            BankMechanism::ServerSide => "server-side",
            _ => "transaction",
        };
        let mut totals = Totals::new(run, mechanism, end.expected);
        (totals.money_out, totals.transfers, totals.kills) = (end.total, work.committed, work.kills);
        totals.finish(work.committed, work.took, latencies);
        let enough = made_enough(work.committed, &work.lost_answers, run.transfers);
        let nothing_left = end.locks == 0 && (end.records == 0 || end.records_stay);
        Report {
            holds: history_clean && totals.all_the_money_is_there() && nothing_left && enough,
            totals,
            transfers_asked_for: run.transfers,
            conflicts: work.conflicts,
            under_way_at_kills: work.under_way,
            lost_answers: work.lost_answers,
            records_left: end.records,
            records_stay: end.records_stay,
            locks_left: end.locks,
            history_clean,
            isolation: verdict.expectation.isolation,
            anomalies,
            old_version_reads: verdict.report.counts.old_version_reads,
        }
    }

    pub(super) fn text(&self) -> String {
        let Totals { transfers, workers, accounts, kills, .. } = self.totals;
        let mut lines = vec![
            self.totals.money(self.holds),
            format!(
                "{transfers} transfers by {} between {accounts} accounts {}, {}; {} correctly saw their snapshot instead of newer writes",
                counted(workers, "workers"),
                self.totals.speed(),
                counted(self.conflicts, "conflicts"),
                counted(self.old_version_reads, "reads")
            ),
            self.totals.latency(),
        ];
        if kills > 0 {
            let under_way = self.under_way_at_kills;
            lines.push(format!("{}; transactions in progress at that time: {under_way}", counted(kills, "kills")));
        }
        lines.extend(lost_answers_line(&self.lost_answers));
        let isolation = match self.isolation {
            handfast_history::Isolation::Snapshot => "snapshot isolation",
            handfast_history::Isolation::Serializable => "serializability",
        };
        if self.history_clean {
            lines.push(format!("the history is clean: two checkers found no violation of {isolation}"));
        } else {
            lines.push(format!("the history breaks {isolation}:"));
            lines.extend(self.anomalies.iter().cloned());
        }
        if !made_enough(transfers, &self.lost_answers, self.transfers_asked_for) {
            lines.push(format!("only {transfers} of {} transfers were made", self.transfers_asked_for));
        }
        if self.records_left > 0 {
            let why = if self.records_stay {
                "outcomes are kept for their retention time"
            } else {
                "records were left behind"
            };
            lines.push(format!("{} {why}", self.records_left));
        }
        if self.locks_left > 0 {
            lines.push(format!("accounts that were left locked: {}", self.locks_left));
        }
        lines.push(self.totals.seed());
        lines.join("\n")
    }
}
