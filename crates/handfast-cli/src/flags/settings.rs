//! The flags that are settings: each has its key, its variable and its place in the file, too.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::configuration::{Bytes, Durability, LogFormat, LogLevel, NamedStore, Span, Topology};

/// The settings of the embedded store.
#[derive(Args, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Store")]
pub(crate) struct StoreFlags {
    /// The data directory; `serve`, `restore` and `user add` create it if it is not there
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// When a write that does not say itself is acknowledged
    #[arg(long, value_name = "WHEN")]
    pub(crate) durability: Option<Durability>,
    /// Bound of the cache of data blocks
    #[arg(long, value_name = "SIZE")]
    pub(crate) cache_bytes: Option<Bytes>,
    /// A write buffer of this size goes to a data file; there are two, each with up to two full ones waiting
    #[arg(long, value_name = "SIZE")]
    pub(crate) write_buffer_bytes: Option<Bytes>,
    /// Bound of all journal files; a store that was killed reads as much when it is opened
    #[arg(long, value_name = "SIZE")]
    pub(crate) journal_bytes: Option<Bytes>,
    /// Bound of the write buffers that cursors and snapshots in use keep in memory; beyond it the oldest ends
    #[arg(long, value_name = "SIZE")]
    pub(crate) snapshot_bytes: Option<Bytes>,
    /// Bound of what one sort, group or other stage of a query holds in memory; more is refused
    #[arg(long, value_name = "SIZE")]
    pub(crate) sort_bytes: Option<Bytes>,
    /// Bound of what the stages of all queries hold in memory together, also for open cursors; more is refused
    #[arg(long, value_name = "SIZE")]
    pub(crate) stage_bytes_total: Option<Bytes>,
    /// How often documents that a TTL index lets expire are looked for
    #[arg(long, value_name = "TIME")]
    pub(crate) expiry_interval: Option<Span>,
}

/// Another store than the embedded one.
#[derive(Args, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Store on a server")]
pub(crate) struct RemoteFlags {
    /// Keep documents on this MongoDB-compatible server instead of in a directory (mongodb://..). Several share them out by
    /// --route and have a name each: NAME=mongodb://... A password is safer in the variable or the file: others can see a
    /// command line
    #[arg(long, value_name = "URI")]
    pub(crate) store: Option<Vec<NamedStore>>,
    /// Which of several stores has what: a collection (shop.orders=NAME), a database (shop=NAME), all the rest ('*=NAME')
    #[arg(long, value_name = "NAMESPACE=NAME")]
    pub(crate) route: Option<Vec<String>>,
    /// How long a server is looked for that was there and is out of reach; serverSelectionTimeoutMS in its URI comes first
    #[arg(long, value_name = "TIME")]
    pub(crate) store_timeout: Option<Span>,
    /// How long history is kept for old snapshots of a process that gives no sign of life: the same for all on a store
    #[arg(long, value_name = "TIME")]
    pub(crate) snapshot_lease: Option<Span>,
    /// Nobody else writes to that server: needed where its updates are not atomic, as those of FerretDB 1
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", hide_possible_values = true, value_parser = clap::builder::BoolishValueParser::new())]
    pub(crate) sole_writer: Option<bool>,
}

/// The settings of the server.
#[derive(Args, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Server")]
pub(crate) struct ServerFlags {
    /// Address and port; port 0 takes a free one. Other than loopback needs --auth or --insecure
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) listen: Option<String>,
    /// Ask clients to log in, and let each do what its roles allow. `handfast user` adds users
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", hide_possible_values = true, value_parser = clap::builder::BoolishValueParser::new())]
    pub(crate) auth: Option<bool>,
    /// Speak TLS over TCP with this certificate, and those between it and an authority (PEM)
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_certificate: Option<PathBuf>,
    /// The private key of --tls-certificate (PEM)
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Let only clients connect whose certificate one of these authorities signed (PEM)
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_client_ca: Option<PathBuf>,
    /// Listen on addresses that others can reach although nobody has to log in
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", hide_possible_values = true, value_parser = clap::builder::BoolishValueParser::new())]
    pub(crate) insecure: Option<bool>,
    /// Let clients with the role root make backups in this directory while the server runs (`handfast backup --uri`);
    /// created if it is not there
    #[arg(long, value_name = "DIR")]
    pub(crate) backup_directory: Option<PathBuf>,
    /// Listen on a Unix socket too
    #[arg(long, value_name = "PATH")]
    pub(crate) unix_socket: Option<PathBuf>,
    /// What the server says it is. To a standalone server drivers send no transactions and no retryable writes
    #[arg(long, value_name = "KIND")]
    pub(crate) topology: Option<Topology>,
    /// Name of the replica set
    #[arg(long, value_name = "NAME")]
    pub(crate) replica_set: Option<String>,
    /// Address that a replica set gives its clients [default: the one they dialled]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) advertise: Option<String>,
    /// Connections at once; one more gets an error and is closed
    #[arg(long, value_name = "N")]
    pub(crate) max_connections: Option<u32>,
    /// Cursors open at once
    #[arg(long, value_name = "N")]
    pub(crate) max_cursors: Option<u32>,
    /// Cursors that one connection may have opened and not closed
    #[arg(long, value_name = "N")]
    pub(crate) max_cursors_per_connection: Option<u32>,
    /// Bound of large requests in memory at once, over all connections
    #[arg(long, value_name = "SIZE")]
    pub(crate) request_bytes: Option<Bytes>,
    /// Bound of large replies in memory at once, over all connections
    #[arg(long, value_name = "SIZE")]
    pub(crate) reply_bytes: Option<Bytes>,
    /// How long a connection may be silent before it is closed
    #[arg(long, value_name = "TIME")]
    pub(crate) connection_timeout: Option<Span>,
    /// How long a cursor may be idle before it is closed
    #[arg(long, value_name = "TIME")]
    pub(crate) cursor_timeout: Option<Span>,
    /// How long a transaction may be open before it is rolled back
    #[arg(long, value_name = "TIME")]
    pub(crate) transaction_lifetime: Option<Span>,
    /// What all open transactions together may have written; beyond that writes in them are refused
    #[arg(long, value_name = "SIZE")]
    pub(crate) transaction_bytes: Option<Bytes>,
    /// How long outcomes of transactions and results of retryable writes are kept for clients that ask again, 5m at least
    #[arg(long, value_name = "TIME")]
    pub(crate) outcome_retention: Option<Span>,
    /// How long commands in progress may take to finish at a graceful stop
    #[arg(long, value_name = "TIME")]
    pub(crate) shutdown_timeout: Option<Span>,
    /// Commands that take longer are logged
    #[arg(long, value_name = "TIME")]
    pub(crate) slow_operation: Option<Span>,
    /// Let clients make commands fail with configureFailPoint, as suites of tests do. Never for data that matters
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", hide_possible_values = true, value_parser = clap::builder::BoolishValueParser::new())]
    pub(crate) test_commands: Option<bool>,
    /// Serve a data directory that is one of several stores, to nobody but those who use all of them (--store)
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", hide_possible_values = true, value_parser = clap::builder::BoolishValueParser::new())]
    pub(crate) part: Option<bool>,
}

/// The settings of the log, which goes to standard error.
#[derive(Args, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Log")]
pub(crate) struct LogFlags {
    /// What a line looks like
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<LogFormat>,
    /// From which level on
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log_level: Option<LogLevel>,
}

/// All settings.
#[derive(Args, Debug)]
pub(crate) struct SettingFlags {
    #[command(flatten)]
    pub(crate) store: StoreFlags,
    #[command(flatten)]
    pub(crate) remote: RemoteFlags,
    #[command(flatten)]
    pub(crate) server: ServerFlags,
    /// Another port than the one of --listen, at the same host
    #[arg(long, value_name = "N", conflicts_with = "listen", help_heading = "Server")]
    pub(crate) port: Option<u16>,
    #[command(flatten)]
    pub(crate) log: LogFlags,
}
