//! The states of a job, and what leads from one to the next.

use std::fmt;
use std::str::FromStr;

/// The state of a job.
///
/// ```text
///            ┌──────────── returned ────────────┐
///            v                                  │
/// enqueued: TODO ───────── claimed ───────> PROCESSING ── completed ──> DONE
///            │  ^                               │
///        given up └── ordered again ── FAILED <─┴── given up
///            └────────────────────────────^
/// canceled: from TODO or PROCESSING to CANCELED, for good
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JobState {
    /// Waits for its time, and then for a worker.
    Todo,
    /// A worker has it.
    Processing,
    /// Finished well.
    Done,
    /// Given up: failed for good, or failed or crashed too often. The dead letters.
    Failed,
    /// It was canceled. No retry changes that.
    Canceled,
}

/// An event in the life of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobEvent {
    /// A worker took it.
    Claimed,
    /// Its worker finished it.
    Completed,
    /// It is to be done again: it failed, was snoozed, was given back, or its worker was silent for too long.
    Returned,
    /// It failed for good.
    GivenUp,
    /// It is canceled.
    Canceled,
    /// It is to be done after all.
    OrderedAgain,
}

impl JobState {
    /// Every state.
    pub const ALL: [JobState; 5] =
        [JobState::Todo, JobState::Processing, JobState::Done, JobState::Failed, JobState::Canceled];

    /// The state after the event; none if it cannot happen in this one.
    pub fn after(self, event: JobEvent) -> Option<JobState> {
        match (self, event) {
            (JobState::Todo, JobEvent::Claimed) => Some(JobState::Processing),
            (JobState::Processing, JobEvent::Completed) => Some(JobState::Done),
            (JobState::Processing, JobEvent::Returned) | (JobState::Failed, JobEvent::OrderedAgain) => {
                Some(JobState::Todo)
            }
            (JobState::Todo | JobState::Processing, JobEvent::GivenUp) => Some(JobState::Failed),
            (JobState::Todo | JobState::Processing, JobEvent::Canceled) => Some(JobState::Canceled),
            (JobState::Todo | JobState::Processing | JobState::Done | JobState::Failed | JobState::Canceled, _) => None,
        }
    }

    /// Returns the name that documents store.
    pub fn name(self) -> &'static str {
        match self {
            JobState::Todo => "TODO",
            JobState::Processing => "PROCESSING",
            JobState::Done => "DONE",
            JobState::Failed => "FAILED",
            JobState::Canceled => "CANCELED",
        }
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text names no state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("states of jobs are TODO, PROCESSING, DONE, FAILED and CANCELED")]
pub struct NoJobState;

impl FromStr for JobState {
    type Err = NoJobState;

    fn from_str(text: &str) -> Result<Self, NoJobState> {
        JobState::ALL.into_iter().find(|state| state.name() == text).ok_or(NoJobState)
    }
}
