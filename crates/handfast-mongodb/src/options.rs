//! How to connect.

use std::time::Duration;

use handfast_mql::Code;
use handfast_store::{Error, Result};
use mongodb::options::{
    Acknowledgment, AuthMechanism, ClientOptions, ConnectionString, Credential, HostInfo, ReadConcern, ReadPreference,
    ServerAddress,
};

use crate::topology::TopologyObserver;

/// How long an operation on documents may take until its answer is here, the selection of a server included.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(90);
/// How long a server is looked for when none is in reach, unless the connection string says otherwise
/// (`serverSelectionTimeoutMS`): as drivers have it.
pub const SELECTION_TIMEOUT: Duration = Duration::from_secs(30);
/// Connections to one server at most, unless the connection string says otherwise: as other drivers have it. This one's
/// default of 10 would make the 11th transaction wait.
pub const POOL_CONNECTIONS_MAX: u32 = 100;

/// The database in which a server's capabilities are tried out: the one where transactions keep their clock, too.
pub const PROBE_DATABASE: &str = "handfast";
/// The database in which the capabilities of a Handfast in front of another server are tried out.
pub const FRONT_PROBE_DATABASE: &str = "handfast_probe";

/// How to connect, beside what the connection string says.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// How long an operation on documents may take until its answer is here, the selection of a server included. What
    /// may rightly take longer (aggregations, indexes, drops) is not bounded by it.
    pub reply_timeout: Duration,
    /// How long a server is looked for when none is in reach, unless the connection string says otherwise
    /// (`serverSelectionTimeoutMS`). The first contact takes no longer than 5 seconds, or the connection string's
    /// `connectTimeoutMS` if that is more.
    pub selection_timeout: Duration,
    /// Nobody else writes to the server as long as this store does: no other process, and no other store of this one.
    /// Servers without atomic updates ([`Capability::AtomicUpdates`](crate::Capability::AtomicUpdates)) are refused
    /// otherwise, because two writers would undo each other's writes there.
    pub sole_writer: bool,
    /// The database in which the server's capabilities are tried out, in a collection that is dropped again.
    pub probe_database: String,
    /// A Handfast in front of another server is accepted. Its documents can be changed one at a time, beside its own
    /// transactions; an engine of transactions over single documents must not be put over it. Its capabilities are tried out
    /// in [`FRONT_PROBE_DATABASE`], because it keeps [`PROBE_DATABASE`] for itself.
    pub accept_front: bool,
    /// Hears of each server as it is found, lost, or becomes another.
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

/// The servers that a connection string names, without user, password and options: for people to read.
///
/// # Errors
/// `BadValue` (2): it is no connection string.
pub fn shown(uri: &str) -> Result<String> {
    let parsed = parse(uri)?;
    let hosts = match &parsed.host_info {
        HostInfo::DnsRecord(name) => return Ok(format!("mongodb+srv://{name}")),
        HostInfo::HostIdentifiers(hosts) => hosts.iter().map(ServerAddress::to_string).collect::<Vec<_>>().join(","),
        _ => String::new(),
    };
    Ok(format!("mongodb://{hosts}"))
}

/// The connection string, taken apart.
pub(crate) fn parse(uri: &str) -> Result<ConnectionString> {
    ConnectionString::parse(uri).map_err(|error| bad(error.kind.to_string()))
}

/// The driver's options: what the contract needs is set, what contradicts it refused.
pub(crate) async fn client_options(parsed: ConnectionString, selection_timeout: Duration) -> Result<ClientOptions> {
    check(&parsed)?;
    let mut options = ClientOptions::parse(parsed)
        .await
        .map_err(|error| crate::error::of_driver(error, crate::error::Effect::Nothing))?;
    // Whether to try again is for whoever knows what the request means.
    options.retry_reads = Some(false);
    options.retry_writes = Some(false);
    options.server_selection_timeout.get_or_insert(selection_timeout);
    options.max_pool_size.get_or_insert(POOL_CONNECTIONS_MAX);
    options.app_name.get_or_insert_with(|| "handfast".to_owned());
    Ok(options)
}

/// Refuses what would change the meaning of every request.
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
        return Err(bad(
            "there is a user without a password, and nobody is asked for one: USER:PASSWORD@HOST".to_owned()
        ));
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

/// Whether it is a login by a password, without one.
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
