//! The settings, their defaults and their checks.

use std::path::PathBuf;
use std::time::Duration;

use handfast_mql::context::{STAGE_BYTES_MAX, STAGE_TOTAL_BYTES_MAX};
use handfast_store::spill::SPILL_BYTES_MAX;
use serde::{Deserialize, Serialize};

use super::origins::Origins;
use super::stores::{Routes, Stores};
use super::value::{Bytes, ChangeStreams, Durability, LogFormat, LogLevel, RedisUrl, Span, Topology};

/// The settings in force. A field's name with dashes is its key in the file, its flag, and, in capitals after `HANDFAST_`, its environment
/// variable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Settings {
    pub(crate) data: PathBuf,
    pub(crate) durability: Durability,
    pub(crate) cache_bytes: Bytes,
    pub(crate) write_buffer_bytes: Bytes,
    pub(crate) journal_bytes: Bytes,
    pub(crate) snapshot_bytes: Bytes,
    pub(crate) sort_bytes: Bytes,
    pub(crate) stage_bytes_total: Bytes,
    pub(crate) spill_bytes: Bytes,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) spill_directory: Option<PathBuf>,
    pub(crate) expiry_interval: Span,
    pub(crate) change_streams: ChangeStreams,
    pub(crate) change_log_age: Span,
    pub(crate) change_log_bytes: Bytes,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) store: Option<Stores>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) route: Option<Routes>,
    pub(crate) sole_writer: bool,
    pub(crate) store_timeout: Span,
    pub(crate) snapshot_lease: Span,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) redis: Option<RedisUrl>,
    pub(crate) listen: String,
    pub(crate) insecure: bool,
    pub(crate) auth: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tls_certificate: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tls_key: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tls_client_ca: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) backup_directory: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unix_socket: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) http: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) http_allow_origin: Option<Origins>,
    pub(crate) http_body_bytes: Bytes,
    pub(crate) http_max_connections: u32,
    pub(crate) http_tls: bool,
    pub(crate) topology: Topology,
    pub(crate) replica_set: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) advertise: Option<String>,
    pub(crate) max_connections: u32,
    pub(crate) max_cursors: u32,
    pub(crate) max_cursors_per_connection: u32,
    pub(crate) request_bytes: Bytes,
    pub(crate) reply_bytes: Bytes,
    pub(crate) connection_timeout: Span,
    pub(crate) cursor_timeout: Span,
    pub(crate) transaction_lifetime: Span,
    pub(crate) transaction_bytes: Bytes,
    pub(crate) outcome_retention: Span,
    pub(crate) shutdown_timeout: Span,
    pub(crate) slow_operation: Span,
    pub(crate) test_commands: bool,
    pub(crate) part: bool,
    pub(crate) log_format: LogFormat,
    pub(crate) log_level: LogLevel,
}

/// The settings without a default.
pub(crate) const OPTIONAL: [&str; 12] = [
    "store",
    "route",
    "redis",
    "backup-directory",
    "unix-socket",
    "http",
    "http-allow-origin",
    "advertise",
    "tls-certificate",
    "tls-key",
    "tls-client-ca",
    "spill-directory",
];

impl Default for Settings {
    /// Takes the libraries' defaults where they have one, so that each number stands in one place.
    fn default() -> Self {
        let store = handfast_embedded::Options::default();
        let server = handfast_server::Options::default();
        let http = handfast_http::ConnectionOptions::default();
        Settings {
            // Not `data`: a directory of that name often exists and holds something else.
            data: PathBuf::from("handfast-data"),
            durability: Durability::Journaled,
            cache_bytes: Bytes(store.cache_bytes),
            write_buffer_bytes: Bytes(store.write_buffer_bytes),
            journal_bytes: Bytes(store.journal_bytes_max),
            snapshot_bytes: Bytes(store.snapshot_bytes_max),
            sort_bytes: Bytes(STAGE_BYTES_MAX as u64),
            stage_bytes_total: Bytes(STAGE_TOTAL_BYTES_MAX as u64),
            spill_bytes: Bytes(SPILL_BYTES_MAX),
            spill_directory: None,
            expiry_interval: Span(store.expiry_interval.unwrap_or(EXPIRY_INTERVAL)),
            change_streams: ChangeStreams::OnDemand,
            change_log_age: Span(store.change_log_age_max),
            change_log_bytes: Bytes(store.change_log_bytes_max),
            store: None,
            route: None,
            sole_writer: false,
            store_timeout: Span(STORE_TIMEOUT),
            snapshot_lease: Span(handfast_txn::percolator::LEASE_TTL),
            redis: None,
            // MongoDB's port, on loopback alone.
            listen: "127.0.0.1:27017".to_owned(),
            insecure: false,
            auth: server.authentication,
            tls_certificate: None,
            tls_key: None,
            tls_client_ca: None,
            backup_directory: None,
            unix_socket: None,
            http: None,
            http_allow_origin: None,
            http_body_bytes: Bytes(handfast_http::api::BODY_BYTES_MAX as u64),
            http_max_connections: number(http.open_max),
            http_tls: true,
            topology: Topology::ReplicaSet,
            replica_set: handfast_server::options::REPLICA_SET.to_owned(),
            advertise: None,
            max_connections: number(server.connections.open_max),
            max_cursors: number(server.cursors.open_max),
            max_cursors_per_connection: number(server.cursors.per_connection_max),
            request_bytes: Bytes(server.connections.request_bytes_max as u64),
            reply_bytes: Bytes(server.connections.reply_bytes_max as u64),
            connection_timeout: Span(server.connections.idle_timeout),
            cursor_timeout: Span(server.cursors.idle_timeout),
            transaction_lifetime: Span(server.transaction_lifetime),
            transaction_bytes: Bytes(server.transaction_bytes_max as u64),
            outcome_retention: Span(server.outcome_retention),
            shutdown_timeout: Span(server.shutdown_grace),
            slow_operation: Span(server.slow_operation),
            test_commands: server.test_commands,
            part: false,
            log_format: LogFormat::Text,
            log_level: LogLevel::Info,
        }
    }
}

/// MongoDB's own pause between two rounds of its TTL monitor.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(60);

/// A client's driver repeats a request once: both together outlive the election of a replica set, which takes 12 seconds.
const STORE_TIMEOUT: Duration = Duration::from_secs(10);
/// Signs of life are given three times as often, and a process may stand still for some seconds.
const SNAPSHOT_LEASE_MIN: Duration = Duration::from_secs(10);

/// Drivers repeat a commit for two minutes; what was committed must not be forgotten before they stop.
const OUTCOME_RETENTION_MIN: Duration = Duration::from_secs(5 * 60);

fn number(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// Checks the form of an address to listen at, without resolving the host.
pub(super) fn check_listen(listen: &str) -> Result<(), String> {
    let wrong = |advice: String| Err(format!("'{listen}' is not an address (HOST:PORT){advice}"));
    match listen.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(()),
        Some(("", port)) => wrong(format!("; for all addresses of this machine, 0.0.0.0:{port}")),
        None if listen.parse::<u16>().is_ok() => {
            wrong(format!("; --port {listen} takes another port at the same host"))
        }
        _ => wrong(", such as 127.0.0.1:27017".to_owned()),
    }
}

/// Returns whether drivers can connect to this address.
fn is_host_and_port(text: &str) -> bool {
    let parts = text.rsplit_once(':');
    parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0))
}

impl Settings {
    /// Checks each value by itself; it is called with one value over the defaults.
    pub(super) fn check(&self) -> Result<(), String> {
        /// The engine would spend its time on flushing with less.
        const ENGINE_BYTES_MIN: Bytes = Bytes(1 << 20);
        /// A sort of some small documents must be possible.
        const SORT_BYTES_MIN: Bytes = Bytes(64 << 10);
        /// A message of the largest size must fit.
        const MESSAGE_BYTES_MIN: Bytes = Bytes(48 << 20);
        /// A job or an entry must be possible.
        const BODY_BYTES_MIN: Bytes = Bytes(4 << 10);
        /// A document is not larger, and each body is in memory as a whole.
        const BODY_BYTES_MAX: Bytes = Bytes(64 << 20);

        for (value, least) in [
            (self.cache_bytes, ENGINE_BYTES_MIN),
            (self.write_buffer_bytes, ENGINE_BYTES_MIN),
            (self.journal_bytes, Bytes(handfast_embedded::JOURNAL_BYTES_MIN)),
            (self.snapshot_bytes, ENGINE_BYTES_MIN),
            (self.change_log_bytes, ENGINE_BYTES_MIN),
            (self.sort_bytes, SORT_BYTES_MIN),
            (self.stage_bytes_total, SORT_BYTES_MIN),
            (self.request_bytes, MESSAGE_BYTES_MIN),
            (self.reply_bytes, MESSAGE_BYTES_MIN),
            // A transaction of one message must be possible.
            (self.transaction_bytes, MESSAGE_BYTES_MIN),
            (self.http_body_bytes, BODY_BYTES_MIN),
        ] {
            if value < least {
                return Err(format!("must be at least {least}, not {value}"));
            }
        }
        if self.http_body_bytes > BODY_BYTES_MAX {
            return Err(format!("must be at most {BODY_BYTES_MAX}, not {}", self.http_body_bytes));
        }
        if self.outcome_retention.0 < OUTCOME_RETENTION_MIN {
            return Err(format!("must be at least {}", Span(OUTCOME_RETENTION_MIN)));
        }
        if self.snapshot_lease.0 < SNAPSHOT_LEASE_MIN {
            return Err(format!("must be at least {}", Span(SNAPSHOT_LEASE_MIN)));
        }
        let spans = [
            self.store_timeout,
            self.connection_timeout,
            self.cursor_timeout,
            self.transaction_lifetime,
            self.shutdown_timeout,
            self.expiry_interval,
            self.change_log_age,
        ];
        if spans.iter().any(|span| span.0.is_zero()) {
            return Err("must be longer than zero".to_owned());
        }
        let counts =
            [self.max_connections, self.max_cursors, self.max_cursors_per_connection, self.http_max_connections];
        if counts.contains(&0) {
            return Err("must be at least 1".to_owned());
        }
        if let Some(store) = &self.store {
            store.check()?;
        }
        if let Some(redis) = &self.redis {
            redis.check()?;
        }
        let Settings {
            backup_directory, unix_socket, tls_certificate, tls_key, tls_client_ca, spill_directory, ..
        } = self;
        let paths = [backup_directory, unix_socket, tls_certificate, tls_key, tls_client_ca, spill_directory];
        let paths = paths.map(Option::as_ref);
        let mut paths = paths.into_iter().flatten().chain([&self.data]);
        let texts = [Some(&self.listen), Some(&self.replica_set), self.advertise.as_ref(), self.http.as_ref()];
        if paths.any(|path| path.as_os_str().is_empty()) || texts.into_iter().flatten().any(String::is_empty) {
            return Err("must not be empty".to_owned());
        }
        if let Some(advertise) = &self.advertise
            && !is_host_and_port(advertise)
        {
            return Err(format!("must be a HOST:PORT that clients can connect to, not '{advertise}'"));
        }
        Ok(())
    }
}
