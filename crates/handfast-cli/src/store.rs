//! The store that the settings ask for: a data directory, or another server.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{anyhow, ensure};
use handfast_embedded::{EmbeddedStore, Options};
use handfast_mongodb::{Capability, ConnectOptions, Server};
use handfast_mql::Code;
use handfast_store::{DocumentStore, Namespace, Sources};
use handfast_txn::{Database, PercolatorOptions};
use tracing::warn;

use crate::backups::Backups;
use crate::configuration::{Configuration, ConnectionString, Mistake, Origin, Settings};
use crate::dump::listed;
use crate::exit::Usage;

/// What only the embedded store has: its settings, which are of no use beside another server.
const EMBEDDED: [&str; 7] = [
    "data",
    "cache-bytes",
    "write-buffer-bytes",
    "journal-bytes",
    "snapshot-bytes",
    "expiry-interval",
    "backup-directory",
];

/// A database, and where its documents are.
pub(crate) struct Opened {
    pub(crate) database: Database,
    place: Place,
}

/// Where documents are.
enum Place {
    Directory { path: PathBuf, store: EmbeddedStore },
    Server(Arc<Server>),
}

impl Opened {
    /// Opens what the settings name: the data directory with transactions on one machine, or a server with transactions on
    /// single documents.
    pub(crate) async fn open(configuration: &Configuration, sources: Sources) -> anyhow::Result<Self> {
        let settings = &configuration.settings;
        check(configuration)?;
        let Some(uri) = &settings.store else {
            let store = open(settings, sources.clone()).await?;
            let database = Database::local(store.clone(), sources);
            let path = std::path::absolute(&settings.data).unwrap_or_else(|_| settings.data.clone());
            return Ok(Opened { database, place: Place::Directory { path, store } });
        };
        let sources = bounded(sources, settings);
        let (store, server) = connect(uri, settings.sole_writer, sources.clone()).await?;
        let retention = PercolatorOptions::default().retention;
        // What is kept of a transaction is no less than what a late request of it may meet.
        let outcome_retention = settings.outcome_retention.0.max(retention);
        let options = PercolatorOptions { outcome_retention, ..PercolatorOptions::default() };
        let database = Database::percolator(store, sources, options)?;
        Ok(Opened { database, place: Place::Server(server) })
    }

    /// What makes backups while the documents are served, if a setting says where to.
    pub(crate) fn backups(&self, configuration: &Configuration) -> anyhow::Result<Option<Backups>> {
        match (&self.place, &configuration.settings.backup_directory) {
            (Place::Directory { path, store }, Some(directory)) => {
                Backups::open(store.clone(), path, directory, configuration).map(Some)
            }
            // A setting for backups of a server is refused before.
            (Place::Server(_), _) | (_, None) => Ok(None),
        }
    }

    /// Where the documents are, for people.
    pub(crate) fn shown(&self) -> String {
        match &self.place {
            Place::Directory { path, .. } => format!("data in {}", path.display()),
            Place::Server(server) => format!("store {} ({})", server.address, server.product),
        }
    }

    /// Where the documents are, for programs.
    pub(crate) fn described(&self) -> Vec<(&'static str, String)> {
        match &self.place {
            Place::Directory { path, .. } => vec![("data", path.to_string_lossy().into_owned())],
            Place::Server(server) => vec![("store", server.address.clone()), ("product", server.product.clone())],
        }
    }

    /// Returns once all that was written is durable, and nothing is under way any more.
    pub(crate) async fn close(self) -> anyhow::Result<()> {
        match self.place {
            Place::Directory { store, .. } => {
                drop(self.database);
                store.close().await?;
            }
            Place::Server(_) => self.database.flush().await?,
        }
        Ok(())
    }
}

/// A store as it is, without transactions over it: for what changes one document at a time.
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
        if let Some(uri) = &settings.store {
            let (store, _) = connect(uri, settings.sole_writer, sources).await?;
            return Ok(Plain { store, embedded: None });
        }
        let embedded = open_existing(settings, sources).await?;
        Ok(Plain { store: Arc::new(embedded.clone()), embedded: Some(embedded) })
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

/// Connects to a server, and says what it lacks that matters to everything.
pub(crate) async fn connect(
    uri: &ConnectionString,
    sole_writer: bool,
    sources: Sources,
) -> anyhow::Result<(Arc<dyn DocumentStore>, Arc<Server>)> {
    let options = ConnectOptions { sole_writer, ..ConnectOptions::default() };
    let connected = handfast_mongodb::connect(uri.secret(), sources, options).await;
    let connection = connected.map_err(|error| {
        let advice = if error.code() == Code::CommandNotSupported { "; --sole-writer says so" } else { "" };
        anyhow!("cannot use the store {uri}: {error}{advice}")
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
fn check(configuration: &Configuration) -> Result<(), Mistake> {
    let is_given = |key: &&str| *configuration.origin(key) != Origin::Default;
    let settings = &configuration.settings;
    if settings.store.is_none() {
        return match settings.sole_writer {
            true => Err(configuration.mistake("sole-writer", "it is about a server, which `store` names")),
            false => Ok(()),
        };
    }
    if let Some(key) = EMBEDDED.iter().find(|key| is_given(key)) {
        return Err(configuration.mistake(key, "it is about a data directory: with `store` there is none"));
    }
    if settings.auth {
        // MongoDB keeps its own users where ours would be.
        return Err(configuration.mistake("auth", "users are kept in a data directory: with `store` there is none"));
    }
    Ok(())
}

/// Opens the data directory, or makes it.
pub(crate) async fn open(settings: &Settings, sources: Sources) -> anyhow::Result<EmbeddedStore> {
    Ok(EmbeddedStore::open(&settings.data, bounded(sources, settings), options(settings)).await?)
}

/// Opens the data directory to look at what is there: it must exist, and nothing expires.
pub(crate) async fn open_existing(settings: &Settings, sources: Sources) -> anyhow::Result<EmbeddedStore> {
    must_exist(settings)?;
    let options = Options { expiry_interval: None, ..options(settings) };
    Ok(EmbeddedStore::open_existing(&settings.data, sources, options).await?)
}

/// What one stage of a query may hold comes to every evaluation with time and chance.
fn bounded(sources: Sources, settings: &Settings) -> Sources {
    sources.with_stage_bytes(usize::try_from(settings.sort_bytes.0).unwrap_or(usize::MAX))
}

/// Fails if there is no data directory.
pub(crate) fn must_exist(settings: &Settings) -> anyhow::Result<()> {
    let data = &settings.data;
    let what = "choose another directory with --data";
    let metadata = std::fs::metadata(data)
        .map_err(|error| anyhow!("cannot read the data directory {}: {error}; {what}", data.display()))?;
    ensure!(metadata.is_dir(), "{} is no directory; {what}", data.display());
    Ok(())
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

/// That a collection which a flag names is there.
pub(crate) async fn ensure_there(store: &dyn DocumentStore, namespace: &Namespace, flag: &str) -> anyhow::Result<()> {
    let (database, collection) = (namespace.database(), namespace.collection());
    let databases = store.list_databases().await?;
    let there = databases.iter().any(|name| name == database);
    ensure!(there, "--database: there is no database '{database}'; {}", listed(&databases));
    let collections = store.list_collections(database).await?;
    let collections: Vec<String> = collections.into_iter().map(|info| info.name).collect();
    let there = collections.iter().any(|name| name == collection);
    ensure!(there, "{flag}: there is no collection '{collection}' in {database}; {}", listed(&collections));
    Ok(())
}
