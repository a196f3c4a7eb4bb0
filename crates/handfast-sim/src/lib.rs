#![doc = include_str!("../README.md")]

pub mod client;
pub mod database;
pub mod directory;
pub mod documents;
pub mod model;
pub mod moving;
pub mod recorder;
pub mod run;
pub mod workload;

pub use client::{Cell, Client, ClientTransaction, Failure};
pub use database::DatabaseClient;
pub use handfast_history::{Isolation, MinimumCounts, Order, Verdict};
pub use moving::{MovingClient, Tally};
pub use recorder::Recorder;
pub use run::{Error, RunOptions, RunReport, run};
pub use workload::{Plan, Step, Workload, WorkloadKind};
