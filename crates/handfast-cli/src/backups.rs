//! Backups of the data directory of a running server, for its command `handfastBackup`.
//!
//! There is one copy at a time: it reads and writes as fast as the disk allows, and two of the same name would collide. A copy that has
//! begun is finished even if its client goes away.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::anyhow;
use async_trait::async_trait;
use handfast_embedded::{EmbeddedStore, Error as Embedded, must_be_outside};
use handfast_mql::Code;
use handfast_server::{BackedUp, Backup, BackupName};
use handfast_store::{Error, Result};
use tokio::sync::Mutex;

use crate::configuration::Configuration;

/// The setting of the directory.
const KEY: &str = "backup-directory";

#[derive(Debug)]
pub(crate) struct Backups {
    store: EmbeddedStore,
    directory: PathBuf,
    /// The running copy holds the lock.
    turn: Arc<Mutex<()>>,
}

impl Backups {
    /// Creates a missing directory for its owner alone, because it will hold documents and the keys of users.
    pub(crate) fn open(
        store: EmbeddedStore,
        data: &Path,
        directory: &Path,
        configuration: &Configuration,
    ) -> anyhow::Result<Self> {
        let wrong = |reason: String| configuration.mistake(KEY, reason);
        let unusable = |error| anyhow!(wrong(format!("{}: {error}", directory.display())).to_string());
        match must_be_outside(data, directory) {
            Ok(()) => {}
            Err(Embedded::WithinStore { .. }) => {
                let text =
                    format!("{} is inside the data directory, which must hold nothing else", directory.display());
                return Err(wrong(text).into());
            }
            Err(error) => return Err(anyhow!(wrong(error.to_string()).to_string())),
        }
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
        let directory = made.and_then(|()| directory.canonicalize()).map_err(unusable)?;
        Ok(Backups { store, directory, turn: Arc::default() })
    }
}

#[async_trait]
impl Backup for Backups {
    async fn back_up(&self, name: &BackupName) -> Result<BackedUp> {
        let Ok(turn) = Arc::clone(&self.turn).try_lock_owned() else {
            let text = "another backup is running; repeat the command when it is complete";
            return Err(Error::command(Code::ConflictingOperationInProgress, text));
        };
        let path = self.directory.join(name.as_str());
        match path.symlink_metadata() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::command(Code::InternalError, format!("{}: {error}", path.display()))),
            Ok(_) => {
                let text = format!("there is a backup '{name}' already; choose another name");
                return Err(Error::command(Code::NamespaceExists, text));
            }
        }
        let store = self.store.clone();
        let copying = tokio::spawn(async move {
            let _turn = turn;
            let copied = store.backup(&path).await?;
            Ok(BackedUp {
                path: path.to_string_lossy().into_owned(),
                documents: copied.documents,
                entries: copied.entries,
                bytes: copied.bytes,
            })
        });
        let panicked = |error| Error::command(Code::InternalError, format!("the backup failed: {error}"));
        copying.await.map_err(panicked)?
    }
}

#[cfg(test)]
mod tests;
