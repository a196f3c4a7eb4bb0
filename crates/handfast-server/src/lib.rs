#![doc = include_str!("../README.md")]

mod arguments;
pub mod auth;
pub mod backup;
mod batches;
mod changes;
mod cluster_time;
mod commands;
mod connection;
mod cursors;
mod dispatch;
pub mod error;
mod exchange;
mod fail_points;
mod frame;
mod in_process;
mod listeners;
mod lock;
mod memory_budget;
pub mod metrics;
mod operations;
pub mod options;
mod patterns;
mod refusal;
mod reply;
mod request;
pub mod server;
mod sessions;
mod state;
mod storage;
#[cfg(test)]
mod testing;
pub mod tls;
mod transactions;
mod write_signals;
mod writer;

pub use backup::{BackedUp, Backup, BackupName};
pub use error::{Error, Result};
pub use in_process::{InProcess, LocalClient};
pub use listeners::Listeners;
pub use metrics::Metrics;
pub use options::{Address, ConnectionLimits, CursorLimits, Options, Topology};
pub use server::{Server, ShutdownHandle};
pub use storage::Storage;
pub use tls::{Tls, TlsError, TlsFile};
