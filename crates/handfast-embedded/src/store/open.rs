//! Opens and closes the store.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use handfast_store::{DocumentStore, Sources};

use super::{EmbeddedStore, background};
use crate::Options;
use crate::committer::Committer;
use crate::directory;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::write::collections::drop_collection;
use crate::write::context::WriteContext;
use crate::write::indexes::drop_index;

/// The pause between two polls of closing whether the background tasks have ended their steps.
const CLOSING_PAUSE: Duration = Duration::from_millis(1);

impl EmbeddedStore {
    /// Opens the store in a directory, or creates one if the directory is empty or does not exist. Needs a tokio runtime.
    ///
    /// # Errors
    /// [`Error::InUse`], [`Error::NotAStore`], [`Error::NewerFormat`], [`Error::Damaged`], [`Error::Io`],
    /// [`Error::DiskFull`]: each says what to do.
    pub async fn open(path: impl AsRef<Path>, sources: Sources, options: Options) -> Result<Self> {
        Self::open_locked(path.as_ref(), directory::lock, sources, options).await
    }

    /// Opens the store in a directory that has one.
    ///
    /// # Errors
    /// [`Error::NoStore`], and the errors of [`EmbeddedStore::open`].
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
        store.prepare_log().await.map_err(|error| Error::Engine(format!("the log of changes: {error}")))?;
        background::start(&store.context);
        if !store.context.snapshot().catalog().dropped.is_empty() {
            store.context.key_removal.notify_one();
        }
        Ok(store)
    }

    /// Drops indexes whose build was interrupted: no answer said that they exist.
    async fn drop_incomplete_indexes(&self) -> Result<()> {
        let snapshot = self.context.snapshot();
        for collection in snapshot.catalog().collections() {
            for index in collection.indexes.iter().filter(|index| !index.complete) {
                let (collection, index) = (collection.id, index.id);
                let dropped = self.context.change_catalog(move |writer| drop_index(writer, collection, index)).await;
                dropped.map_err(|error| Error::Engine(format!("dropping an incomplete index: {error}")))?;
            }
        }
        Ok(())
    }

    /// Drops collections that an aggregation with `$out` was filling when the store was killed.
    async fn drop_temporary_collections(&self) -> Result<()> {
        let snapshot = self.context.snapshot();
        for collection in snapshot.catalog().collections() {
            if handfast_store::aggregation::is_temporary(&collection.namespace) {
                let dropped = drop_collection(&self.context, &collection.namespace).await;
                dropped.map_err(|error| Error::Engine(format!("dropping a collection left by $out: {error}")))?;
            }
        }
        Ok(())
    }

    /// Syncs everything and, if this is the last handle, ends the store's threads and frees the directory.
    ///
    /// # Errors
    /// Returns the error of the last sync, of the journal or of the witness.
    pub async fn close(self) -> handfast_store::Result<()> {
        self.flush().await?;
        if Arc::strong_count(&self.handles) == 1 {
            self.context.closing.store(true, Ordering::Relaxed);
            // A background task may be in a step; it starts no other.
            while Arc::strong_count(&self.context) > 1 {
                tokio::time::sleep(CLOSING_PAUSE).await;
            }
        }
        // If other handles or snapshots are left, the last of them ends the committer, and logs its error.
        let end = move || Arc::into_inner(self.context).map_or(Ok(()), |mut context| context.committer.end());
        let ended = tokio::task::spawn_blocking(end).await;
        Ok(ended.map_err(|error| Error::Engine(format!("closing was interrupted: {error}")))??)
    }
}

fn open(directory: directory::Directory, sources: Sources, options: Options) -> Result<EmbeddedStore> {
    let opened = directory::open(&directory, &options)?;
    let engine: Arc<dyn Engine> = Arc::new(opened.engine);
    let committer = Committer::start(engine, opened.witness, opened.chain, &options, &sources)?;
    Ok(assemble(&directory.path, committer, sources, options))
}

pub(crate) fn assemble(directory: &Path, committer: Committer, sources: Sources, options: Options) -> EmbeddedStore {
    let context = Arc::new(WriteContext::new(committer, sources, options));
    EmbeddedStore { context, directory: directory.into(), handles: Arc::default() }
}
