//! The report of an exploration: a table for people, JSON for programs, and the command line that repeats a finding.

use std::fmt;

use handfast_blackpipe::{Fault, Pair};
use serde_json::{Value, json};

use super::arguments::ExploreArguments;
use super::program::{Ended, Finished};
use crate::exit::Exit;
use crate::listing::{Listing, counted};

/// The run of a pair.
#[derive(Clone, Debug)]
pub(super) struct PairRun {
    pub(super) pair: Pair,
    /// Whether the operation occurred, so that it met the fault.
    pub(super) is_reached: bool,
    pub(super) program: Ended,
    pub(super) checked: Checked,
}

/// The results of the checks after a run.
#[derive(Clone, Debug)]
pub(super) struct Checked {
    /// That of --check, if it is given.
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
        let failed = failed.map(|check| match check.last_line.as_str() {
            "" => format!("--check fails ({})", check.ended),
            line => line.to_owned(),
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
    /// The operation did not occur, so nothing is known.
    NotReached,
}

impl PairRun {
    pub(super) fn verdict(&self) -> Verdict {
        if !self.checked.is_right() || self.program == Ended::TimedOut {
            Verdict::Finding
        } else if self.is_reached {
            Verdict::Right
        } else {
            Verdict::NotReached
        }
    }

    /// Returns the result for people.
    fn result(&self) -> String {
        match self.verdict() {
            Verdict::Right => "right".to_owned(),
            Verdict::NotReached => "not reached".to_owned(),
            Verdict::Finding => format!("FINDING {}", self.reason()),
        }
    }

    /// Returns why the run is not right.
    pub(super) fn reason(&self) -> String {
        match self.verdict() {
            Verdict::Right => String::new(),
            Verdict::NotReached => "the operation did not occur".to_owned(),
            Verdict::Finding if self.checked.is_right() => "the program did not end".to_owned(),
            Verdict::Finding => self.checked.reasons(),
        }
    }
}

/// All runs of an exploration.
pub(super) struct Report<'a> {
    pub(super) arguments: &'a ExploreArguments,
    pub(super) runs: Vec<PairRun>,
}

impl Report<'_> {
    fn count(&self, verdict: Verdict) -> u64 {
        self.runs.iter().filter(|run| run.verdict() == verdict).count() as u64
    }

    pub(super) fn exit(&self) -> Exit {
        match self.count(Verdict::Right) == self.runs.len() as u64 {
            true => Exit::Good,
            false => Exit::GuaranteeBroken,
        }
    }

    /// Returns the report for people.
    pub(super) fn text(&self) -> String {
        let mut listing = Listing::new(&["pair", "program", "check", "result"]);
        for run in &self.runs {
            let cells = [run.pair.to_string(), run.program.to_string(), run.checked.to_string(), run.result()];
            listing.push(cells, Value::Null);
        }
        let mut lines = vec![listing.table()];
        let findings = self.runs.iter().filter(|run| run.verdict() == Verdict::Finding);
        lines.extend(findings.map(|run| format!("replay: {}", self.replay_line(&run.pair))));
        let not_reached = self.count(Verdict::NotReached);
        if not_reached > 0 {
            lines.push(format!(
                "{} did not occur: the program sends other commands from run to run, or in --replay the number is too high",
                counted(not_reached, "operations")
            ));
        }
        let findings = self.count(Verdict::Finding);
        lines.push(format!("{}, {}", counted(self.runs.len() as u64, "pairs"), counted(findings, "findings")));
        lines.join("\n")
    }

    /// Returns the report for programs.
    pub(super) fn json(&self) -> Value {
        let pairs: Vec<Value> = self.runs.iter().map(|run| self.pair_json(run)).collect();
        json!({
            "pairs": pairs,
            "findings": self.count(Verdict::Finding),
            "not_reached": self.count(Verdict::NotReached),
        })
    }

    fn pair_json(&self, run: &PairRun) -> Value {
        let verdict = match run.verdict() {
            Verdict::Right => "right",
            Verdict::Finding => "finding",
            Verdict::NotReached => "not-reached",
        };
        let check = run.checked.program.as_ref();
        json!({
            "operation": run.pair.operation.to_string(),
            "fault": run.pair.fault.name(),
            "result": verdict,
            "program": ended_json(run.program),
            "check": check.map(|check| ended_json(check.ended)),
            "check_output": check.map(|check| &check.last_line),
            "violations": run.checked.violations,
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
        words.push(format!("--setup {}", quoted(setup)));
    }
    words.extend(arguments.checks.check.iter().map(|check| format!("--check {}", quoted(check))));
    words.extend(arguments.checks.data.words(quoted));
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

/// Returns a word as a shell reads it.
pub(super) fn quoted(word: &str) -> String {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "-_./:=@%+,".contains(character);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests;
