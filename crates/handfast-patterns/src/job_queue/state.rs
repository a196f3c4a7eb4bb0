//! The states of a job, and the events that change them.

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
    /// It waits for its time, and then for a worker.
    Todo,
    /// A worker has it.
    Processing,
    /// It was done.
    Done,
    /// It was given up: it failed for good, or failed or crashed too often. Such jobs are the dead letters.
    Failed,
    /// It was canceled, and is never tried again.
    Canceled,
}

/// An event that changes the state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobEvent {
    /// A worker claimed it.
    Claimed,
    /// Its worker finished it.
    Completed,
    /// It returned to the queue: it failed, was snoozed, was released, or its worker was silent for too long.
    Returned,
    /// It was given up.
    GivenUp,
    /// It was canceled.
    Canceled,
    /// It was returned to the queue after it had been given up.
    OrderedAgain,
}

impl JobState {
    /// All states.
    pub const ALL: [JobState; 5] =
        [JobState::Todo, JobState::Processing, JobState::Done, JobState::Failed, JobState::Canceled];

    /// Returns the state after the event; `None` if the event cannot happen in this state.
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

/// The error for a text that names no state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("states of jobs are TODO, PROCESSING, DONE, FAILED and CANCELED")]
pub struct NoJobState;

impl FromStr for JobState {
    type Err = NoJobState;

    fn from_str(text: &str) -> Result<Self, NoJobState> {
        JobState::ALL.into_iter().find(|state| state.name() == text).ok_or(NoJobState)
    }
}
