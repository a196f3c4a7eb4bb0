//! The counters of a data directory.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use handfast_counters::{Counters, CountersOptions, EmbeddedBuffer, EmbeddedBufferOptions, Storage};
use handfast_embedded::{EmbeddedStore, Error as Embedded};
use handfast_store::Sources;
use handfast_txn::Database;

use super::arguments::CountersFlags;
use crate::advice::Advised;
use crate::configuration::Settings;
use crate::store::{Directory, ensure_there, namespace, open_directory};

/// Counters, and the store that they are in.
pub(super) struct OpenedCounters {
    pub(super) counters: Counters,
    store: EmbeddedStore,
}

impl OpenedCounters {
    /// Opens the counters of a data directory. What is missing is created.
    pub(super) async fn open(
        settings: &Settings,
        database: &str,
        options: CountersOptions,
        buffer: EmbeddedBufferOptions,
    ) -> Result<Self> {
        let sources = Sources::system().context("the operating system provides no random numbers")?;
        let store = open_directory(settings, sources.clone()).await.map_err(advise)?;
        match counters(&store, database, sources, options, buffer).await {
            Ok(counters) => Ok(OpenedCounters { counters, store }),
            Err(error) => {
                store.close().await?;
                Err(error)
            }
        }
    }

    /// Opens counters that exist.
    pub(super) async fn open_existing(settings: &Settings, flags: &CountersFlags) -> Result<Self> {
        let totals = namespace(&flags.database, "totals", "--database")?;
        let directory = Directory::of(settings);
        directory.ensure_exists()?;
        let sources = Sources::system().context("the operating system provides no random numbers")?;
        let store = directory.open_existing(sources.clone()).await.map_err(advise)?;
        let opened = async {
            ensure_there(&store, &totals, "--database").await?;
            let time_zone = flags.time_zone.0.clone();
            let options = CountersOptions { time_zone, ..CountersOptions::default() };
            counters(&store, &flags.database, sources, options, EmbeddedBufferOptions::default()).await
        };
        match opened.await {
            Ok(counters) => Ok(OpenedCounters { counters, store }),
            Err(error) => {
                store.close().await?;
                Err(error)
            }
        }
    }

    /// Returns once nothing runs in the background any more.
    pub(super) async fn close(self) -> Result<()> {
        drop(self.counters);
        Ok(self.store.close().await?)
    }
}

/// Adds advice to the error of a directory that another process uses, which is a service of counters in all likelihood.
fn advise(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref() {
        Some(Embedded::InUse { .. }) => {
            let advice = "stop the service that uses it, or ask it over HTTP; --data names another directory";
            Advised { what: error.to_string(), advice }.into()
        }
        _ => error,
    }
}

async fn counters(
    store: &EmbeddedStore,
    database: &str,
    sources: Sources,
    options: CountersOptions,
    buffer: EmbeddedBufferOptions,
) -> Result<Counters> {
    let storage = Storage::open(Database::local(store.clone(), sources.clone()), database).await?;
    let buffer = EmbeddedBuffer::open(Arc::new(store.clone()), database, &storage, sources.clone(), buffer).await?;
    Ok(Counters::new(Arc::new(buffer), storage, sources, options))
}
