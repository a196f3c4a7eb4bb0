//! The flags that are settings. Each is also a key of the configuration file and an environment variable.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::configuration::{
    Bytes, ChangeStreams, Durability, LogFormat, LogLevel, NamedStore, RedisUrl, Span, Topology, WebOrigin,
};

/// The settings of the embedded store.
#[derive(Args, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Store")]
pub(crate) struct StoreFlags {
    /// Data directory; `serve`, `restore` and `user add` create it if it is missing
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Point at which a write is acknowledged, unless its write concern says otherwise
    #[arg(long, value_name = "WHEN")]
    pub(crate) durability: Option<Durability>,
    /// Maximum size of the cache of data blocks
    #[arg(long, value_name = "SIZE")]
    pub(crate) cache_bytes: Option<Bytes>,
    /// Size at which a write buffer is written to a data file; there are two buffers, and up to two full ones of each may wait
    #[arg(long, value_name = "SIZE")]
    pub(crate) write_buffer_bytes: Option<Bytes>,
    /// Maximum size of all journal files together; opening the store after a crash reads up to this much
    #[arg(long, value_name = "SIZE")]
    pub(crate) journal_bytes: Option<Bytes>,
    /// Maximum memory of the write buffers that open cursors and snapshots keep; beyond it the oldest snapshot ends
    #[arg(long, value_name = "SIZE")]
    pub(crate) snapshot_bytes: Option<Bytes>,
    /// Maximum memory of one sort, group or other stage of a query; sorts and groups write the rest to files, other stages fail
    #[arg(long, value_name = "SIZE")]
    pub(crate) sort_bytes: Option<Bytes>,
    /// Maximum memory of the stages of all queries together, open cursors included; a query that needs more fails
    #[arg(long, value_name = "SIZE")]
    pub(crate) stage_bytes_total: Option<Bytes>,
    /// Maximum size of the temporary files of all sorts and groups; with 0 there are none, and a query that needs one fails
    #[arg(long, value_name = "SIZE")]
    pub(crate) spill_bytes: Option<Bytes>,
    /// Directory of these files instead of the data directory; with --store there are none without it
    #[arg(long, value_name = "DIR")]
    pub(crate) spill_directory: Option<PathBuf>,
    /// Interval at which documents that have expired by a TTL index are removed
    #[arg(long, value_name = "TIME")]
    pub(crate) expiry_interval: Option<Span>,
    /// Whether changes are logged for change streams
    #[arg(long, value_name = "WHEN")]
    pub(crate) change_streams: Option<ChangeStreams>,
    /// Time for which logged changes are kept; a change stream resumes from an older event only after reading everything anew
    #[arg(long, value_name = "TIME")]
    pub(crate) change_log_age: Option<Span>,
    /// Maximum size of the logged changes; beyond it the oldest are removed
    #[arg(long, value_name = "SIZE")]
    pub(crate) change_log_bytes: Option<Bytes>,
}

/// The settings of a store on other servers.
#[derive(Args, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Store on a server")]
pub(crate) struct RemoteFlags {
    /// Keep documents on this MongoDB-compatible server (mongodb://..) instead of in a directory. With several servers, each has
    /// a name (NAME=mongodb://..), and --route assigns collections to them. A password is safer in the variable or the file,
    /// because other users can see a command line
    #[arg(long, value_name = "URI")]
    pub(crate) store: Option<Vec<NamedStore>>,
    /// Assign a collection (shop.orders=NAME), a database (shop=NAME) or all others ('*=NAME') to one of several stores
    #[arg(long, value_name = "NAMESPACE=NAME")]
    pub(crate) route: Option<Vec<String>>,
    /// Time to search for a server that has become unreachable; serverSelectionTimeoutMS in its URI overrides it
    #[arg(long, value_name = "TIME")]
    pub(crate) store_timeout: Option<Span>,
    /// Time after which the old snapshots of a process without a sign of life end; the same for all processes on a store
    #[arg(long, value_name = "TIME")]
    pub(crate) snapshot_lease: Option<Span>,
    /// Declare that no other process writes to that server; required where its updates are not atomic (FerretDB 1)
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", hide_possible_values = true, value_parser = clap::builder::BoolishValueParser::new())]
    pub(crate) sole_writer: Option<bool>,
}

/// The setting of the cache and the queue of view counters.
#[derive(Args, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "View counters")]
pub(crate) struct RedisFlags {
    /// Keep cache and queue of view counters in this Redis, for several instances over one --store:
    /// redis://user:password@host:6379/0, or rediss:// with TLS, redis+sentinel://, redis+cluster://. A password is safer in the
    /// variable or the file
    #[arg(long, value_name = "URL")]
    pub(crate) redis: Option<RedisUrl>,
}

/// The settings of the server.
#[derive(Args, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Server")]
pub(crate) struct ServerFlags {
    /// Address and port to listen on; port 0 takes a free port. An address that other machines can reach needs --auth or
    /// --insecure
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) listen: Option<String>,
    /// Require clients to log in, and allow each what its roles permit. `handfast user` adds users
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", hide_possible_values = true, value_parser = clap::builder::BoolishValueParser::new())]
    pub(crate) auth: Option<bool>,
    /// Encrypt TCP connections and the HTTP API (TLS) with this certificate; the file may also hold intermediate certificates (PEM)
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_certificate: Option<PathBuf>,
    /// Private key of --tls-certificate (PEM)
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Accept only clients whose certificate one of these authorities has signed (PEM)
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_client_ca: Option<PathBuf>,
    /// Listen on addresses that other machines can reach without requiring a login
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", hide_possible_values = true, value_parser = clap::builder::BoolishValueParser::new())]
    pub(crate) insecure: Option<bool>,
    /// Let clients with the role root make backups in this directory while the server runs (`handfast backup --uri`); created if
    /// it is missing
    #[arg(long, value_name = "DIR")]
    pub(crate) backup_directory: Option<PathBuf>,
    /// Listen on this Unix socket, too
    #[arg(long, value_name = "PATH")]
    pub(crate) unix_socket: Option<PathBuf>,
    /// Serve the HTTP API at this address, too. An address that other machines can reach needs --auth or --insecure
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) http: Option<String>,
    /// Origin of web pages whose scripts may use the HTTP API from browsers, such as https://example.org; may be repeated
    #[arg(long, value_name = "ORIGIN")]
    pub(crate) http_allow_origin: Option<Vec<WebOrigin>>,
    /// Maximum size of the body of an HTTP request; all large bodies together have twice as much
    #[arg(long, value_name = "SIZE")]
    pub(crate) http_body_bytes: Option<Bytes>,
    /// Maximum number of HTTP connections; further ones wait until one ends
    #[arg(long, value_name = "N")]
    pub(crate) http_max_connections: Option<u32>,
    /// Encrypt the HTTP API, too, with the certificate of --tls-certificate, if there is one. `--http-tls=false` is for a proxy that encrypts
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", hide_possible_values = true, value_parser = clap::builder::BoolishValueParser::new())]
    pub(crate) http_tls: Option<bool>,
    /// Kind of deployment that the server reports to drivers. With `standalone` they use no transactions and no retryable writes
    #[arg(long, value_name = "KIND")]
    pub(crate) topology: Option<Topology>,
    /// Name of the replica set
    #[arg(long, value_name = "NAME")]
    pub(crate) replica_set: Option<String>,
    /// Address that the server reports to clients as its own [default: the address that a client connected to]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) advertise: Option<String>,
    /// Maximum number of connections; a further one gets an error and is closed
    #[arg(long, value_name = "N")]
    pub(crate) max_connections: Option<u32>,
    /// Maximum number of open cursors
    #[arg(long, value_name = "N")]
    pub(crate) max_cursors: Option<u32>,
    /// Maximum number of open cursors of one connection
    #[arg(long, value_name = "N")]
    pub(crate) max_cursors_per_connection: Option<u32>,
    /// Maximum memory of large requests, over all connections
    #[arg(long, value_name = "SIZE")]
    pub(crate) request_bytes: Option<Bytes>,
    /// Maximum memory of large replies, over all connections
    #[arg(long, value_name = "SIZE")]
    pub(crate) reply_bytes: Option<Bytes>,
    /// Time after which an idle connection is closed
    #[arg(long, value_name = "TIME")]
    pub(crate) connection_timeout: Option<Span>,
    /// Time after which an idle cursor is closed
    #[arg(long, value_name = "TIME")]
    pub(crate) cursor_timeout: Option<Span>,
    /// Time after which an open transaction is rolled back
    #[arg(long, value_name = "TIME")]
    pub(crate) transaction_lifetime: Option<Span>,
    /// Maximum size of the writes of all open transactions together; further writes in transactions fail
    #[arg(long, value_name = "SIZE")]
    pub(crate) transaction_bytes: Option<Bytes>,
    /// Time for which the outcomes of transactions and the results of retryable writes are kept, so that a client that repeats
    /// its request gets the same answer; at least 5m
    #[arg(long, value_name = "TIME")]
    pub(crate) outcome_retention: Option<Span>,
    /// Time that commands in progress get to finish at a graceful stop
    #[arg(long, value_name = "TIME")]
    pub(crate) shutdown_timeout: Option<Span>,
    /// Log commands that take longer than this
    #[arg(long, value_name = "TIME")]
    pub(crate) slow_operation: Option<Span>,
    /// Let clients make commands fail with configureFailPoint, as test suites do. Never use it with data that matters
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", hide_possible_values = true, value_parser = clap::builder::BoolishValueParser::new())]
    pub(crate) test_commands: Option<bool>,
    /// Serve a data directory that is one of several stores, only to processes that use all of these stores (--store)
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", hide_possible_values = true, value_parser = clap::builder::BoolishValueParser::new())]
    pub(crate) part: Option<bool>,
}

/// The settings of the log, which goes to standard error.
#[derive(Args, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Log")]
pub(crate) struct LogFlags {
    /// Format of log lines
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<LogFormat>,
    /// Lowest level that is logged
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
    pub(crate) redis: RedisFlags,
    #[command(flatten)]
    pub(crate) server: ServerFlags,
    /// Port to use instead of the one in --listen, at the same host
    #[arg(long, value_name = "N", conflicts_with = "listen", help_heading = "Server")]
    pub(crate) port: Option<u16>,
    #[command(flatten)]
    pub(crate) log: LogFlags,
}
