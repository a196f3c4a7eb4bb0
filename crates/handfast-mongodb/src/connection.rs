//! Connects to a server: creates a client, detects the product and its capabilities, and chooses the store.

use std::sync::Arc;
use std::time::Duration;

use bson::raw::cstr;
use bson::{Document, RawDocumentBuf};
use handfast_mql::Code;
use handfast_store::{DocumentStore, Error, Result, Sources};
use mongodb::Client;
use mongodb::options::ConnectionString;

use crate::capability::Capability;
use crate::client_side::ClientSideStore;
use crate::command::Command;
use crate::concern::Concerns;
use crate::contact::Contact;
use crate::direct::DirectStore;
use crate::error::{Effect, of_driver, unsupported};
use crate::namespace_mapping::NamespaceMapping;
use crate::options::{self, ConnectOptions, FRONT_PROBE_DATABASE};
use crate::probe::{self, Known, ProbeClients};
use crate::remote::Remote;
use crate::server::{Hello, Product, Server};
use crate::topology::{self, TopologyObserver};

/// A store on a server, and the description of the server.
#[derive(Clone)]
pub struct Connection {
    /// The store.
    pub store: Arc<dyn DocumentStore>,
    /// The server.
    pub server: Arc<Server>,
}

/// Connects to the servers of a connection string (`mongodb://..`) and detects their capabilities. Fails after 5 seconds if no
/// server can be reached, or after the `connectTimeoutMS` of the connection string if that is longer;
/// `serverSelectionTimeoutMS` overrides both.
///
/// # Errors
/// `BadValue` (2) for a connection string that is not valid, or sets read or write concerns; errors of the network and of the
/// authentication; `CommandNotSupported` (115) for a server without atomic updates, unless
/// [`ConnectOptions::sole_writer`] is set; `IllegalOperation` (20) for a Handfast in front of another server, unless
/// [`ConnectOptions::accept_front`] is set.
pub async fn connect(uri: &str, sources: Sources, options: ConnectOptions) -> Result<Connection> {
    let parsed = options::parse(uri)?;
    let address = options::shown(uri)?;
    let majority_timeout = parsed.write_concern.as_ref().and_then(|concern| concern.w_timeout);
    let probe_options = options::client_options(parsed.clone(), options.selection_timeout).await?;
    let (client, hello) = connect_client(parsed, options.observer, options.selection_timeout).await?;
    let hello = Hello::of(&RawDocumentBuf::try_from(&hello).map_err(handfast_mql::Error::from)?);
    let concerns = Concerns::new(hello.deployment, majority_timeout.map(millis));
    let probes = ProbeClients {
        options: probe_options,
        concerns: concerns.clone(),
        statements_max: hello.statements_max,
        reply_timeout: options.reply_timeout,
    };
    let remote = Arc::new(Remote::new(client, concerns, hello.statements_max, options.reply_timeout));
    let product = Product::ask(&remote).await?;
    let known = Known { product: &product.name, deployment: hello.deployment, is_ferretdb_1: product.is_ferretdb_1 };
    let unique = sources.ids.object_id().to_hex();
    let (capabilities, is_front) = match probe::run(&probes, known, &options.probe_database, &unique).await {
        Err(error) if is_front_error(&error, known.product) && options.accept_front => {
            (probe::run(&probes, known, FRONT_PROBE_DATABASE, &unique).await?, true)
        }
        Err(error) if is_front_error(&error, known.product) => return Err(refuse_front(&error)),
        capabilities => (capabilities?, false),
    };
    let server = Server { address, product: product.name, deployment: hello.deployment, capabilities, is_front };
    let server = Arc::new(server);
    let direct = DirectStore::new(remote, Arc::clone(&server), sources.clone());
    if server.capabilities.has(Capability::AtomicUpdates) {
        return Ok(Connection { store: Arc::new(NamespaceMapping::new(direct)), server });
    }
    if !options.sole_writer {
        return Err(lacks_atomic_updates(&server));
    }
    let client_side = ClientSideStore::new(direct, sources);
    Ok(Connection { store: Arc::new(NamespaceMapping::new(client_side)), server })
}

/// Creates the driver's client for a connection string. Returns it with the first server's answer to `hello`.
pub(crate) async fn connect_client(
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
    let hello = contact.wait_for(hello.into_future()).await?;
    Ok((client, hello))
}

/// Returns whether a Handfast in front of another server refused a probe, as it reserves the database of the probes.
fn is_front_error(error: &Error, product: &str) -> bool {
    error.code() == Code::IllegalOperation && Product::is_handfast(product)
}

fn refuse_front(error: &Error) -> Error {
    let text = format!(
        "it is a Handfast in front of another server, and cannot be behind one: name the server behind it, or use its own \
         transactions ({})",
        error.message()
    );
    Error::command(error.code(), text)
}

fn lacks_atomic_updates(server: &Server) -> handfast_store::Error {
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
