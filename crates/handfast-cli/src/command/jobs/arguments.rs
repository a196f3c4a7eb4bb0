//! The arguments of `handfast jobs`.

use handfast_patterns::job_queue::JobState;

use crate::configuration::Span;
use crate::flags::{AnyStoreFlags, LimitFlags};
use crate::id::Id;
use clap::{Args, Subcommand};

/// The commands on a queue of jobs.
#[derive(Debug, Subcommand)]
pub(crate) enum JobsArguments {
    /// Count the jobs by state, and say what needs somebody
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
        /// Jobs in this state; may be given several times [default: failed, processing and todo]
        #[arg(long = "state", value_name = "STATE")]
        states: Vec<JobStateName>,
        /// Jobs of this type alone
        #[arg(long = "type", value_name = "TYPE")]
        kind: Option<String>,
        /// Jobs alone that were enqueued so long ago
        #[arg(long, value_name = "AGE")]
        older_than: Option<Span>,
        /// The next page: jobs behind the one of this id, which was the last of the page before; with one --state
        #[arg(long, value_name = "ID", requires = "states")]
        after: Option<Id>,
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
        /// Its _id
        id: Id,
    },
    /// Let failed jobs be done after all, with all their attempts again
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
    /// Do not let jobs be done; a worker that has one is stopped at its next sign of life
    #[command(
        after_help = "Example:\n  handfast jobs cancel 65a1b2c3d4e5f60718293a4b --data /srv/handfast --database shop"
    )]
    Cancel {
        #[command(flatten)]
        queue: Box<JobsFlags>,
        /// Their _ids
        #[arg(value_name = "ID", required = true)]
        ids: Vec<Id>,
    },
    /// Let no worker of any process claim a job until `resume`
    #[command(after_help = "Workers see it within a second. They go on with the jobs that they have.\n\n\
        Example:\n  handfast jobs pause --why 'the mail server is moved' --data /srv/handfast --database shop")]
    Pause {
        #[command(flatten)]
        queue: Box<JobsFlags>,
        /// For who looks at the queue
        #[arg(long, value_name = "TEXT", default_value = "")]
        why: String,
    },
    /// Let jobs of a paused queue be claimed again
    #[command(after_help = "Example:\n  handfast jobs resume --data /srv/handfast --database shop")]
    Resume {
        #[command(flatten)]
        queue: Box<JobsFlags>,
    },
    /// Return jobs whose workers are silent for longer than the lease
    #[command(
        visible_alias = "reclaim",
        after_help = "Example:\n  handfast jobs recover --lease 60s --data /srv/handfast --database shop"
    )]
    Recover {
        #[command(flatten)]
        queue: Box<JobsFlags>,
        /// Give up a job over which so many workers fell silent [default: as recorded, else 5]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        crashes_max: Option<u32>,
    },
    /// Remove jobs that have been over for long
    #[command(
        after_help = "A copy of a request may put a job into the queue again that is removed while it is under way: \
        keep them for longer than that.\n\n\
        Example:\n  handfast jobs purge --done 7d --failed 90d --data /srv/handfast --database shop"
    )]
    Purge {
        #[command(flatten)]
        queue: Box<JobsFlags>,
        /// Those that were done so long ago
        #[arg(long, value_name = "AGE")]
        done: Span,
        /// Those that were given up, or canceled, so long ago
        #[arg(long, value_name = "AGE")]
        failed: Span,
    },
}

/// Which queue.
#[derive(Args, Debug)]
pub(crate) struct JobsFlags {
    #[command(flatten)]
    pub(crate) open: AnyStoreFlags,
    /// The collection of the jobs
    #[arg(long, value_name = "NAME", default_value = "jobs")]
    pub(crate) collection: String,
    /// How long the application lets a worker be silent; `recover` must be told, elsewhere it is 60s unless said
    #[arg(long, value_name = "TIME")]
    pub(crate) lease: Option<Span>,
}

/// Which of the failed jobs.
#[derive(Args, Debug)]
pub(crate) struct FailedFlags {
    /// Their _ids
    #[arg(value_name = "ID", required_unless_present = "all", conflicts_with = "all")]
    pub(crate) ids: Vec<Id>,
    /// All that failed, the oldest first
    #[arg(long)]
    pub(crate) all: bool,
    /// With --all: those of this type alone
    #[arg(long = "type", value_name = "TYPE", requires = "all")]
    pub(crate) kind: Option<String>,
    /// With --all: so many of them at most
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) limit: u32,
}

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum JobStateName {
    /// Waits for its time, and then for a worker
    Todo,
    /// A worker has it
    Processing,
    /// Finished well
    Done,
    /// Given up: the dead letters
    Failed,
    /// Somebody did not want it done
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
    /// Which queue it is about.
    pub(crate) fn queue(&self) -> &JobsFlags {
        match self {
            JobsArguments::Status { queue }
            | JobsArguments::List { queue, .. }
            | JobsArguments::Show { queue, .. }
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
