//! Connecting: a client, what the server is, what it can do, and the store that fits it.

use std::sync::Arc;
use std::time::Duration;

use bson::raw::cstr;
use bson::{Document, RawDocumentBuf};
use handfast_mql::Code;
use handfast_store::{DocumentStore, Error, Result, Sources};
use mongodb::Client;
use mongodb::options::ConnectionString;

use crate::capability::Capability;
use crate::command::Command;
use crate::concern::Concerns;
use crate::contact::Contact;
use crate::direct::DirectStore;
use crate::error::{Effect, of_driver, unsupported};
use crate::judged::JudgedStore;
use crate::options::{self, ConnectOptions, FRONT_PROBE_DATABASE};
use crate::place::Placed;
use crate::probe::{self, Known};
use crate::remote::Remote;
use crate::server::{Hello, Product, Server};
use crate::topology::{self, TopologyObserver};

/// A store on a server, and what is known of the server.
#[derive(Clone)]
pub struct Connection {
    /// The store.
    pub store: Arc<dyn DocumentStore>,
    /// The server.
    pub server: Arc<Server>,
}

/// Connects to the servers of a connection string (`mongodb://..`), and finds out what they can do. If none can be reached,
/// that is told after 5 seconds, or after the `connectTimeoutMS` of the connection string if that is longer; its
/// `serverSelectionTimeoutMS` stands above both.
///
/// # Errors
/// `BadValue` (2) for a connection string that is not valid, or asks for another durability than each write does; those of
/// the network and of the login; `CommandNotSupported` (115) for a server without atomic updates, unless
/// [`ConnectOptions::sole_writer`] is set; `IllegalOperation` (20) for a Handfast in front of another server, unless
/// [`ConnectOptions::accept_front`] is set.
pub async fn connect(uri: &str, sources: Sources, options: ConnectOptions) -> Result<Connection> {
    let parsed = options::parse(uri)?;
    let address = options::shown(uri)?;
    let majority_timeout = parsed.write_concern.as_ref().and_then(|concern| concern.w_timeout);
    let (client, hello) = contacted(parsed, options.observer, options.selection_timeout).await?;
    let hello = Hello::of(&RawDocumentBuf::try_from(&hello).map_err(handfast_mql::Error::from)?);
    let concerns = Concerns::new(hello.deployment, majority_timeout.map(millis));
    let remote = Arc::new(Remote::new(client, concerns, hello.statements_max, options.reply_timeout));
    let product = Product::ask(&remote).await?;
    let known = Known { product: &product.name, deployment: hello.deployment, is_ferretdb_1: product.is_ferretdb_1 };
    let unique = sources.ids.object_id().to_hex();
    let (capabilities, is_front) = match probe::run(&remote, known, &options.probe_database, &unique).await {
        Err(error) if is_of_front(&error, known.product) && options.accept_front => {
            (probe::run(&remote, known, FRONT_PROBE_DATABASE, &unique).await?, true)
        }
        Err(error) if is_of_front(&error, known.product) => return Err(behind_handfast(&error)),
        capabilities => (capabilities?, false),
    };
    let server = Server { address, product: product.name, deployment: hello.deployment, capabilities, is_front };
    let server = Arc::new(server);
    let direct = DirectStore::new(remote, Arc::clone(&server), sources.clone());
    if server.capabilities.has(Capability::AtomicUpdates) {
        return Ok(Connection { store: Arc::new(Placed::new(direct)), server });
    }
    if !options.sole_writer {
        return Err(two_writers(&server));
    }
    let judged = JudgedStore::new(direct, sources);
    Ok(Connection { store: Arc::new(Placed::new(judged)), server })
}

/// The driver's client for a connection string, and what the first server says of itself (`hello`).
pub(crate) async fn contacted(
    parsed: ConnectionString,
    observer: Option<TopologyObserver>,
    selection_timeout: Duration,
) -> Result<(Client, Document)> {
    let contact = Arc::new(Contact::new(&parsed));
    let mut options = options::client_options(parsed, selection_timeout).await?;
    options.sdam_event_handler = Some(topology::handler(observer, Arc::clone(&contact)));
    let client = Client::with_options(options).map_err(|error| of_driver(error, Effect::Nothing))?;
    let admin = client.database("admin");
    let hello = admin.run_raw_command(Command::new(cstr!("hello"), 1).done());
    let hello = contact.make(hello.into_future()).await?;
    Ok((client, hello))
}

/// Whether a probe was refused by a Handfast in front of another server, which keeps the database of the probes for itself.
fn is_of_front(error: &Error, product: &str) -> bool {
    error.code() == Code::IllegalOperation && Product::is_handfast(product)
}

fn behind_handfast(error: &Error) -> Error {
    let text = format!(
        "it is a Handfast in front of another server, and cannot be behind one: name the server behind it, or use its own \
         transactions ({})",
        error.message()
    );
    Error::command(error.code(), text)
}

fn two_writers(server: &Server) -> handfast_store::Error {
    unsupported(format!(
        "the server ({}) has no {}: of two updates of a document at the same time one is lost; where nobody else writes \
         to it, say so (sole writer), and writes take turns",
        server.product,
        Capability::AtomicUpdates
    ))
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
