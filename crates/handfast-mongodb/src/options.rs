//! Options of a connection.

use std::time::Duration;

use handfast_mql::Code;
use handfast_store::{Error, Result};
use mongodb::options::{
    Acknowledgment, AuthMechanism, ClientOptions, ConnectionString, Credential, HostInfo, ReadConcern, ReadPreference,
    ServerAddress,
};

use crate::topology::TopologyObserver;

/// The default time limit of an operation on documents, with the selection of a server.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(90);
/// The default time limit of the selection of a server, unless the connection string sets `serverSelectionTimeoutMS`. It is that
/// of other drivers.
pub const SELECTION_TIMEOUT: Duration = Duration::from_secs(30);
/// The number of connections to one server, unless the connection string sets `maxPoolSize`. It is that of other drivers; with
/// this driver's default of 10, the 11th transaction would wait.
pub const POOL_CONNECTIONS_MAX: u32 = 100;

/// The database for the probes of capabilities, which also has the clock of transactions.
pub const PROBE_DATABASE: &str = "handfast";
/// The database for the probes of a Handfast in front of another server.
pub const FRONT_PROBE_DATABASE: &str = "handfast_probe";

/// Options of a connection, beside those of the connection string.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// The time limit of an operation on documents, with the selection of a server. It does not apply to operations that may
    /// take longer (aggregations, indexes, drops).
    pub reply_timeout: Duration,
    /// The time limit of the selection of a server, unless the connection string sets `serverSelectionTimeoutMS`. The first
    /// contact takes at most 5 seconds, or the connection string's `connectTimeoutMS` if that is longer.
    pub selection_timeout: Duration,
    /// The caller guarantees that no other process and no other store of this process writes to the server. Without it, servers
    /// that lack [`Capability::AtomicUpdates`](crate::Capability::AtomicUpdates) are refused, because two writers would overwrite
    /// each other's updates there.
    pub sole_writer: bool,
    /// The database for the probes of capabilities, which use a temporary collection.
    pub probe_database: String,
    /// Accepts a Handfast in front of another server. The store may change its documents one at a time, beside that server's own
    /// transactions; the engine Percolator must not run over it. The probes use [`FRONT_PROBE_DATABASE`], because such a server
    /// reserves [`PROBE_DATABASE`].
    pub accept_front: bool,
    /// A function that is called when a server is found, lost, or changes its role.
    pub observer: Option<TopologyObserver>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        ConnectOptions {
            reply_timeout: REPLY_TIMEOUT,
            selection_timeout: SELECTION_TIMEOUT,
            sole_writer: false,
            probe_database: PROBE_DATABASE.to_owned(),
            accept_front: false,
            observer: None,
        }
    }
}

/// Returns the servers of a connection string without user, password and options, for messages.
///
/// # Errors
/// `BadValue` (2) if the connection string is not valid.
pub fn shown(uri: &str) -> Result<String> {
    let parsed = parse(uri)?;
    let hosts = match &parsed.host_info {
        HostInfo::DnsRecord(name) => return Ok(format!("mongodb+srv://{name}")),
        HostInfo::HostIdentifiers(hosts) => hosts.iter().map(ServerAddress::to_string).collect::<Vec<_>>().join(","),
        _ => String::new(),
    };
    Ok(format!("mongodb://{hosts}"))
}

pub(crate) fn parse(uri: &str) -> Result<ConnectionString> {
    ConnectionString::parse(uri).map_err(|error| bad(error.kind.to_string()))
}

/// Returns the driver's options. Sets those that the contract needs, and refuses those that contradict it.
pub(crate) async fn client_options(parsed: ConnectionString, selection_timeout: Duration) -> Result<ClientOptions> {
    check(&parsed)?;
    let mut options = ClientOptions::parse(parsed)
        .await
        .map_err(|error| crate::error::of_driver(error, crate::error::Effect::Nothing))?;
    // Only the caller knows which requests may be repeated.
    options.retry_reads = Some(false);
    options.retry_writes = Some(false);
    options.server_selection_timeout.get_or_insert(selection_timeout);
    options.max_pool_size.get_or_insert(POOL_CONNECTIONS_MAX);
    options.app_name.get_or_insert_with(|| "handfast".to_owned());
    Ok(options)
}

/// Refuses options that would change the meaning of every request.
fn check(parsed: &ConnectionString) -> Result<()> {
    let concern = parsed.write_concern.as_ref();
    let weak = concern.and_then(|concern| concern.w.as_ref()).is_some_and(|w| *w != Acknowledgment::Majority);
    if weak || concern.and_then(|concern| concern.journal) == Some(false) {
        return Err(bad(
            "w and journal: each write says how durable it is to be; leave them out of the connection string"
                .to_owned(),
        ));
    }
    if parsed.credential.as_ref().is_some_and(lacks_password) {
        return Err(bad("the user has no password: write USER:PASSWORD@HOST".to_owned()));
    }
    if parsed.read_concern.as_ref().is_some_and(|concern| *concern != ReadConcern::majority()) {
        return Err(bad(
            "readConcernLevel: reads are of what a majority has; leave it out of the connection string".to_owned()
        ));
    }
    if parsed.read_preference.as_ref().is_some_and(|preference| *preference != ReadPreference::Primary) {
        return Err(bad(
            "readPreference: reads are of the primary, which has the newest; leave it out of the connection string"
                .to_owned(),
        ));
    }
    Ok(())
}

/// Returns whether a credential needs a password and has none.
fn lacks_password(credential: &Credential) -> bool {
    use AuthMechanism as M;
    let by_password = matches!(credential.mechanism, None | Some(M::ScramSha1 | M::ScramSha256 | M::Plain));
    by_password && credential.username.is_some() && credential.password.is_none()
}

fn bad(text: String) -> Error {
    Error::command(Code::BadValue, format!("the connection string is not valid: {text}"))
}

#[cfg(test)]
mod tests;
