//! Data directories.

use std::path::PathBuf;

use anyhow::{anyhow, ensure};
use handfast_embedded::{ChangeLog, EmbeddedStore, Options};
use handfast_store::Sources;

use crate::configuration::Settings;

/// The advice where a data directory cannot be used.
const ANOTHER_DIRECTORY: &str = "choose another directory with --data";

/// A data directory, and how its store is opened.
#[derive(Clone, Debug)]
pub(crate) struct Directory {
    pub(crate) path: PathBuf,
    pub(crate) options: Options,
}

impl Directory {
    /// Returns the directory that the settings name.
    pub(crate) fn of(settings: &Settings) -> Self {
        let options = Options {
            cache_bytes: settings.cache_bytes.0,
            write_buffer_bytes: settings.write_buffer_bytes.0,
            journal_bytes_max: settings.journal_bytes.0,
            snapshot_bytes_max: settings.snapshot_bytes.0,
            expiry_interval: Some(settings.expiry_interval.0),
            change_log: settings.change_streams.into(),
            change_log_age_max: settings.change_log_age.0,
            change_log_bytes_max: settings.change_log_bytes.0,
            ..Options::default()
        };
        Directory { path: settings.data.clone(), options }
    }

    /// Opens the directory, and creates it if it is missing.
    pub(crate) async fn open(&self, sources: Sources) -> anyhow::Result<EmbeddedStore> {
        // A directory that cannot be read is reported by the store.
        let is_other = std::fs::metadata(&self.path).is_ok_and(|metadata| !metadata.is_dir());
        ensure!(!is_other, "{}", self.is_no_directory());
        Ok(EmbeddedStore::open(&self.path, sources, self.options.clone()).await?)
    }

    /// Opens the directory as [`Directory::open`] does, for a command beside the server: the log of changes, whose settings are the
    /// server's, stays as it is.
    pub(crate) async fn open_beside_server(&self, sources: Sources) -> anyhow::Result<EmbeddedStore> {
        let options = Options { change_log: ChangeLog::AsItIs, ..self.options.clone() };
        Directory { options, path: self.path.clone() }.open(sources).await
    }

    /// Opens a directory that must exist; no document in it expires meanwhile, and the log of changes stays as it is.
    pub(crate) async fn open_existing(&self, sources: Sources) -> anyhow::Result<EmbeddedStore> {
        self.ensure_exists()?;
        let options = Options { expiry_interval: None, change_log: ChangeLog::AsItIs, ..self.options.clone() };
        Ok(EmbeddedStore::open_existing(&self.path, sources, options).await?)
    }

    /// Fails if the directory does not exist.
    pub(crate) fn ensure_exists(&self) -> anyhow::Result<()> {
        let cannot_read =
            |error| anyhow!("cannot read the data directory {}: {error}; {ANOTHER_DIRECTORY}", self.path.display());
        let metadata = std::fs::metadata(&self.path).map_err(cannot_read)?;
        ensure!(metadata.is_dir(), "{}", self.is_no_directory());
        Ok(())
    }

    fn is_no_directory(&self) -> String {
        format!("{} is not a directory; {ANOTHER_DIRECTORY}", self.path.display())
    }
}
