//! The first contact: how long it may take until any server answers, and what is said if none does.
//!
//! Later on the driver waits longer for a server, because one that was there comes back. At first most likely nobody has
//! started it, or the connection string names another port: whoever waits is to know that soon.

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

/// How long nobody may answer at first, unless the connection string says otherwise (`serverSelectionTimeoutMS`, or a longer
/// `connectTimeoutMS`).
const FIRST_CONTACT: Duration = Duration::from_secs(5);

/// What is known of the servers until one of them has answered a command.
#[derive(Debug)]
pub(crate) struct Contact {
    /// By address; none once the contact is made.
    servers: Mutex<Option<BTreeMap<String, Seen>>>,
    /// How long to wait; none if the driver was told by the connection string.
    patience: Option<Duration>,
    /// The replica set that the connection string names.
    replica_set: Option<String>,
}

/// What is known of a server.
#[derive(Debug, Default)]
struct Seen {
    state: State,
    /// What it says of itself, if it has ever answered.
    says: Option<Says>,
}

#[derive(Debug, Default)]
enum State {
    /// It was not heard of yet.
    #[default]
    Silent,
    /// It is a server to work with.
    Answers,
    /// It is out of reach; why.
    Lost(String),
    /// It answered, but is none of the servers that the driver looks for.
    Dropped,
}

/// What a server says of itself.
#[derive(Debug)]
struct Says {
    set: Option<String>,
    /// Where it says that it is, or its set.
    addresses: String,
}

impl Contact {
    /// Before the first contact with the servers of a connection string.
    pub(crate) fn new(uri: &ConnectionString) -> Self {
        let patience = match uri.server_selection_timeout {
            Some(_) => None,
            None => Some(uri.connect_timeout.map_or(FIRST_CONTACT, |limit| limit.max(FIRST_CONTACT))),
        };
        Contact { servers: Mutex::new(Some(BTreeMap::new())), patience, replica_set: uri.replica_set.clone() }
    }

    /// A server is looked for from now on.
    pub(crate) fn sought(&self, address: &str) {
        self.note(address, |seen| seen.state = State::Silent);
    }

    /// A server has answered the driver's `hello`.
    pub(crate) fn answered(&self, address: &str, reply: &Document) {
        self.note(address, |seen| seen.says = Some(Says::of(reply)));
    }

    /// A server is one to work with.
    pub(crate) fn found(&self, address: &str) {
        self.note(address, |seen| seen.state = State::Answers);
    }

    /// A server is out of reach. Whether that is told by the first contact: by its error, or when it is made.
    pub(crate) fn lost(&self, address: &str, error: &DriverError) -> bool {
        self.note(address, |seen| seen.state = State::Lost(why(address, error)))
    }

    /// The driver does not look for a server any more.
    pub(crate) fn dropped(&self, address: &str) {
        if let Some(servers) = self.servers().as_mut() {
            match servers.get_mut(address) {
                // It says something else than the connection string, or than its set: that is to be told.
                Some(seen) if seen.says.is_some() => seen.state = State::Dropped,
                _ => drop(servers.remove(address)),
            }
        }
    }

    /// Notes something of a server, unless the contact is made; whether it was noted.
    fn note(&self, address: &str, note: impl FnOnce(&mut Seen)) -> bool {
        match self.servers().as_mut() {
            Some(servers) => {
                note(servers.entry(address.to_owned()).or_default());
                true
            }
            None => false,
        }
    }

    fn servers(&self) -> MutexGuard<'_, Option<BTreeMap<String, Seen>>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the answer of a first command, which changes nothing; but not for long if there is no server to answer it.
    ///
    /// # Errors
    /// Those of the command; `HostUnreachable` (6) with what is wrong with each server if none can be reached.
    pub(crate) async fn make<T>(&self, call: impl Future<Output = mongodb::error::Result<T>>) -> Result<T> {
        let mut call = pin!(call);
        let answer = match self.patience {
            None => call.await,
            Some(limit) => match tokio::time::timeout(limit, call.as_mut()).await {
                Ok(answer) => answer,
                // There is one that answers: it takes the time that it takes.
                Err(_) if self.is_anybody_there() => call.await,
                Err(_) => return Err(self.nobody()),
            },
        };
        match answer {
            Ok(answer) => {
                self.made();
                Ok(answer)
            }
            Err(error) if matches!(*error.kind, ErrorKind::ServerSelection { .. }) => Err(self.nobody()),
            Err(error) => Err(of_driver(error, Effect::Nothing)),
        }
    }

    fn is_anybody_there(&self) -> bool {
        let servers = self.servers();
        servers.iter().flatten().any(|(_, seen)| matches!(seen.state, State::Answers))
    }

    /// One has answered. Of those that were out of reach up to now nobody was told yet.
    fn made(&self) {
        for (address, seen) in self.servers().take().into_iter().flatten() {
            if let State::Lost(error) = seen.state {
                tracing::warn!(server = address, error, "a server is out of reach");
            }
        }
    }

    /// That no server can be reached, and why.
    fn nobody(&self) -> Error {
        let servers = self.servers();
        let reasons: Vec<String> =
            servers.iter().flatten().filter_map(|(address, seen)| self.reason(address, seen)).collect();
        let text = if reasons.is_empty() { "none of the servers takes writes".to_owned() } else { reasons.join("; ") };
        Error::new(ErrorClass::Outage, Applied::No, Code::HostUnreachable, text)
    }

    /// Why there is no working with a server.
    fn reason(&self, address: &str, seen: &Seen) -> Option<String> {
        match (&seen.state, &seen.says) {
            (State::Answers, _) => None,
            (State::Lost(why), _) => Some(why.clone()),
            (State::Dropped, Some(says)) => {
                Some(format!("{address} answers, but {}", says.against(self.replica_set.as_deref())))
            }
            (State::Silent | State::Dropped, _) => Some(format!("{address}: {NO_ANSWER}")),
        }
    }
}

impl Says {
    /// Of the answer to a `hello`.
    fn of(reply: &Document) -> Self {
        let set = reply.get_str("setName").ok().map(str::to_owned);
        let addresses = match reply.get_str("me") {
            Ok(me) => me.to_owned(),
            Err(_) => {
                let hosts = reply.get_array("hosts").into_iter().flatten();
                hosts.filter_map(Bson::as_str).collect::<Vec<_>>().join(", ")
            }
        };
        Says { set, addresses }
    }

    /// What it says otherwise than the connection string, with what to do.
    fn against(&self, wanted: Option<&str>) -> String {
        let Says { set, addresses } = self;
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

/// Nothing comes back, or something took the connection and says nothing.
const NO_ANSWER: &str = "no answer: are host and port right, does a firewall let it through, does the server take TLS \
                         (tls=true) or not?";

/// Why a server is out of reach, with what to look at.
fn why(address: &str, error: &DriverError) -> String {
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
