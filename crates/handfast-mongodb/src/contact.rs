//! The first contact: waits for the first answer of any server, and explains why none answers.
//!
//! Later the driver waits longer for a server, because a server that has answered usually comes back. Before the first contact
//! the server is most likely not started, or the connection string names another port; the user should learn that soon.

use std::collections::BTreeMap;
use std::io::ErrorKind as IoKind;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bson::{Bson, Document};
use handfast_mql::Code;
use handfast_store::{Applied, Error, ErrorClass, Result};
use mongodb::error::{Error as DriverError, ErrorKind};
use mongodb::options::ConnectionString;

use crate::error::{Effect, of_driver};

#[cfg(test)]
mod tests;

/// The time limit of the first contact, unless the connection string sets `serverSelectionTimeoutMS` or a longer
/// `connectTimeoutMS`.
const FIRST_CONTACT_TIMEOUT: Duration = Duration::from_secs(5);

/// The state of the servers until one of them has answered a command.
#[derive(Debug)]
pub(crate) struct Contact {
    /// The servers by address; `None` after the first contact.
    servers: Mutex<Option<BTreeMap<String, ServerState>>>,
    /// The time limit; `None` if the connection string sets the driver's.
    limit: Option<Duration>,
    /// The replica set that the connection string names.
    replica_set: Option<String>,
}

#[derive(Debug, Default)]
struct ServerState {
    state: Reachability,
    /// Its answer to the driver's `hello`, if it has ever answered.
    hello: Option<HelloReply>,
}

#[derive(Debug, Default)]
enum Reachability {
    /// It has not answered yet.
    #[default]
    Unknown,
    /// It is available.
    Available,
    /// It is unreachable for this reason.
    Unreachable(String),
    /// It answered, and the driver removed it because it is not the wanted server.
    Removed,
}

/// The identity of a server in its answer to `hello`.
#[derive(Debug)]
struct HelloReply {
    set: Option<String>,
    /// The addresses that it advertises for itself or its set.
    addresses: String,
}

impl Contact {
    /// Creates the state before the first contact with the servers of a connection string.
    pub(crate) fn new(uri: &ConnectionString) -> Self {
        let limit = match uri.server_selection_timeout {
            Some(_) => None,
            None => Some(uri.connect_timeout.map_or(FIRST_CONTACT_TIMEOUT, |limit| limit.max(FIRST_CONTACT_TIMEOUT))),
        };
        Contact { servers: Mutex::new(Some(BTreeMap::new())), limit, replica_set: uri.replica_set.clone() }
    }

    /// Notes that the driver monitors a server.
    pub(crate) fn opened(&self, address: &str) {
        self.note(address, |server| server.state = Reachability::Unknown);
    }

    /// Notes that a server has answered the driver's `hello`.
    pub(crate) fn answered(&self, address: &str, reply: &Document) {
        self.note(address, |server| server.hello = Some(HelloReply::of(reply)));
    }

    /// Notes that a server is available.
    pub(crate) fn found(&self, address: &str) {
        self.note(address, |server| server.state = Reachability::Available);
    }

    /// Notes that a server is unreachable. Returns whether the first contact will report it, with its error or at its end.
    pub(crate) fn lost(&self, address: &str, error: &DriverError) -> bool {
        self.note(address, |server| server.state = Reachability::Unreachable(reason_for(address, error)))
    }

    /// Notes that the driver does not monitor a server any more.
    pub(crate) fn dropped(&self, address: &str) {
        if let Some(servers) = self.servers().as_mut() {
            match servers.get_mut(address) {
                // Its answer contradicts the connection string or its set, which the error explains.
                Some(server) if server.hello.is_some() => server.state = Reachability::Removed,
                _ => drop(servers.remove(address)),
            }
        }
    }

    /// Changes the state of a server before the first contact. Returns whether that is still to come.
    fn note(&self, address: &str, note: impl FnOnce(&mut ServerState)) -> bool {
        match self.servers().as_mut() {
            Some(servers) => {
                note(servers.entry(address.to_owned()).or_default());
                true
            }
            None => false,
        }
    }

    fn servers(&self) -> MutexGuard<'_, Option<BTreeMap<String, ServerState>>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the answer of a first command, which changes nothing; but not for long if there is no server to answer it.
    ///
    /// # Errors
    /// Returns the error of the command; `HostUnreachable` (6) with the error of each server if none can be reached.
    pub(crate) async fn wait_for<T>(&self, call: impl Future<Output = mongodb::error::Result<T>>) -> Result<T> {
        let mut call = pin!(call);
        let answer = match self.limit {
            None => call.await,
            Some(limit) => match tokio::time::timeout(limit, call.as_mut()).await {
                Ok(answer) => answer,
                // An available server may take its time.
                Err(_) if self.has_available_server() => call.await,
                Err(_) => return Err(self.unreachable()),
            },
        };
        match answer {
            Ok(answer) => {
                self.finish();
                Ok(answer)
            }
            Err(error) if matches!(*error.kind, ErrorKind::ServerSelection { .. }) => Err(self.unreachable()),
            Err(error) => Err(of_driver(error, Effect::Nothing)),
        }
    }

    fn has_available_server(&self) -> bool {
        let servers = self.servers();
        servers.iter().flatten().any(|(_, server)| matches!(server.state, Reachability::Available))
    }

    /// Ends the first contact, and logs the servers that were unreachable.
    fn finish(&self) {
        for (address, server) in self.servers().take().into_iter().flatten() {
            if let Reachability::Unreachable(error) = server.state {
                tracing::warn!(server = address, error, "a server is out of reach");
            }
        }
    }

    /// Returns the error that no server can be reached, with the reasons.
    fn unreachable(&self) -> Error {
        let servers = self.servers();
        let reasons: Vec<String> =
            servers.iter().flatten().filter_map(|(address, server)| self.reason(address, server)).collect();
        let text = if reasons.is_empty() { "none of the servers takes writes".to_owned() } else { reasons.join("; ") };
        Error::new(ErrorClass::Outage, Applied::No, Code::HostUnreachable, text)
    }

    /// Returns the reason why a server is not available.
    fn reason(&self, address: &str, server: &ServerState) -> Option<String> {
        match (&server.state, &server.hello) {
            (Reachability::Available, _) => None,
            (Reachability::Unreachable(why), _) => Some(why.clone()),
            (Reachability::Removed, Some(hello)) => {
                Some(format!("{address} answers, but {}", hello.mismatch(self.replica_set.as_deref())))
            }
            (Reachability::Unknown | Reachability::Removed, _) => Some(format!("{address}: {NO_ANSWER}")),
        }
    }
}

impl HelloReply {
    /// Reads the answer to a `hello`.
    fn of(reply: &Document) -> Self {
        let set = reply.get_str("setName").ok().map(str::to_owned);
        let addresses = match reply.get_str("me") {
            Ok(me) => me.to_owned(),
            Err(_) => {
                let hosts = reply.get_array("hosts").into_iter().flatten();
                hosts.filter_map(Bson::as_str).collect::<Vec<_>>().join(", ")
            }
        };
        HelloReply { set, addresses }
    }

    /// Describes how the answer contradicts the connection string, with a remedy.
    fn mismatch(&self, wanted: Option<&str>) -> String {
        let HelloReply { set, addresses } = self;
        match (set.as_deref(), wanted) {
            (Some(set), Some(wanted)) if set != wanted => {
                format!(
                    "is of the replica set {set} and not of {wanted}: is replicaSet in the connection string right?"
                )
            }
            (None, Some(wanted)) => {
                format!("is of no replica set, not of {wanted} either: leave replicaSet out of the connection string")
            }
            (None, None) => "is of no replica set: name it alone in the connection string".to_owned(),
            (Some(_), _) => format!(
                "says that it is {addresses}: if that cannot be dialled from here, say directConnection=true, or give the \
                 server the address that can (of Handfast --advertise)"
            ),
        }
    }
}

/// Describes a server from which nothing comes back.
const NO_ANSWER: &str = "no answer: are host and port right, does a firewall let it through, does the server take TLS \
                         (tls=true) or not?";

/// Returns the reason why a server is unreachable, with likely causes.
fn reason_for(address: &str, error: &DriverError) -> String {
    let ErrorKind::Io(cause) = error.kind.as_ref() else { return format!("{address}: {}", error.kind) };
    match cause.kind() {
        IoKind::ConnectionRefused => {
            format!("nothing listens at {address}: is the server started, is the port right?")
        }
        IoKind::TimedOut => format!("{address}: {NO_ANSWER}"),
        IoKind::UnexpectedEof | IoKind::ConnectionReset | IoKind::BrokenPipe | IoKind::ConnectionAborted => {
            format!("{address} closed the connection ({cause}): does it take TLS (tls=true) or not?")
        }
        IoKind::InvalidData => format!("{address}: no TLS with this server: {cause}"),
        _ => format!("{address}: {cause}"),
    }
}
