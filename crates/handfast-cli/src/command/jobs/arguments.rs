//! The arguments of `handfast jobs`.

use bson::{DateTime, Document};
use handfast_patterns::job_queue::JobState;

use crate::configuration::Span;
use crate::flags::{AnyStoreFlags, LimitFlags, values};
use crate::id::Id;
use clap::{Args, Subcommand};

/// The commands on a queue of jobs.
#[derive(Debug, Subcommand)]
pub(crate) enum JobsArguments {
    /// Count the jobs by state, and report what needs attention
    #[command(after_help = "Example:\n  handfast jobs status --data /srv/handfast --database shop")]
    Status {
        #[command(flatten)]
        queue: Box<JobsFlags>,
    },
    /// List jobs, the oldest of each state first
    #[command(after_help = "Examples:\n  \
        handfast jobs list --data /srv/handfast --database shop\n  \
        handfast jobs list --data /srv/handfast --database shop --state failed --type mail\n  \
        handfast jobs list --database shop --state done --limit 100 --after 65a1b2c3d4e5f60718293a4b")]
    List {
        #[command(flatten)]
        queue: Box<JobsFlags>,
        /// Only jobs in this state; may be repeated [default: failed, processing and todo]
        #[arg(long = "state", value_name = "STATE")]
        states: Vec<JobStateName>,
        /// Only jobs of this type
        #[arg(long = "type", value_name = "TYPE")]
        kind: Option<String>,
        /// Only jobs that were enqueued at least this long ago
        #[arg(long, value_name = "AGE")]
        older_than: Option<Span>,
        /// Start after the job with this id, the last one of the previous page; needs exactly one --state
        #[arg(long, value_name = "ID", requires = "states")]
        after: Option<Id>,
        #[command(flatten)]
        limit: LimitFlags,
    },
    /// List the recurring jobs with the times at which they are due, the nearest first
    #[command(after_help = "Example:\n  handfast jobs schedules --data /srv/handfast --database shop")]
    Schedules {
        #[command(flatten)]
        queue: Box<JobsFlags>,
        /// Collection of the schedules
        #[arg(long, value_name = "NAME", default_value = "schedules")]
        schedules: String,
        #[command(flatten)]
        limit: LimitFlags,
    },
    /// Show a job with all its fields
    #[command(
        after_help = "Example:\n  handfast jobs show 65a1b2c3d4e5f60718293a4b --data /srv/handfast --database shop"
    )]
    Show {
        #[command(flatten)]
        queue: Box<JobsFlags>,
        /// _id of the job
        id: Id,
    },
    /// Add a job to the queue
    #[command(
        after_help = "With --id, and with --unique and --for-ever, the command can be repeated: the job is enqueued once.\n\n\
        Examples:\n  \
        handfast jobs enqueue mail '{\"to\": \"ann\"}' --id ann-1 --data /srv/handfast --database shop\n  \
        handfast jobs enqueue report --at 2027-01-01T09:00:00Z --data /srv/handfast --database shop\n  \
        handfast jobs enqueue digest --unique d --window 24h --data /srv/handfast --database shop"
    )]
    Enqueue {
        #[command(flatten)]
        queue: Box<JobsFlags>,
        /// Type of the job, which selects its handler
        #[arg(value_name = "TYPE")]
        kind: String,
        /// Details for the handler, a document as Extended JSON
        #[arg(value_name = "JSON", default_value = "{}", value_parser = values::document)]
        details: Document,
        #[command(flatten)]
        job: Box<NewJobFlags>,
    },
    /// Put failed jobs back into the queue, with all their attempts again
    #[command(after_help = "Examples:\n  \
        handfast jobs retry 65a1b2c3d4e5f60718293a4b --data /srv/handfast --database shop\n  \
        handfast jobs retry --all --type mail --data /srv/handfast --database shop")]
    Retry {
        #[command(flatten)]
        queue: Box<JobsFlags>,
        #[command(flatten)]
        failed: FailedFlags,
    },
    /// Remove failed jobs for good
    #[command(after_help = "Examples:\n  \
        handfast jobs discard 65a1b2c3d4e5f60718293a4b --data /srv/handfast --database shop\n  \
        handfast jobs discard --all --type mail --data /srv/handfast --database shop")]
    Discard {
        #[command(flatten)]
        queue: Box<JobsFlags>,
        #[command(flatten)]
        failed: FailedFlags,
    },
    /// Cancel jobs; a worker that is processing one stops at its next sign of life
    #[command(
        after_help = "Example:\n  handfast jobs cancel 65a1b2c3d4e5f60718293a4b --data /srv/handfast --database shop"
    )]
    Cancel {
        #[command(flatten)]
        queue: Box<JobsFlags>,
        /// _ids of the jobs
        #[arg(value_name = "ID", required = true)]
        ids: Vec<Id>,
    },
    /// Stop all workers from claiming jobs until `resume`
    #[command(after_help = "Workers see the pause within a second. They finish the jobs that they have.\n\n\
        Example:\n  handfast jobs pause --why 'the mail server is moved' --data /srv/handfast --database shop")]
    Pause {
        #[command(flatten)]
        queue: Box<JobsFlags>,
        /// Reason, which `jobs status` shows
        #[arg(long, value_name = "TEXT", default_value = "")]
        why: String,
    },
    /// Let workers claim jobs of a paused queue again
    #[command(after_help = "Example:\n  handfast jobs resume --data /srv/handfast --database shop")]
    Resume {
        #[command(flatten)]
        queue: Box<JobsFlags>,
    },
    /// Return jobs to the queue whose workers have been silent for longer than the lease
    #[command(
        visible_alias = "reclaim",
        after_help = "Example:\n  handfast jobs recover --lease 60s --data /srv/handfast --database shop"
    )]
    Recover {
        #[command(flatten)]
        queue: Box<JobsFlags>,
        /// Give up a job after this many of its workers fell silent [default: as recorded, otherwise 5]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        crashes_max: Option<u32>,
    },
    /// Remove old jobs that are done, failed or canceled
    #[command(
        after_help = "A delayed copy of a request can enqueue a removed job again: keep jobs for longer than a request \
        may be delayed.\n\n\
        Example:\n  handfast jobs purge --done 7d --failed 90d --data /srv/handfast --database shop"
    )]
    Purge {
        #[command(flatten)]
        queue: Box<JobsFlags>,
        /// Remove jobs that were done at least this long ago
        #[arg(long, value_name = "AGE")]
        done: Span,
        /// Remove jobs that failed or were canceled at least this long ago
        #[arg(long, value_name = "AGE")]
        failed: Span,
    },
}

/// The queue of a command.
#[derive(Args, Debug)]
pub(crate) struct JobsFlags {
    #[command(flatten)]
    pub(crate) open: AnyStoreFlags,
    /// Collection of the jobs
    #[arg(long, value_name = "NAME", default_value = "jobs")]
    pub(crate) collection: String,
    /// Time that the application lets a worker be silent; `recover` requires it, other commands use 60s
    #[arg(long, value_name = "TIME")]
    pub(crate) lease: Option<Span>,
}

/// The properties of a new job beside its type and its details.
#[derive(Args, Debug)]
pub(crate) struct NewJobFlags {
    /// _id of the job; if it is in the queue already, nothing is enqueued
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<Id>,
    /// Priority; larger ones are claimed first
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) priority: i32,
    /// Time before which it is not claimed, as in 2027-01-01T09:00:00Z
    #[arg(long, value_name = "DATE", value_parser = values::date)]
    pub(crate) at: Option<DateTime>,
    /// Time from now before which it is not claimed
    #[arg(long, value_name = "TIME", conflicts_with = "at")]
    pub(crate) delay: Option<Span>,
    /// Number of failures after which it is given up [default: that of the queue]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) attempts: Option<u32>,
    /// Time after which its handler is stopped [default: that of the worker]
    #[arg(long, value_name = "TIME")]
    pub(crate) timeout: Option<Span>,
    /// Enqueue it only if no job with this key waits or is being processed
    #[arg(long, value_name = "KEY")]
    pub(crate) unique: Option<String>,
    /// With --unique: only if no job was enqueued with the key and --window in the same window, counted from 1970
    #[arg(long, value_name = "TIME", requires = "unique")]
    pub(crate) window: Option<Span>,
    /// With --unique: only if no job that is kept was enqueued with the key and --for-ever
    #[arg(long, requires = "unique", conflicts_with = "window")]
    pub(crate) for_ever: bool,
    /// Process it after all earlier jobs with this key, one at a time; for a queue that is ordered
    #[arg(long, value_name = "KEY")]
    pub(crate) order: Option<String>,
}

/// The selection of failed jobs.
#[derive(Args, Debug)]
pub(crate) struct FailedFlags {
    /// _ids of the jobs
    #[arg(value_name = "ID", required_unless_present = "all", conflicts_with = "all")]
    pub(crate) ids: Vec<Id>,
    /// All failed jobs, the oldest first
    #[arg(long)]
    pub(crate) all: bool,
    /// With --all: only jobs of this type
    #[arg(long = "type", value_name = "TYPE", requires = "all")]
    pub(crate) kind: Option<String>,
    /// With --all: maximum number of jobs
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) limit: u32,
}

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum JobStateName {
    /// Waiting for its time or for a worker
    Todo,
    /// Being processed by a worker
    Processing,
    /// Finished successfully
    Done,
    /// Given up after its last attempt (a dead letter)
    Failed,
    /// Canceled
    Canceled,
}

impl From<JobStateName> for JobState {
    fn from(name: JobStateName) -> Self {
        match name {
            JobStateName::Todo => JobState::Todo,
            JobStateName::Processing => JobState::Processing,
            JobStateName::Done => JobState::Done,
            JobStateName::Failed => JobState::Failed,
            JobStateName::Canceled => JobState::Canceled,
        }
    }
}

impl JobsArguments {
    /// Returns the queue of a command.
    pub(crate) fn queue(&self) -> &JobsFlags {
        match self {
            JobsArguments::Status { queue }
            | JobsArguments::List { queue, .. }
            | JobsArguments::Schedules { queue, .. }
            | JobsArguments::Show { queue, .. }
            | JobsArguments::Enqueue { queue, .. }
            | JobsArguments::Retry { queue, .. }
            | JobsArguments::Discard { queue, .. }
            | JobsArguments::Cancel { queue, .. }
            | JobsArguments::Pause { queue, .. }
            | JobsArguments::Resume { queue }
            | JobsArguments::Recover { queue, .. }
            | JobsArguments::Purge { queue, .. } => queue,
        }
    }
}
