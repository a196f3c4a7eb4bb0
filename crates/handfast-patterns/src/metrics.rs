//! The metrics of the patterns, reported through the facade of the crate `metrics` to the recorder that the program
//! has installed.
//!
//! If no recorder is installed, an event costs a few hundred nanoseconds and nothing is kept. A program that installs
//! a recorder calls [`describe`] once, so that the recorder knows units and meanings. Every name, label and event is
//! in `docs/metrics.md`.
//!
//! ```text
//! handfast_job_queue_events_total{collection="shop.jobs", event="claimed"} 1      events since the process started
//! handfast_job_queue_wait_seconds{collection="shop.jobs"} 0.25                    durations
//! handfast_job_queue_jobs{collection="shop.jobs", state="due"} 12                 numbers at the last look
//! ```
//!
//! The process that receives the outcome of an event counts it. An event whose outcome no process received (the
//! process died, or the answer was lost twice) is not counted; an event within a transaction that is rolled back later
//! is counted. The counters show the activity of processes; only the documents show the state.

#[cfg(test)]
mod durations;
#[cfg(test)]
mod recorder;
#[cfg(test)]
mod spans;
#[cfg(test)]
mod tests;

use std::time::Duration;

use handfast_store::{Clock, Namespace};
use metrics::{Unit, counter, gauge, histogram};

/// The number of background rounds: [`crate::Runner`].
pub(crate) const RUNNER_ROUNDS: &str = "handfast_runner_rounds_total";
pub(crate) const RUNNER_ITEMS: &str = "handfast_runner_items_total";
pub(crate) const RUNNER_SECONDS: &str = "handfast_runner_round_seconds";

const JOBS: &str = "handfast_job_queue_events_total";
const LEDGER: &str = "handfast_ledger_events_total";
const TWO_PHASE: &str = "handfast_two_phase_events_total";
const SYNC: &str = "handfast_sync_flag_events_total";
const TREE: &str = "handfast_versioned_tree_events_total";
const ONCE: &str = "handfast_exactly_once_events_total";

/// An event that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    JobEnqueued,
    JobDuplicate,
    JobClaimed,
    JobCompleted,
    JobFailed,
    JobSnoozed,
    JobReleased,
    JobCrashed,
    JobUnread,
    JobDead,
    JobCanceled,
    JobLost,
    EntryPosted,
    EntryRepeated,
    EntryRefused,
    EntryRaced,
    EntryCommitted,
    EntryCanceled,
    HoldExpired,
    PlaceAbandoned,
    TransactionBegun,
    TransactionClaimed,
    TransactionApplied,
    TransactionDone,
    TransactionRefused,
    TransactionCanceled,
    TransactionTakenOver,
    ParticipantRepaired,
    MainChanged,
    CopyWritten,
    FlagRemoved,
    MainLeft,
    FlagSwept,
    CopyStale,
    CopyRepaired,
    VersionCommitted,
    VersionConflict,
    VersionSwept,
    OrphanRemoved,
    VersionPruned,
    UpdateApplied,
    UpdateRepeated,
    UpdateRefused,
    UpdateMissing,
    UpdateFenced,
    TokenSettled,
}

impl Event {
    /// Returns the metric, and the value of its label `event`.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Event::JobEnqueued => (JOBS, "enqueued"),
            Event::JobDuplicate => (JOBS, "duplicate"),
            Event::JobClaimed => (JOBS, "claimed"),
            Event::JobCompleted => (JOBS, "completed"),
            Event::JobFailed => (JOBS, "failed"),
            Event::JobSnoozed => (JOBS, "snoozed"),
            Event::JobReleased => (JOBS, "released"),
            Event::JobCrashed => (JOBS, "crashed"),
            Event::JobUnread => (JOBS, "unread"),
            Event::JobDead => (JOBS, "dead"),
            Event::JobCanceled => (JOBS, "canceled"),
            Event::JobLost => (JOBS, "lost"),
            Event::EntryPosted => (LEDGER, "posted"),
            Event::EntryRepeated => (LEDGER, "repeated"),
            Event::EntryRefused => (LEDGER, "refused"),
            Event::EntryRaced => (LEDGER, "raced"),
            Event::EntryCommitted => (LEDGER, "committed"),
            Event::EntryCanceled => (LEDGER, "canceled"),
            Event::HoldExpired => (LEDGER, "expired"),
            Event::PlaceAbandoned => (LEDGER, "abandoned"),
            Event::TransactionBegun => (TWO_PHASE, "begun"),
            Event::TransactionClaimed => (TWO_PHASE, "claimed"),
            Event::TransactionApplied => (TWO_PHASE, "applied"),
            Event::TransactionDone => (TWO_PHASE, "done"),
            Event::TransactionRefused => (TWO_PHASE, "refused"),
            Event::TransactionCanceled => (TWO_PHASE, "canceled"),
            Event::TransactionTakenOver => (TWO_PHASE, "taken_over"),
            Event::ParticipantRepaired => (TWO_PHASE, "repaired"),
            Event::MainChanged => (SYNC, "changed"),
            Event::CopyWritten => (SYNC, "copied"),
            Event::FlagRemoved => (SYNC, "synced"),
            Event::MainLeft => (SYNC, "left"),
            Event::FlagSwept => (SYNC, "swept"),
            Event::CopyStale => (SYNC, "stale"),
            Event::CopyRepaired => (SYNC, "repaired"),
            Event::VersionCommitted => (TREE, "committed"),
            Event::VersionConflict => (TREE, "conflict"),
            Event::VersionSwept => (TREE, "swept"),
            Event::OrphanRemoved => (TREE, "orphans"),
            Event::VersionPruned => (TREE, "pruned"),
            Event::UpdateApplied => (ONCE, "applied"),
            Event::UpdateRepeated => (ONCE, "repeated"),
            Event::UpdateRefused => (ONCE, "refused"),
            Event::UpdateMissing => (ONCE, "missing"),
            Event::UpdateFenced => (ONCE, "fenced"),
            Event::TokenSettled => (ONCE, "settled"),
        }
    }
}

/// A duration, for histograms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Span {
    JobWait,
    JobRun,
    Post,
    Transaction,
    Carry,
    Write,
    Update,
}

impl Span {
    fn name(self) -> &'static str {
        match self {
            Span::JobWait => "handfast_job_queue_wait_seconds",
            Span::JobRun => "handfast_job_queue_run_seconds",
            Span::Post => "handfast_ledger_post_seconds",
            Span::Transaction => "handfast_two_phase_run_seconds",
            Span::Carry => "handfast_sync_flag_carry_seconds",
            Span::Write => "handfast_versioned_tree_write_seconds",
            Span::Update => "handfast_exactly_once_apply_seconds",
        }
    }
}

/// An amount, or the age of the oldest item, for gauges. The second label, where there is one, names what is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    Jobs(&'static str),
    OldestDue,
    Uncommitted,
    OldestUncommitted,
    Transactions(&'static str),
    Abandoned,
    Flags(&'static str),
    OldestFlag,
}

impl Level {
    fn names(self) -> (&'static str, Option<(&'static str, &'static str)>) {
        match self {
            Level::Jobs(state) => ("handfast_job_queue_jobs", Some(("state", state))),
            Level::OldestDue => ("handfast_job_queue_oldest_due_seconds", None),
            Level::Uncommitted => ("handfast_ledger_uncommitted", None),
            Level::OldestUncommitted => ("handfast_ledger_oldest_uncommitted_seconds", None),
            Level::Transactions(state) => ("handfast_two_phase_transactions", Some(("state", state))),
            Level::Abandoned => ("handfast_two_phase_abandoned", None),
            Level::Flags(of) => ("handfast_sync_flag_flags", Some(("of", of))),
            Level::OldestFlag => ("handfast_sync_flag_oldest_seconds", None),
        }
    }
}

/// Describes the metrics of the patterns, with their units, to the recorder that is installed. Call it once after the
/// recorder was installed.
pub fn describe() {
    for (name, what) in [
        (RUNNER_ROUNDS, "rounds of background work"),
        (RUNNER_ITEMS, "items of rounds of background work"),
        (JOBS, "what happened to jobs"),
        (LEDGER, "what happened to entries of a ledger"),
        (TWO_PHASE, "steps of transactions in two phases"),
        (SYNC, "what happened to main documents and their copies"),
        (TREE, "what happened to versions of trees"),
        (ONCE, "updates with a token"),
    ] {
        metrics::describe_counter!(name, Unit::Count, what);
    }
    for (span, what) in [
        (Span::JobWait, "from when a job was due to its claim"),
        (Span::JobRun, "from the begin of a job's handler until its end is written"),
        (Span::Post, "to post an entry, races that were lost included"),
        (Span::Transaction, "from the claim of a transaction, or its recovery, to its end"),
        (Span::Carry, "to carry a version to all copies"),
        (Span::Write, "from the begin of a write to its commit"),
        (Span::Update, "of an update with a token"),
    ] {
        metrics::describe_histogram!(span.name(), Unit::Seconds, what);
    }
    metrics::describe_histogram!(RUNNER_SECONDS, Unit::Seconds, "of a round of background work");
    for (level, unit, what) in [
        (Level::Jobs(""), Unit::Count, "jobs in a state"),
        (Level::OldestDue, Unit::Seconds, "for how long the oldest job has been due"),
        (Level::Uncommitted, Unit::Count, "entries that are not committed"),
        (Level::OldestUncommitted, Unit::Seconds, "age of the oldest entry that is not committed"),
        (Level::Transactions(""), Unit::Count, "transactions in a state"),
        (Level::Abandoned, Unit::Count, "transactions that the recovery would take over"),
        (Level::Flags(""), Unit::Count, "documents with a flag"),
        (Level::OldestFlag, Unit::Seconds, "age of the oldest flag"),
    ] {
        metrics::describe_gauge!(level.names().0, unit, what);
    }
}

/// Counts an event that happened to `times` documents of a collection.
pub(crate) fn count(event: Event, collection: &Namespace, times: u64) {
    if times > 0 {
        let (name, event) = event.names();
        counter!(name, "collection" => collection.to_string(), "event" => event).increment(times);
    }
}

/// Records a duration.
pub(crate) fn took(span: Span, collection: &Namespace, time: Duration) {
    histogram!(span.name(), "collection" => collection.to_string()).record(time);
}

/// Records the duration from `begun` until now.
pub(crate) fn took_since(span: Span, collection: &Namespace, clock: &dyn Clock, begun: Duration) {
    took(span, collection, clock.elapsed().saturating_sub(begun));
}

/// Sets a gauge.
pub(crate) fn level(level: Level, collection: &Namespace, value: f64) {
    let collection = collection.to_string();
    match level.names() {
        (name, Some((label, of))) => gauge!(name, "collection" => collection, label => of).set(value),
        (name, None) => gauge!(name, "collection" => collection).set(value),
    }
}

/// Sets a gauge to the age of the oldest item; 0 if there is none.
pub(crate) fn age(of: Level, collection: &Namespace, age: Option<Duration>) {
    level(of, collection, age.unwrap_or_default().as_secs_f64());
}

/// Records a round of background work.
pub(crate) fn round(runner: &'static str, time: Duration, result: Option<crate::Round>) {
    histogram!(RUNNER_SECONDS, "runner" => runner).record(time);
    let ended = if result.is_some() { "done" } else { "failed" };
    counter!(RUNNER_ROUNDS, "runner" => runner, "result" => ended).increment(1);
    for (result, items) in result.into_iter().flat_map(|round| [("done", round.done), ("failed", round.failed)]) {
        if items > 0 {
            counter!(RUNNER_ITEMS, "runner" => runner, "result" => result).increment(items);
        }
    }
}
