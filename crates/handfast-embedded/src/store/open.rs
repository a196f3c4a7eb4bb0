//! Opening and closing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use handfast_store::{DocumentStore, Sources};

use super::{EmbeddedStore, Inner, background};
use crate::Options;
use crate::committer::Committer;
use crate::directory;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::write::indexes::drop_index;

/// How often closing looks whether the background task is done with what it began.
const CLOSING_PAUSE: Duration = Duration::from_millis(1);

impl EmbeddedStore {
    /// Opens the store in a directory, or makes one if the directory is empty or not there. Needs a tokio runtime.
    ///
    /// # Errors
    /// [`Error::InUse`], [`Error::NotAStore`], [`Error::NewerFormat`], [`Error::Damaged`], [`Error::Io`],
    /// [`Error::DiskFull`]: see there what to do.
    pub async fn open(path: impl AsRef<Path>, sources: Sources, options: Options) -> Result<Self> {
        Self::open_locked(path.as_ref(), directory::lock, sources, options).await
    }

    /// Opens the store in a directory that has one.
    ///
    /// # Errors
    /// Those of [`EmbeddedStore::open`], and [`Error::NoStore`].
    pub async fn open_existing(path: impl AsRef<Path>, sources: Sources, options: Options) -> Result<Self> {
        Self::open_locked(path.as_ref(), directory::lock_existing, sources, options).await
    }

    async fn open_locked(
        path: &Path,
        lock: fn(&Path) -> Result<directory::Directory>,
        sources: Sources,
        options: Options,
    ) -> Result<Self> {
        let path = path.to_owned();
        let opened = tokio::task::spawn_blocking(move || open(lock(&path)?, sources, options)).await;
        let store = opened.map_err(|error| Error::Engine(format!("opening was interrupted: {error}")))??;
        store.drop_incomplete_indexes().await?;
        store.drop_temporary_collections().await?;
        background::start(&store);
        if !store.snapshot_now().catalog().dropped.is_empty() {
            store.removal_is_due();
        }
        Ok(store)
    }

    /// Indexes whose building was broken off: nobody was told that they exist.
    async fn drop_incomplete_indexes(&self) -> Result<()> {
        let snapshot = self.snapshot_now();
        for collection in snapshot.catalog().collections() {
            for index in collection.indexes.iter().filter(|index| !index.complete) {
                let (collection, index) = (collection.id, index.id);
                let dropped = self.change_catalog(move |writer| drop_index(writer, collection, index)).await;
                dropped.map_err(|error| Error::Engine(format!("dropping an incomplete index: {error}")))?;
            }
        }
        Ok(())
    }

    /// Collections that an aggregation with `$out` was filling when the store was killed.
    async fn drop_temporary_collections(&self) -> Result<()> {
        let snapshot = self.snapshot_now();
        for collection in snapshot.catalog().collections() {
            if handfast_store::aggregation::is_temporary(&collection.namespace) {
                let dropped = self.drop_one(&collection.namespace).await;
                dropped.map_err(|error| Error::Engine(format!("dropping a collection left by $out: {error}")))?;
            }
        }
        Ok(())
    }

    /// Syncs everything and, if this is the last handle, ends the store's threads and frees the directory.
    ///
    /// # Errors
    /// The last sync failed: of the journal, or of the witness.
    pub async fn close(self) -> handfast_store::Result<()> {
        self.flush().await?;
        if Arc::strong_count(&self.handles) == 1 {
            self.inner.closing.store(true, Ordering::Relaxed);
            // The background task may be at work on one step; it begins no other.
            while Arc::strong_count(&self.inner) > 1 {
                tokio::time::sleep(CLOSING_PAUSE).await;
            }
        }
        // A handle, cursor or snapshot that somebody else has ends the committer later, and logs what went wrong.
        let end = move || Arc::into_inner(self.inner).map_or(Ok(()), |mut inner| inner.committer.end());
        let ended = tokio::task::spawn_blocking(end).await;
        Ok(ended.map_err(|error| Error::Engine(format!("closing was interrupted: {error}")))??)
    }
}

fn open(directory: directory::Directory, sources: Sources, options: Options) -> Result<EmbeddedStore> {
    let directory = Arc::new(directory);
    let opened = directory::open(&directory, &options)?;
    let engine: Arc<dyn Engine> = Arc::new(opened.engine);
    let committer = Committer::start(engine, opened.witness, opened.chain, &options)?;
    Ok(assemble(directory.path.clone(), committer, sources, options))
}

/// The store around its committer.
pub(super) fn assemble(directory: PathBuf, committer: Committer, sources: Sources, options: Options) -> EmbeddedStore {
    let removal = Arc::default();
    let (builds, closing) = (Arc::default(), AtomicBool::new(false));
    let inner = Arc::new(Inner { directory, committer, sources, options, removal, builds, closing });
    EmbeddedStore { inner, handles: Arc::default() }
}
