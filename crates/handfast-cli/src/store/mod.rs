//! The store that a command works on: a data directory, or servers. There is one way to open it, [`OpenedStore::open`].

mod database;
mod directory;
mod servers;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{anyhow, ensure};
use handfast_embedded::EmbeddedStore;
use handfast_mql::context::{QueryMemory, StageTotal};
use handfast_mql::spill::SpillSpace;
use handfast_store::decorator::{Checked, Resilient};
use handfast_store::routed::{Routing, ensure_alone};
use handfast_store::spill::SpillDirectory;
use handfast_store::{AtomicStore, DocumentStore, Namespace, Sources};
use handfast_txn::percolator::Unmanaged;
use serde_json::{Value, json};

pub(crate) use self::database::OpenedDatabase;
pub(crate) use self::directory::Directory;
pub(crate) use self::servers::{ConnectedServer, Servers};
use crate::configuration::{Bytes, Configuration, Mistake, Origin, Settings};
use crate::exit::Usage;
use crate::listing::listed;

/// Settings of the embedded store alone.
const EMBEDDED: [&str; 11] = [
    "data",
    "cache-bytes",
    "write-buffer-bytes",
    "journal-bytes",
    "snapshot-bytes",
    "expiry-interval",
    "change-streams",
    "change-log-age",
    "change-log-bytes",
    "backup-directory",
    "part",
];

/// Settings of servers alone.
const REMOTE: [&str; 4] = ["route", "sole-writer", "store-timeout", "snapshot-lease"];

/// The location of a command's documents.
#[derive(Clone, Debug)]
pub(crate) enum Location {
    Directory(Directory),
    Servers(Servers),
}

impl Location {
    /// Returns the location that the settings name.
    pub(crate) fn of(configuration: &Configuration) -> Result<Self, Mistake> {
        check(configuration)?;
        let settings = &configuration.settings;
        let servers = Servers::of(settings).map(Location::Servers);
        Ok(servers.unwrap_or_else(|| Location::Directory(Directory::of(settings))))
    }

    /// Returns the rule by which several stores are one.
    fn routing(&self) -> anyhow::Result<Option<Routing>> {
        match self {
            Location::Directory(_) => Ok(None),
            Location::Servers(servers) => servers.routing(),
        }
    }

    /// Returns how many stores the documents are in.
    pub(crate) fn store_count(&self) -> u32 {
        match self {
            Location::Directory(_) => 1,
            Location::Servers(servers) => u32::try_from(servers.stores.0.len()).unwrap_or(u32::MAX),
        }
    }
}

/// The kind of work that a command does on a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Serves it, with transactions, and with the log of changes as the settings say. A missing data directory is created, and the routes
    /// of several servers are recorded in them.
    Serving,
    /// Transactions over it by a command beside the server, which leaves the log of changes as it is. A missing data directory is created, and the routes of several servers are recorded in them.
    Transactions,
    /// Changes of one document at a time. A data directory must exist; a Handfast in front of other servers is accepted.
    SingleDocuments,
    /// Looks at what transactions have left. A data directory must exist, and the routes of several servers must be recorded.
    Inspection,
}

/// A store that is open.
pub(crate) enum OpenedStore {
    Directory { path: PathBuf, store: EmbeddedStore },
    Servers { store: Arc<dyn DocumentStore>, servers: Vec<ConnectedServer> },
}

impl OpenedStore {
    pub(crate) async fn open(location: &Location, access: Access, sources: Sources) -> anyhow::Result<Self> {
        match location {
            Location::Directory(directory) => {
                let store = match access {
                    Access::Serving => directory.open(sources).await?,
                    Access::Transactions => directory.open_beside_server(sources).await?,
                    Access::SingleDocuments | Access::Inspection => directory.open_existing(sources).await?,
                };
                Ok(OpenedStore::Directory { path: directory.path.clone(), store })
            }
            Location::Servers(servers) => {
                let (store, servers) = servers.connect(access, sources).await?;
                Ok(OpenedStore::Servers { store, servers })
            }
        }
    }

    /// Returns the documents as a store.
    pub(crate) fn documents(&self) -> Arc<dyn DocumentStore> {
        match self {
            OpenedStore::Directory { store, .. } => Arc::new(store.clone()),
            OpenedStore::Servers { store, .. } => Arc::clone(store),
        }
    }

    /// Returns where the documents are, for people.
    fn location_text(&self) -> String {
        match self {
            OpenedStore::Directory { path, .. } => format!("data in {}", absolute(path).display()),
            OpenedStore::Servers { servers, .. } => {
                let noun = if servers.len() > 1 { "stores" } else { "store" };
                format!("{noun} {}", servers.iter().map(ConnectedServer::text).collect::<Vec<_>>().join(", "))
            }
        }
    }

    /// Returns where the documents are, as fields for programs.
    fn location_fields(&self) -> Vec<(&'static str, Value)> {
        let servers = match self {
            OpenedStore::Directory { path, .. } => return vec![("data", json!(absolute(path).to_string_lossy()))],
            OpenedStore::Servers { servers, .. } => servers,
        };
        if let [ConnectedServer { server, .. }] = servers.as_slice() {
            return vec![("store", json!(server.address)), ("product", json!(server.product))];
        }
        let fields = |connected: &ConnectedServer| {
            let ConnectedServer { name, server } = connected;
            json!({ "name": name, "store": server.address, "product": server.product })
        };
        vec![("stores", servers.iter().map(fields).collect())]
    }

    /// Returns whether one of the servers is a Handfast, which has transactions itself.
    pub(crate) fn is_on_handfast(&self) -> bool {
        match self {
            OpenedStore::Directory { .. } => false,
            OpenedStore::Servers { servers, .. } => servers.iter().any(ConnectedServer::is_handfast),
        }
    }

    /// Fails if a data directory holds only a part of the documents of several stores; `advice` ends the message.
    pub(crate) async fn ensure_whole(&self, advice: &str) -> anyhow::Result<()> {
        let OpenedStore::Directory { path, store } = self else { return Ok(()) };
        let alone = ensure_alone(store).await;
        alone.map_err(|error| anyhow!("cannot use {}: {}{advice}", path.display(), error.message()))
    }

    /// Returns once nothing runs in the background any more.
    pub(crate) async fn close(self) -> anyhow::Result<()> {
        match self {
            OpenedStore::Directory { store, .. } => Ok(store.close().await?),
            OpenedStore::Servers { .. } => Ok(()),
        }
    }
}

/// A store without transactions over it, for commands that change one document at a time. Collections that a Handfast in front of the
/// store writes to are refused ([`Unmanaged`]); that Handfast itself is a store like others. What fails on the network on the way to
/// a server is tried once more where that is harmless.
pub(crate) struct SingleDocumentStore {
    pub(crate) store: Arc<dyn DocumentStore>,
    opened: OpenedStore,
}

impl SingleDocumentStore {
    /// Opens the store that the settings name.
    pub(crate) async fn open(configuration: &Configuration, sources: Sources) -> anyhow::Result<Self> {
        let (opened, sources) = Self::opened(configuration, sources).await?;
        let store: Arc<dyn DocumentStore> = match &opened {
            OpenedStore::Directory { store, .. } => Arc::new(Unmanaged::new(checked(store, &sources))),
            OpenedStore::Servers { store, servers } => {
                let store = Arc::clone(store);
                let is_front = servers.iter().any(|connected| connected.server.is_front);
                let store: Arc<dyn DocumentStore> = if is_front { store } else { Arc::new(Unmanaged::new(store)) };
                Arc::new(Resilient::new(store, sources.ids))
            }
        };
        Ok(SingleDocumentStore { store, opened })
    }

    /// Opens the store for a caller that looks itself whether a Handfast in front of it writes to its collections.
    pub(crate) async fn open_unchecked(configuration: &Configuration, sources: Sources) -> anyhow::Result<Self> {
        let (opened, sources) = Self::opened(configuration, sources).await?;
        let store = Arc::new(Resilient::new(opened.documents(), sources.ids));
        Ok(SingleDocumentStore { store, opened })
    }

    async fn opened(configuration: &Configuration, sources: Sources) -> anyhow::Result<(OpenedStore, Sources)> {
        let location = Location::of(configuration)?;
        let sources = with_query_memory(sources, &configuration.settings);
        let opened = OpenedStore::open(&location, Access::SingleDocuments, sources.clone()).await?;
        opened.ensure_whole("").await?;
        Ok((opened, sources))
    }

    /// Returns where the documents are, for people.
    pub(crate) fn location_text(&self) -> String {
        self.opened.location_text()
    }

    /// Returns where the documents are, as fields for programs.
    pub(crate) fn location_fields(&self) -> Vec<(&'static str, Value)> {
        self.opened.location_fields()
    }

    /// Returns once nothing runs in the background any more.
    pub(crate) async fn close(self) -> anyhow::Result<()> {
        drop(self.store);
        self.opened.close().await
    }
}

/// Opens the data directory of the settings, and creates it if it is missing.
pub(crate) async fn open_directory(settings: &Settings, sources: Sources) -> anyhow::Result<EmbeddedStore> {
    Directory::of(settings).open(with_query_memory(sources, settings)).await
}

/// Returns the store, in a debug build with a check that each answer keeps the contract.
fn checked(store: &EmbeddedStore, sources: &Sources) -> Arc<dyn AtomicStore> {
    match cfg!(debug_assertions) {
        true => Arc::new(Checked::new(store.clone(), sources.clone())),
        false => Arc::new(store.clone()),
    }
}

/// Returns the sources with the memory limits of the settings: of one stage of a query, and of all stages together, and with the place for what
/// exceeds them.
fn with_query_memory(sources: Sources, settings: &Settings) -> Sources {
    let bytes = |bytes: Bytes| usize::try_from(bytes.0).unwrap_or(usize::MAX);
    let data = settings.store.is_none().then_some(&settings.data);
    let directory = settings.spill_directory.as_ref().or(data).filter(|_| settings.spill_bytes.0 > 0);
    let spill = directory.map(|directory| SpillDirectory::new(directory.clone(), settings.spill_bytes.0));
    let query_memory = QueryMemory {
        stage_bytes_max: bytes(settings.sort_bytes),
        total: StageTotal::new(bytes(settings.stage_bytes_total)),
        spill: spill.map(|spill| Arc::new(spill) as Arc<dyn SpillSpace>),
    };
    Sources { query_memory, ..sources }
}

/// Refuses a setting that has no effect on the store that the settings name.
fn check(configuration: &Configuration) -> Result<(), Mistake> {
    let is_given = |key: &&str| *configuration.origin(key) != Origin::Default;
    let settings = &configuration.settings;
    if let Some(directory) = settings.spill_directory.as_ref().filter(|directory| !directory.is_dir()) {
        return Err(configuration.mistake("spill-directory", format!("{} is no directory", directory.display())));
    }
    if settings.store.is_none() {
        return match REMOTE.iter().find(|key| is_given(key)) {
            Some(key) => Err(configuration.mistake(key, "it has no effect without `store`, which names a server")),
            None => Ok(()),
        };
    }
    check_routes(configuration)?;
    if let Some(key) = EMBEDDED.iter().find(|key| is_given(key)) {
        let text = format!(
            "it is for a data directory, and has no effect with `store` (from {})",
            configuration.origin("store")
        );
        return Err(configuration.mistake(key, text));
    }
    if settings.auth {
        // MongoDB keeps its own users where ours would be.
        return Err(configuration.mistake("auth", "users need a data directory, and a server with `store` has none"));
    }
    Ok(())
}

/// Refuses several stores without routes, a route to an unknown store, and a route to a single store without a name.
fn check_routes(configuration: &Configuration) -> Result<(), Mistake> {
    let Some(servers) = Servers::of(&configuration.settings) else { return Ok(()) };
    let names: Vec<&str> = servers.stores.0.iter().filter_map(|store| store.name.as_deref()).collect();
    match (servers.stores.0.len(), servers.routes.as_slice()) {
        (1, []) => Ok(()),
        (1, _) if names.is_empty() => {
            Err(configuration.mistake("route", "a route needs a store with a name: NAME=mongodb://.."))
        }
        (_, []) => {
            Err(configuration.mistake("store", "several stores need `route`, which assigns collections to them"))
        }
        (_, routes) => {
            let routing = Routing::new(&names, routes);
            routing.map(drop).map_err(|error| configuration.mistake("route", error.message()))
        }
    }
}

/// Returns the namespace of a collection that a flag names.
pub(crate) fn namespace(database: &str, collection: &str, flag: &str) -> anyhow::Result<Namespace> {
    Namespace::new(database, collection)
        .map_err(|error| Usage(format!("--database or {flag}: {}", error.message())).into())
}

/// Fails if the collection that a flag names is missing, or if a Handfast in front of the store writes to it; nothing is recorded.
pub(crate) async fn ensure_there(store: &dyn DocumentStore, namespace: &Namespace, flag: &str) -> anyhow::Result<()> {
    let (database, collection) = (namespace.database(), namespace.collection());
    let databases = store.list_databases().await?;
    let there = databases.iter().any(|name| name == database);
    ensure!(there, "--database: there is no database '{database}'; {}", listed(&databases));
    let collections = store.list_collections(database).await?;
    let collections: Vec<String> = collections.into_iter().map(|info| info.name).collect();
    let there = collections.iter().any(|name| name == collection);
    ensure!(there, "{flag}: there is no collection '{collection}' in {database}; {}", listed(&collections));
    store.list_indexes(namespace).await?;
    Ok(())
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
