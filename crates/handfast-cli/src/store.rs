//! The store that the settings ask for: a data directory, or another server.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{anyhow, ensure};
use handfast_embedded::{EmbeddedStore, Options};
use handfast_mongodb::{Capability, ConnectOptions, SELECTION_TIMEOUT, Server};
use handfast_mql::Code;
use handfast_store::decorator::{Checked, Resilient};
use handfast_store::routed::{Alone, Part, Route, Routing, ensure_alone};
use handfast_store::{AtomicStore, DocumentStore, Namespace, Routed, Sources};
use handfast_txn::percolator::Unmanaged;
use handfast_txn::{Database, PercolatorOptions};
use serde_json::{Value, json};
use tracing::warn;

use crate::advice::about_login;
use crate::backups::Backups;
use crate::configuration::{
    Bytes, Configuration, ConnectionString, Mistake, NamedStore, Origin, Settings, Stores, variable,
};
use crate::exit::Usage;
use crate::listing::listed;

/// What only the embedded store has: its settings, which are of no use beside another server.
const EMBEDDED: [&str; 8] = [
    "data",
    "cache-bytes",
    "write-buffer-bytes",
    "journal-bytes",
    "snapshot-bytes",
    "expiry-interval",
    "backup-directory",
    "part",
];

/// What only a server has, or several.
const REMOTE: [&str; 4] = ["route", "sole-writer", "store-timeout", "snapshot-lease"];

/// What to do where a data directory cannot be used.
const ANOTHER_DIRECTORY: &str = "choose another directory with --data";

/// A database, and where its documents are.
pub(crate) struct Opened {
    pub(crate) database: Database,
    place: Place,
}

/// Where documents are.
enum Place {
    Directory { path: PathBuf, store: EmbeddedStore },
    Servers(Vec<Connected>),
}

/// A server that was reached.
pub(crate) struct Connected {
    /// What routes call it.
    name: Option<String>,
    server: Arc<Server>,
}

impl Connected {
    /// Whether it has transactions itself.
    pub(crate) fn is_handfast(&self) -> bool {
        self.server.is_handfast()
    }

    /// What it is, for people.
    fn shown(&self) -> String {
        let name = self.name.as_ref().map_or(String::new(), |name| format!("{name} "));
        format!("{name}{} ({})", self.server.address, self.server.product)
    }
}

/// Servers that documents are on, and which are on which.
#[derive(Clone, Debug)]
pub(crate) struct Servers {
    pub(crate) stores: Stores,
    /// None if there is one server.
    pub(crate) routes: Vec<Route>,
    /// Nobody else writes there.
    pub(crate) sole_writer: bool,
    /// How long a server is looked for that was there.
    pub(crate) timeout: Duration,
}

impl Servers {
    /// One server.
    pub(crate) fn one(uri: ConnectionString, sole_writer: bool) -> Self {
        let stores = Stores(vec![NamedStore { name: None, uri }]);
        Servers { stores, routes: Vec::new(), sole_writer, timeout: SELECTION_TIMEOUT }
    }

    /// Those of the settings, if there are any.
    pub(crate) fn of(settings: &Settings) -> Option<Self> {
        let stores = settings.store.clone()?;
        let routes = settings.route.as_ref().map_or(Vec::new(), |routes| routes.0.clone());
        Some(Servers { stores, routes, sole_writer: settings.sole_writer, timeout: settings.store_timeout.0 })
    }

    /// Where the only one is.
    ///
    /// # Errors
    /// There are several.
    pub(crate) fn only(&self) -> anyhow::Result<&ConnectionString> {
        match self.stores.0.as_slice() {
            [only] => Ok(&only.uri),
            _ => Err(anyhow!("this is not for several stores")),
        }
    }
}

impl Opened {
    /// Opens what the settings name: the data directory with transactions on one machine, or a server with transactions on
    /// single documents.
    pub(crate) async fn open(configuration: &Configuration, sources: Sources) -> anyhow::Result<Self> {
        let settings = &configuration.settings;
        check(configuration)?;
        let sources = bounded(sources, settings);
        let Some(servers) = Servers::of(settings) else {
            let store = open_within(settings, sources.clone()).await?;
            if !settings.part {
                ensure_whole(&store, settings, "; --part serves it to those who do").await?;
            }
            let database = Database::local(watched(&store, &sources), sources);
            let path = std::path::absolute(&settings.data).unwrap_or_else(|_| settings.data.clone());
            return Ok(Opened { database, place: Place::Directory { path, store } });
        };
        let (store, servers) = connect(&servers, sources.clone(), Rule::Record).await?;
        let retention = PercolatorOptions::default().retention;
        // What is kept of a transaction is no less than what a late request of it may meet.
        let outcome_retention = settings.outcome_retention.0.max(retention);
        let lease_ttl = settings.snapshot_lease.0;
        let options = PercolatorOptions { outcome_retention, lease_ttl, ..PercolatorOptions::default() };
        let database = Database::percolator(store, sources, options)?;
        Ok(Opened { database, place: Place::Servers(servers) })
    }

    /// What makes backups while the documents are served, if a setting says where to.
    pub(crate) fn backups(&self, configuration: &Configuration) -> anyhow::Result<Option<Backups>> {
        match (&self.place, &configuration.settings.backup_directory) {
            (Place::Directory { path, store }, Some(directory)) => {
                Backups::open(store.clone(), path, directory, configuration).map(Some)
            }
            // A setting for backups of a server is refused before.
            (Place::Servers(_), _) | (_, None) => Ok(None),
        }
    }

    /// Whether the documents are in a data directory.
    pub(crate) fn is_directory(&self) -> bool {
        matches!(self.place, Place::Directory { .. })
    }

    /// A server that documents are on and that is a Handfast itself, if there is one.
    pub(crate) fn handfast(&self) -> Option<&Server> {
        match &self.place {
            Place::Servers(servers) => servers.iter().map(|of| &*of.server).find(|server| server.is_handfast()),
            Place::Directory { .. } => None,
        }
    }

    /// Where the documents are, for people.
    pub(crate) fn shown(&self) -> String {
        match &self.place {
            Place::Directory { path, .. } => format!("data in {}", path.display()),
            Place::Servers(servers) => {
                let several = if servers.len() > 1 { "stores" } else { "store" };
                format!("{several} {}", servers.iter().map(Connected::shown).collect::<Vec<_>>().join(", "))
            }
        }
    }

    /// Where the documents are, for programs.
    pub(crate) fn described(&self) -> Vec<(&'static str, Value)> {
        let servers = match &self.place {
            Place::Directory { path, .. } => return vec![("data", json!(path.to_string_lossy()))],
            Place::Servers(servers) => servers,
        };
        if let [Connected { server, .. }] = servers.as_slice() {
            return vec![("store", json!(server.address)), ("product", json!(server.product))];
        }
        let of = |Connected { name, server }: &Connected| json!({ "name": name, "store": server.address, "product": server.product });
        vec![("stores", servers.iter().map(of).collect())]
    }

    /// Returns once all that was written is durable, and nothing is under way any more.
    pub(crate) async fn close(self) -> anyhow::Result<()> {
        match self.place {
            Place::Directory { store, .. } => {
                drop(self.database);
                store.close().await?;
            }
            Place::Servers(_) => self.database.flush().await?,
        }
        Ok(())
    }
}

/// A store without transactions over it: for what changes one document at a time. Collections that a Handfast in front of the store
/// writes to are refused ([`Unmanaged`]); that Handfast itself is a store like others. What fails on the network on the way to
/// a server is tried once more where that does no harm.
pub(crate) struct Plain {
    pub(crate) store: Arc<dyn DocumentStore>,
    /// The directory, if it is one.
    embedded: Option<EmbeddedStore>,
}

impl Plain {
    /// Opens what the settings name: the data directory, which must be there and in which nothing expires meanwhile, or a server.
    pub(crate) async fn open(configuration: &Configuration, sources: Sources) -> anyhow::Result<Self> {
        let settings = &configuration.settings;
        check(configuration)?;
        let sources = bounded(sources, settings);
        if let Some(servers) = Servers::of(settings) {
            let (store, connected) = connect_or_front(&servers, sources.clone()).await?;
            let is_front = connected.iter().any(|of| of.server.is_front);
            let store: Arc<dyn DocumentStore> = if is_front { store } else { Arc::new(Unmanaged::new(store)) };
            let store = Arc::new(Resilient::new(store, sources.ids));
            return Ok(Plain { store, embedded: None });
        }
        let embedded = open_existing(settings, sources.clone()).await?;
        ensure_whole(&embedded, settings, "").await?;
        Ok(Plain { store: Arc::new(Unmanaged::new(watched(&embedded, &sources))), embedded: Some(embedded) })
    }

    /// Returns once nothing is under way any more.
    pub(crate) async fn close(self) -> anyhow::Result<()> {
        drop(self.store);
        if let Some(embedded) = self.embedded {
            embedded.close().await?;
        }
        Ok(())
    }
}

/// Sees that a data directory is all there is of its documents.
async fn ensure_whole(store: &EmbeddedStore, settings: &Settings, advice: &str) -> anyhow::Result<()> {
    let alone = ensure_alone(store).await;
    alone.map_err(|error| anyhow!("cannot use {}: {}{advice}", settings.data.display(), error.message()))
}

/// The store as its users see it. A program that was built for debugging looks whether each answer keeps the contract.
fn watched(store: &EmbeddedStore, sources: &Sources) -> Arc<dyn AtomicStore> {
    match cfg!(debug_assertions) {
        true => Arc::new(Checked::new(store.clone(), sources.clone())),
        false => Arc::new(store.clone()),
    }
}

/// What is done about the rule of several stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// It is recorded if there is none.
    Record,
    /// There must be one: nothing is written.
    Look,
}

/// A store, and the servers that it is on.
type StoreOnServers = (Arc<dyn DocumentStore>, Vec<Connected>);

/// Connects to servers, and says what each lacks that matters to everything. Several are one store by their routes.
pub(crate) async fn connect(servers: &Servers, sources: Sources, rule: Rule) -> anyhow::Result<StoreOnServers> {
    connect_with(servers, sources, rule, false).await
}

/// Connects to servers, or to one Handfast in front of others, for what changes one document at a time.
async fn connect_or_front(servers: &Servers, sources: Sources) -> anyhow::Result<StoreOnServers> {
    connect_with(servers, sources, Rule::Record, true).await
}

async fn connect_with(
    servers: &Servers,
    sources: Sources,
    rule: Rule,
    accept_front: bool,
) -> anyhow::Result<StoreOnServers> {
    let (mut parts, mut connected) = (Vec::new(), Vec::new());
    for named in &servers.stores.0 {
        let (store, server) = connect_one(named, servers, sources.clone(), accept_front).await?;
        parts.push((named, store));
        connected.push(Connected { name: named.name.clone(), server });
    }
    let store = match parts.as_slice() {
        // It knows which stores its documents are in.
        [(_, store)] if servers.routes.is_empty() && connected.iter().any(|of| of.server.is_front) => Arc::clone(store),
        [(named, store)] if servers.routes.is_empty() => {
            let alone = Alone::open(Arc::clone(store)).await;
            Arc::new(alone.map_err(|error| anyhow!("cannot use the store {}: {error}", named.uri))?)
        }
        _ => {
            let front = connected.iter().find(|of| of.server.is_front);
            ensure!(front.is_none(), "{}", front.map(not_with_others).unwrap_or_default());
            let part = |(named, store): (&NamedStore, _)| Part::new(named.name.clone().unwrap_or_default(), store);
            let parts = parts.into_iter().map(part).collect();
            let routed = match rule {
                Rule::Record => Routed::open(parts, &servers.routes, sources).await,
                Rule::Look => Routed::open_recorded(parts, &servers.routes, sources).await,
            };
            Arc::new(routed.map_err(|error| anyhow!("cannot use these stores together: {error}"))?)
        }
    };
    Ok((store, connected))
}

/// That a Handfast in front of other servers is no part of several stores.
fn not_with_others(front: &Connected) -> String {
    format!("{} is a Handfast in front of another server: name it alone, without routes", front.shown())
}

async fn connect_one(
    named: &NamedStore,
    servers: &Servers,
    sources: Sources,
    accept_front: bool,
) -> anyhow::Result<(Arc<dyn DocumentStore>, Arc<Server>)> {
    let Servers { sole_writer, timeout, .. } = *servers;
    let options = ConnectOptions { sole_writer, selection_timeout: timeout, accept_front, ..ConnectOptions::default() };
    let connected = handfast_mongodb::connect(named.uri.secret(), sources, options).await;
    let connection = connected.map_err(|error| {
        let advice = match error.code() {
            Code::CommandNotSupported => Some("--sole-writer says so".to_owned()),
            _ => about_login(&error, &variable("store")),
        };
        let advice = advice.map_or_else(String::new, |advice| format!("; {advice}"));
        anyhow!("cannot use the store {named}: {error}{advice}")
    })?;
    let server = connection.server;
    if !server.capabilities.has(Capability::AtomicUpdates) {
        let product = &server.product;
        warn!(
            "{product} has no atomic updates: whatever else writes to it beside this process is lost, or undoes what this process writes"
        );
    }
    Ok((connection.store, server))
}

/// A setting that would be passed over is a mistake.
pub(crate) fn check(configuration: &Configuration) -> Result<(), Mistake> {
    let is_given = |key: &&str| *configuration.origin(key) != Origin::Default;
    let settings = &configuration.settings;
    if settings.store.is_none() {
        return match REMOTE.iter().find(|key| is_given(key)) {
            Some(key) => Err(configuration.mistake(key, "it is about a server, which `store` names")),
            None => Ok(()),
        };
    }
    check_routes(configuration)?;
    if let Some(key) = EMBEDDED.iter().find(|key| is_given(key)) {
        let text = format!(
            "it is about a data directory: with `store` (from {}) there is none",
            configuration.origin("store")
        );
        return Err(configuration.mistake(key, text));
    }
    if settings.auth {
        // MongoDB keeps its own users where ours would be.
        return Err(configuration.mistake("auth", "users are kept in a data directory: with `store` there is none"));
    }
    Ok(())
}

/// Several stores need routes, each to one of them; one store needs none.
fn check_routes(configuration: &Configuration) -> Result<(), Mistake> {
    let Some(servers) = Servers::of(&configuration.settings) else { return Ok(()) };
    let names: Vec<&str> = servers.stores.0.iter().filter_map(|store| store.name.as_deref()).collect();
    match (servers.stores.0.len(), servers.routes.as_slice()) {
        (1, []) => Ok(()),
        (1, _) if names.is_empty() => {
            Err(configuration.mistake("route", "it is to a store with a name: NAME=mongodb://.."))
        }
        (_, []) => Err(configuration.mistake("store", "several stores need routes, which `route` gives")),
        (_, routes) => {
            let routing = Routing::new(&names, routes);
            routing.map(drop).map_err(|error| configuration.mistake("route", error.message()))
        }
    }
}

/// Opens the data directory, or makes it.
pub(crate) async fn open(settings: &Settings, sources: Sources) -> anyhow::Result<EmbeddedStore> {
    open_within(settings, bounded(sources, settings)).await
}

/// The same, with sources that have their bounds: those of a store and of its database are one.
async fn open_within(settings: &Settings, sources: Sources) -> anyhow::Result<EmbeddedStore> {
    let data = &settings.data;
    // What cannot be looked at is told by whoever opens it.
    let is_other = std::fs::metadata(data).is_ok_and(|metadata| !metadata.is_dir());
    ensure!(!is_other, "{}", no_directory(data));
    Ok(EmbeddedStore::open(&settings.data, sources, options(settings)).await?)
}

/// Opens the data directory to look at what is there: it must exist, and nothing expires.
pub(crate) async fn open_existing(settings: &Settings, sources: Sources) -> anyhow::Result<EmbeddedStore> {
    must_exist(settings)?;
    let options = Options { expiry_interval: None, ..options(settings) };
    Ok(EmbeddedStore::open_existing(&settings.data, sources, options).await?)
}

/// What one stage of a query may hold, and those of all together, comes to every evaluation with time and chance.
fn bounded(sources: Sources, settings: &Settings) -> Sources {
    let bytes = |bytes: Bytes| usize::try_from(bytes.0).unwrap_or(usize::MAX);
    sources.with_stage_bytes(bytes(settings.sort_bytes)).with_stage_total_bytes(bytes(settings.stage_bytes_total))
}

/// Fails if there is no data directory.
pub(crate) fn must_exist(settings: &Settings) -> anyhow::Result<()> {
    let data = &settings.data;
    let metadata = std::fs::metadata(data)
        .map_err(|error| anyhow!("cannot read the data directory {}: {error}; {ANOTHER_DIRECTORY}", data.display()))?;
    ensure!(metadata.is_dir(), "{}", no_directory(data));
    Ok(())
}

fn no_directory(data: &Path) -> String {
    format!("{} is no directory; {ANOTHER_DIRECTORY}", data.display())
}

/// What the settings say about the engine.
pub(crate) fn options(settings: &Settings) -> Options {
    Options {
        cache_bytes: settings.cache_bytes.0,
        write_buffer_bytes: settings.write_buffer_bytes.0,
        journal_bytes_max: settings.journal_bytes.0,
        snapshot_bytes_max: settings.snapshot_bytes.0,
        expiry_interval: Some(settings.expiry_interval.0),
        ..Options::default()
    }
}

/// A collection that a flag names.
pub(crate) fn namespace(database: &str, collection: &str, flag: &str) -> anyhow::Result<Namespace> {
    Namespace::new(database, collection)
        .map_err(|error| Usage(format!("--database or {flag}: {}", error.message())).into())
}

/// That a collection which a flag names is there, and can be used. One that a Handfast in front of the store writes to is refused, before
/// anything is recorded.
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
