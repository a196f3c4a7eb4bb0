#![doc = include_str!("../README.md")]

mod error;
pub mod exactly_once;
mod fields;
mod findings;
pub mod job_queue;
pub mod ledger;
pub mod metrics;
mod runner;
mod settings;
mod steps;
pub mod sync_flag;
pub mod two_phase;
mod update;
mod value;
pub mod versioned_tree;

pub use error::{Error, Result};
pub use exactly_once::{Change, ExactlyOnce, Token, TwoStep, UpdateOutcome};
pub use fields::FieldNames;
pub use findings::Findings;
pub use job_queue::{JobContext, JobError, JobQueue, JobQueueOptions, NewJob, Worker, WorkerOptions};
pub use ledger::{Ledger, LedgerOptions, NewAccount, NewEntry};
pub use runner::{Round, Runner, RunnerCounts, RunnerOptions};
pub use settings::{SettingsDifference, recorded_settings};
pub use sync_flag::{Link, OnDelete, SyncFlag, SyncFlagOptions};
pub use tokio_util::sync::CancellationToken;
pub use two_phase::{Participant, Plan, Transfer, TwoPhase, TwoPhaseOptions};
pub use value::extended_json;
pub use versioned_tree::{VersionedTree, VersionedTreeOptions};
