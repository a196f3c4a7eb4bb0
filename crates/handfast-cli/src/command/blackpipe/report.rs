//! The report of an exploration: a table for people, JSON for programs, and the command line that repeats a finding.

use std::fmt;

use handfast_blackpipe::{Fault, Injection, Pair};
use serde_json::{Value, json};

use super::arguments::ExploreArguments;
use super::program::{Ended, Finished};
use super::shell_word::{flag, quoted};
use crate::exit::Exit;
use crate::listing::{Listing, counted};

#[derive(Clone, Debug)]
pub(super) struct PairRun {
    pub(super) pair: Pair,
    pub(super) outcome: RunOutcome,
}

#[derive(Clone, Debug)]
pub(super) enum RunOutcome {
    /// The program ran, and the data were checked.
    Checked(CheckedRun),
    /// The run failed for this reason; nothing is known about the pair.
    Failed(String),
}

/// A run whose data were checked.
#[derive(Clone, Debug)]
pub(super) struct CheckedRun {
    pub(super) occurrence: Occurrence,
    pub(super) program: Ended,
    pub(super) checked: Checked,
}

/// Whether the operation of a pair met the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occurrence {
    Met,
    /// It occurred, and has no reply, which the fault needs.
    WithoutReply,
    Missing,
    /// It met the fault, and the server did not answer a request that the fault sends later.
    NotDelivered,
}

/// The results of the checks after a run.
#[derive(Clone, Debug)]
pub(super) struct Checked {
    /// The result of --check, if it is given.
    pub(super) program: Option<Finished>,
    /// A sentence for each check without a program that fails.
    pub(super) violations: Vec<String>,
}

impl Checked {
    pub(super) fn is_right(&self) -> bool {
        self.program.as_ref().is_none_or(|check| check.ended.is_success()) && self.violations.is_empty()
    }

    /// Returns what is wrong, for people.
    fn reasons(&self) -> String {
        let failed = self.program.iter().filter(|check| !check.ended.is_success());
        let failed = failed.map(|check| match check.reason() {
            line if line.is_empty() => format!("--check fails ({})", check.ended),
            line => line,
        });
        failed.chain(self.violations.iter().cloned()).collect::<Vec<_>>().join("; ")
    }
}

impl fmt::Display for Checked {
    /// Writes the end of --check, or the result of the other checks.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.program, self.violations.is_empty()) {
            (Some(check), _) => check.ended.fmt(f),
            (None, true) => f.write_str("passed"),
            (None, false) => f.write_str("failed"),
        }
    }
}

/// The result of the run of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Right,
    /// The check failed, or the program did not end.
    Finding,
    /// The operation did not meet the whole fault, so nothing is known.
    NotReached,
    /// The run failed, so nothing is known.
    Failed,
}

impl PairRun {
    pub(super) fn verdict(&self) -> Verdict {
        match &self.outcome {
            RunOutcome::Failed(_) => Verdict::Failed,
            RunOutcome::Checked(run) if !run.checked.is_right() || run.program == Ended::TimedOut => Verdict::Finding,
            RunOutcome::Checked(run) if run.occurrence == Occurrence::Met => Verdict::Right,
            RunOutcome::Checked(_) => Verdict::NotReached,
        }
    }

    /// Returns the output of --check, if there is any.
    pub(super) fn check_output(&self) -> Option<&str> {
        let RunOutcome::Checked(run) = &self.outcome else { return None };
        run.checked.program.as_ref().map(|check| check.output.as_str())
    }

    /// Returns the output of --check, to be shortened.
    pub(super) fn check_output_mut(&mut self) -> Option<&mut String> {
        let RunOutcome::Checked(run) = &mut self.outcome else { return None };
        run.checked.program.as_mut().map(|check| &mut check.output)
    }

    /// Returns the cells of the run for people: program, check and result.
    fn cells(&self) -> [String; 3] {
        let result = match self.verdict() {
            Verdict::Right => "right".to_owned(),
            Verdict::Finding => format!("FINDING {}", self.reason()),
            Verdict::NotReached => format!("not reached: {}", self.reason()),
            Verdict::Failed => format!("FAILED {}", self.reason()),
        };
        match &self.outcome {
            RunOutcome::Failed(_) => ["-".to_owned(), "-".to_owned(), result],
            RunOutcome::Checked(run) => [run.program.to_string(), run.checked.to_string(), result],
        }
    }

    /// Returns why the run is not right.
    pub(super) fn reason(&self) -> String {
        match (&self.outcome, self.verdict()) {
            (RunOutcome::Failed(reason), _) => reason.clone(),
            (RunOutcome::Checked(_), Verdict::Right) => String::new(),
            (RunOutcome::Checked(run), Verdict::Finding) if run.checked.is_right() => {
                "the program did not end".to_owned()
            }
            (RunOutcome::Checked(run), Verdict::Finding) => run.checked.reasons(),
            (RunOutcome::Checked(run), _) if run.occurrence == Occurrence::WithoutReply => format!(
                "the write is unacknowledged (w: 0) and has no reply, which {} needs: it can meet {}",
                self.pair.fault,
                faults_without_reply()
            ),
            (RunOutcome::Checked(run), _) if run.occurrence == Occurrence::NotDelivered => format!(
                "the server did not answer a request that {} sends later; all copies of duplicate together have 64 MiB: explore the operation with less data",
                self.pair.fault
            ),
            (RunOutcome::Checked(_), _) => "the operation did not occur".to_owned(),
        }
    }
}

/// Returns the names of the faults that an operation without a reply can meet.
fn faults_without_reply() -> String {
    let possible = Fault::ALL.into_iter().filter(|fault| fault.is_explored() && !Injection::from(*fault).needs_reply());
    possible.map(Fault::name).collect::<Vec<_>>().join(", ")
}

/// All runs of an exploration.
pub(super) struct Report<'a> {
    pub(super) arguments: &'a ExploreArguments,
    pub(super) runs: Vec<PairRun>,
    /// The pairs that did not run, because the exploration was asked to stop.
    pub(super) not_run: Vec<Pair>,
}

impl Report<'_> {
    fn count(&self, verdict: Verdict) -> u64 {
        self.runs.iter().filter(|run| run.verdict() == verdict).count() as u64
    }

    pub(super) fn exit(&self) -> Exit {
        if self.count(Verdict::Right) < self.runs.len() as u64 {
            Exit::GuaranteeBroken
        } else if self.not_run.is_empty() {
            Exit::Good
        } else {
            Exit::Failed
        }
    }

    /// Returns the report for people.
    pub(super) fn text(&self) -> String {
        let mut listing = Listing::new(&["pair", "program", "check", "result"]);
        for run in &self.runs {
            listing.push([run.pair.to_string()].into_iter().chain(run.cells()), Value::Null);
        }
        let mut lines = vec![listing.table()];
        let repeated = |run: &&PairRun| matches!(run.verdict(), Verdict::Finding | Verdict::Failed);
        let repeated = self.runs.iter().filter(repeated);
        lines.extend(repeated.map(|run| format!("replay: {}", self.replay_line(&run.pair))));
        let is_missing = |run: &&PairRun| {
            matches!(&run.outcome, RunOutcome::Checked(checked) if checked.occurrence == Occurrence::Missing)
                && run.verdict() == Verdict::NotReached
        };
        let missing = self.runs.iter().filter(is_missing).count() as u64;
        if missing > 0 {
            lines.push(format!(
                "{} did not occur: the program sends other commands from run to run, or in --replay the number is too high",
                counted(missing, "operations")
            ));
        }
        let failed = self.count(Verdict::Failed);
        if failed > 0 {
            lines.push(format!(
                "{} failed before the data were checked: nothing is known about the program there",
                counted(failed, "runs")
            ));
        }
        let findings = self.count(Verdict::Finding);
        let (ran, not_run) = (self.runs.len() as u64, self.not_run.len() as u64);
        let pairs = match not_run {
            0 => counted(ran, "pairs"),
            _ => format!("stopped after {ran} of {}", counted(ran + not_run, "pairs")),
        };
        lines.push(format!("{pairs}, {}", counted(findings, "findings")));
        lines.join("\n")
    }

    /// Returns the report for programs.
    pub(super) fn json(&self) -> Value {
        let pairs: Vec<Value> = self.runs.iter().map(|run| self.pair_json(run)).collect();
        json!({
            "pairs": pairs,
            "findings": self.count(Verdict::Finding),
            "not_reached": self.count(Verdict::NotReached),
            "failed": self.count(Verdict::Failed),
            "not_run": self.not_run.len(),
        })
    }

    fn pair_json(&self, run: &PairRun) -> Value {
        let verdict = match run.verdict() {
            Verdict::Right => "right",
            Verdict::Finding => "finding",
            Verdict::NotReached => "not-reached",
            Verdict::Failed => "failed",
        };
        let (program, check, violations) = match &run.outcome {
            RunOutcome::Failed(_) => (Value::Null, Value::Null, &[][..]),
            RunOutcome::Checked(CheckedRun { program, checked, .. }) => {
                let check = checked.program.as_ref().map_or(Value::Null, |check| ended_json(check.ended));
                (ended_json(*program), check, checked.violations.as_slice())
            }
        };
        json!({
            "operation": run.pair.operation.to_string(),
            "fault": run.pair.fault.name(),
            "result": verdict,
            "reason": run.reason(),
            "program": program,
            "check": check,
            "check_output": run.check_output(),
            "violations": violations,
            "replay": self.replay_line(&run.pair),
        })
    }

    /// Returns the command line that runs a pair again.
    pub(super) fn replay_line(&self, pair: &Pair) -> String {
        replay_line(self.arguments, pair)
    }
}

fn ended_json(ended: Ended) -> Value {
    match ended {
        Ended::Exit(code) => json!({ "exit_code": code }),
        Ended::Signal(signal) => json!({ "signal": signal }),
        Ended::TimedOut => json!({ "timed_out": true }),
    }
}

fn replay_line(arguments: &ExploreArguments, pair: &Pair) -> String {
    let mut words = vec!["handfast blackpipe explore".to_owned()];
    if let Some(setup) = &arguments.setup {
        words.push(flag("--setup", setup));
    }
    words.extend(arguments.checks.check.iter().map(|check| flag("--check", check)));
    words.extend(arguments.checks.data.words());
    if arguments.times.get() > 1 {
        words.push(format!("--times {}", arguments.times));
    }
    match pair.fault {
        Fault::Delay | Fault::Reorder => words.push(format!("--delay {}", quoted(&arguments.delay.to_string()))),
        Fault::Error => words.extend(arguments.error.words()),
        _ => {}
    }
    words.push(format!("--timeout {}", quoted(&arguments.timeout.to_string())));
    words.push(format!("--replay {pair} --"));
    words.extend(arguments.program.iter().map(|word| quoted(word)));
    words.join(" ")
}

#[cfg(test)]
mod tests;
