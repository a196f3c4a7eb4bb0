//! The options of a server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use handfast_store::Durability;
use handfast_txn::TransactionOptions;
use handfast_txn::options::LIFETIME_MAX;
use handfast_wire::{Compressor, Limits};

use crate::backup::Backup;
pub use crate::cursors::CursorLimits;
use crate::storage::Storage;
use crate::tls::Tls;

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A TCP port; port 0 lets the operating system choose one.
    Tcp(SocketAddr),
    /// A Unix socket. An abandoned one is replaced.
    Unix(PathBuf),
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(f),
            Address::Unix(path) => path.display().fmt(f),
        }
    }
}

/// The kind of deployment that the server reports, on which the behaviour of drivers depends.
///
/// Only to a replica set or a mongos do drivers send a transaction number with plain writes, so that a repeated write
/// is applied once, and only there do they begin transactions. So a replica set is the default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topology {
    /// A single server, without transactions and retryable writes.
    Standalone,
    /// The primary and only member of a replica set.
    ReplicaSet {
        /// Its name, as in the `replicaSet` of a connection string.
        name: String,
        /// The `host:port` at which clients reach it; `None` for the address to which the client connected.
        advertise: Option<String>,
    },
    /// A router. Drivers do not compare its host names with their own list, which suits proxies.
    Mongos,
}

impl Default for Topology {
    /// Returns the primary of a replica set, at the address to which the client connected.
    fn default() -> Self {
        Topology::ReplicaSet { name: REPLICA_SET.to_owned(), advertise: None }
    }
}

/// The default name of the replica set.
pub const REPLICA_SET: &str = "handfast";

/// Bounds on connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// The number of open connections. A further one gets an error and is closed.
    pub open_max: usize,
    /// A connection without a message for this long is closed. Drivers keep connections in pools and open new ones
    /// when they need them.
    pub idle_timeout: Duration,
    /// The time within which more bytes of a message have to arrive, once it has begun.
    pub stall_timeout: Duration,
    /// The time within which a whole message has to arrive, once it has begun, and a reply has to be received.
    pub message_timeout: Duration,
    /// Bytes of large requests (over 64 KiB) in memory at once, over all connections. Further requests are not read meanwhile.
    /// Inflated requests have a bound of the same size.
    pub request_bytes_max: usize,
    /// Bytes of large replies in memory at once, over all connections. Further ones wait.
    pub reply_bytes_max: usize,
}

impl ConnectionLimits {
    /// Returns how many open connections may not have logged in, if a login is needed, so that they cannot use up all connections.
    /// Each driver watches the server through one or two such connections.
    pub(crate) fn unauthenticated_max(&self) -> usize {
        self.open_max.div_ceil(2)
    }
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        ConnectionLimits {
            open_max: 10_000,
            idle_timeout: Duration::from_secs(30 * 60),
            stall_timeout: Duration::from_secs(30),
            message_timeout: Duration::from_secs(5 * 60),
            request_bytes_max: 256 * 1024 * 1024,
            reply_bytes_max: 256 * 1024 * 1024,
        }
    }
}

/// The options of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// The kind of deployment that the server reports.
    pub topology: Topology,
    /// Whether a client has to log in, and may do what its roles allow.
    pub authentication: bool,
    /// The TLS settings, with which every TCP connection has to use TLS. A Unix socket does not use it.
    pub tls: Option<Tls>,
    /// The compressors that a client may use.
    pub compressors: Vec<Compressor>,
    /// The durability of a write without `j: true` and `w: "majority"`. `Journaled` syncs each write, even with `j: false`;
    /// `Memory` syncs only the writes that ask for it.
    pub durability: Durability,
    /// Bounds on messages.
    pub limits: Limits,
    /// Bounds on connections.
    pub connections: ConnectionLimits,
    /// Bounds on cursors.
    pub cursors: CursorLimits,
    /// The time that a transaction may be open.
    pub transaction_lifetime: Duration,
    /// The bytes that all open transactions together may have written. Beyond that, writes in them get
    /// `WriteConflict` (112), and may succeed when they are run again.
    pub transaction_bytes_max: usize,
    /// The time for which outcomes of commits and results of retryable writes are kept for repeated requests. Drivers repeat within
    /// seconds, and a session ends after half an hour without a command.
    pub outcome_retention: Duration,
    /// The time that a shutdown waits for running commands.
    pub shutdown_grace: Duration,
    /// Commands that take longer are logged.
    pub slow_operation: Duration,
    /// Enables fail points, which tests set with `configureFailPoint`.
    pub test_commands: bool,
    /// Makes the copy for the command `handfastBackup`, which needs the role `root`; the command is refused without it.
    pub backup: Option<Arc<dyn Backup>>,
    /// The storage that `serverStatus` describes, if the program knows it.
    pub storage: Option<Arc<dyn Storage>>,
    /// The command line that `getCmdLineOpts` shows.
    pub command_line: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            topology: Topology::default(),
            authentication: false,
            tls: None,
            compressors: Compressor::NEGOTIABLE.to_vec(),
            durability: Durability::default(),
            limits: Limits::default(),
            connections: ConnectionLimits::default(),
            cursors: CursorLimits::default(),
            transaction_lifetime: LIFETIME_MAX,
            transaction_bytes_max: TransactionOptions::default().all_write_bytes_max,
            outcome_retention: Duration::from_secs(24 * 60 * 60),
            shutdown_grace: Duration::from_secs(10),
            slow_operation: Duration::from_millis(100),
            test_commands: false,
            backup: None,
            storage: None,
            command_line: Vec::new(),
        }
    }
}
