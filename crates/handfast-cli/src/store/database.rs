//! The database over the store that the settings name.

use std::sync::Arc;

use handfast_embedded::EmbeddedStore;
use handfast_mongodb::Server;
use handfast_server::Storage;
use handfast_store::{CommitTimestamp, DocumentStore as _, Durations, Sources};
use handfast_txn::{Database, PercolatorOptions};
use serde_json::Value;

use super::{Access, Location, OpenedStore, absolute, checked, with_query_memory};
use crate::backups::Backups;
use crate::configuration::Configuration;

/// The storage in a data directory.
#[derive(Debug)]
struct DirectoryStorage(EmbeddedStore);

impl Storage for DirectoryStorage {
    fn sync_durations(&self) -> &Durations {
        self.0.sync_durations()
    }

    fn newest_commit(&self) -> CommitTimestamp {
        self.0.newest_commit()
    }

    fn oldest_snapshot(&self) -> CommitTimestamp {
        self.0.oldest_snapshot()
    }
}

/// A database, and the store under it.
pub(crate) struct OpenedDatabase {
    pub(crate) database: Database,
    store: OpenedStore,
}

impl OpenedDatabase {
    /// Opens what the settings name, for a command beside the server: a data directory with transactions on one machine, or servers with
    /// transactions on single documents.
    pub(crate) async fn open(configuration: &Configuration, sources: Sources) -> anyhow::Result<Self> {
        OpenedDatabase::opened(configuration, Access::Transactions, sources).await
    }

    /// Opens what the settings name for the server, which keeps the log of changes as they say.
    pub(crate) async fn open_to_serve(configuration: &Configuration, sources: Sources) -> anyhow::Result<Self> {
        OpenedDatabase::opened(configuration, Access::Serving, sources).await
    }

    async fn opened(configuration: &Configuration, access: Access, sources: Sources) -> anyhow::Result<Self> {
        let settings = &configuration.settings;
        let location = Location::of(configuration)?;
        let sources = with_query_memory(sources, settings);
        let store = OpenedStore::open(&location, access, sources.clone()).await?;
        if !settings.part {
            store.ensure_whole("; --part serves it to those who do").await?;
        }
        let database = match &store {
            OpenedStore::Directory { store, .. } => Database::local(checked(store, &sources), sources),
            OpenedStore::Servers { store, .. } => {
                let retention = PercolatorOptions::default().retention;
                // An outcome is kept at least as long as the history that a late request may read.
                let outcome_retention = settings.outcome_retention.0.max(retention);
                let lease_ttl = settings.snapshot_lease.0;
                let routing = location.routing()?;
                let options =
                    PercolatorOptions { outcome_retention, lease_ttl, routing, ..PercolatorOptions::default() };
                Database::percolator(store.clone(), sources, options)?
            }
        };
        Ok(OpenedDatabase { database, store })
    }

    /// Returns what makes backups while the documents are served, if a setting names a directory for them.
    pub(crate) fn backups(&self, configuration: &Configuration) -> anyhow::Result<Option<Backups>> {
        match (&self.store, &configuration.settings.backup_directory) {
            (OpenedStore::Directory { path, store }, Some(directory)) => {
                Backups::open(store.clone(), &absolute(path), directory, configuration).map(Some)
            }
            // The settings refuse backups of servers.
            (OpenedStore::Servers { .. }, _) | (_, None) => Ok(None),
        }
    }

    /// Returns the storage on this machine, for `serverStatus`.
    pub(crate) fn storage(&self) -> Option<Arc<dyn Storage>> {
        match &self.store {
            OpenedStore::Directory { store, .. } => Some(Arc::new(DirectoryStorage(store.clone()))),
            OpenedStore::Servers { .. } => None,
        }
    }

    /// Returns whether the documents are in a data directory.
    pub(crate) fn is_directory(&self) -> bool {
        matches!(self.store, OpenedStore::Directory { .. })
    }

    /// Returns a server of the store that is a Handfast itself, if there is one.
    pub(crate) fn handfast_server(&self) -> Option<&Server> {
        match &self.store {
            OpenedStore::Servers { servers, .. } => {
                servers.iter().map(|connected| &*connected.server).find(|server| server.is_handfast())
            }
            OpenedStore::Directory { .. } => None,
        }
    }

    /// Returns where the documents are, for people.
    pub(crate) fn location_text(&self) -> String {
        self.store.location_text()
    }

    /// Returns where the documents are, as fields for programs.
    pub(crate) fn location_fields(&self) -> Vec<(&'static str, Value)> {
        self.store.location_fields()
    }

    /// Returns once all writes are durable and nothing runs in the background any more.
    pub(crate) async fn close(self) -> anyhow::Result<()> {
        match self.store {
            OpenedStore::Directory { .. } => drop(self.database),
            OpenedStore::Servers { .. } => self.database.flush().await?,
        }
        self.store.close().await
    }
}
