//! A MongoDB-compatible server over a document store, with transactions and retryable writes.
//!
//! It speaks MongoDB's wire protocol to any driver and turns commands into requests to a
//! [`Database`](handfast_txn::Database); it knows nothing of how documents are kept.
//!
//! ```text
//! listeners   takes the addresses, all or none
//! server      accepts, ends
//! tls         the handshake before the first message, if there is one
//! connection  a message, its answer, the next message
//! frame       bytes to whole messages, within bounds of size and time
//! exchange    one message: inflate, decode, check its depth, run it, send what comes of it
//! request     a command and what every command may carry
//! dispatch    finds the command, notes that it runs, bounds its time, counts it
//! auth        who may do what: logins, users, roles
//! transactions  what a numbered request runs in: a transaction, or exactly once
//! commands    one file a command: arguments to a request to the store, its outcome to a reply
//! cluster_time  when it is, as a replica set tells it in each reply
//! fail_points  what is to go wrong, for tests of drivers
//! arguments   reads fields by name and type; what nobody has read is refused by name
//! cursors     what is open, whose it is, when its time is over
//! ```
//!
//! What it is not: change streams are not here yet; a request for one is refused, never ignored.

mod arguments;
pub mod auth;
pub mod backup;
mod batches;
mod cluster_time;
mod commands;
mod connection;
mod cursors;
mod dispatch;
pub mod error;
mod exchange;
mod fail_points;
mod frame;
pub mod listeners;
mod lock;
pub mod metrics;
mod operations;
pub mod options;
mod refusal;
mod reply;
mod request;
mod reserve;
pub mod server;
mod sessions;
mod state;
#[cfg(test)]
mod testing;
pub mod tls;
mod transactions;
mod writer;

pub use backup::{BackedUp, Backup, BackupName};
pub use error::{Error, Result};
pub use listeners::Listeners;
pub use metrics::Metrics;
pub use options::{Address, ConnectionLimits, CursorLimits, Options, Topology};
pub use server::{Server, ShutdownHandle};
pub use tls::{Tls, TlsError, TlsFile};
