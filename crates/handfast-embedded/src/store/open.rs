//! Opening and closing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use handfast_store::{DocumentStore, Sources};

use super::{EmbeddedStore, Inner};
use crate::Options;
use crate::committer::Committer;
use crate::directory;
use crate::engine::Engine;
use crate::error::{Error, Result};

impl EmbeddedStore {
    /// Opens the store in a directory, or makes one if the directory is empty or not there.
    ///
    /// # Errors
    /// [`Error::InUse`], [`Error::NotAStore`], [`Error::NewerFormat`], [`Error::Damaged`], [`Error::Io`],
    /// [`Error::DiskFull`]: see there what to do.
    pub async fn open(path: impl AsRef<Path>, sources: Sources, options: Options) -> Result<Self> {
        let path = path.as_ref().to_owned();
        let opened = tokio::task::spawn_blocking(move || open(path, sources, options)).await;
        opened.map_err(|error| Error::Engine(format!("opening was interrupted: {error}")))?
    }

    /// Syncs everything and, if this is the last handle, ends the store's threads and frees the directory.
    ///
    /// # Errors
    /// The last sync failed.
    pub async fn close(self) -> handfast_store::Result<()> {
        self.flush().await?;
        let ended = tokio::task::spawn_blocking(move || drop(self)).await;
        ended.map_err(|error| Error::Engine(format!("closing was interrupted: {error}")).into())
    }
}

fn open(path: PathBuf, sources: Sources, options: Options) -> Result<EmbeddedStore> {
    let directory = Arc::new(directory::lock(&path)?);
    let opened = directory::open(&directory, &options)?;
    let engine: Arc<dyn Engine> = Arc::new(opened.engine);
    let committer = Committer::start(engine, opened.witness, opened.last, &options)?;
    let removal = tokio::sync::Notify::new();
    Ok(EmbeddedStore { inner: Arc::new(Inner { committer, sources, options, removal }) })
}
