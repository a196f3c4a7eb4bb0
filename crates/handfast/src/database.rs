//! Opens a database in a directory.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use handfast_embedded::{EmbeddedStore, Options};
use handfast_mql::spill::SpillSpace;
use handfast_store::routed::ensure_alone;
use handfast_store::spill::{SPILL_BYTES_MAX, SpillDirectory};
use handfast_store::{DocumentStore, Error as StoreError, Sources};
use handfast_txn::WeakDatabase;
use tokio::task::JoinHandle;

use crate::Result;

/// The time for which the database keeps outcomes of transactions, for clients that lost an answer. It keeps those whose
/// [`id`](handfast_txn::Transaction::id) was read before the commit. Only time with an open database counts.
pub const OUTCOMES_KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// The interval at which older outcomes are deleted.
const FORGET_INTERVAL: Duration = Duration::from_secs(10 * 60);

/// A database in a directory, on servers (feature `mongodb`) or over several stores. Clones share it. The directory is released
/// when the last clone, transaction and cursor are dropped.
#[derive(Clone, Debug)]
pub struct Database {
    pub(crate) database: handfast_txn::Database,
    /// The task that deletes old outcomes in a directory.
    pub(crate) _housekeeping: Option<Arc<Housekeeping>>,
}

impl Database {
    /// Opens the database in a directory. Creates the directory if it does not exist. Needs a tokio runtime. Sorts and groups of more than
    /// 100 MiB write files there, of 10 GiB at most.
    ///
    /// # Errors
    /// Returns an error if another process has opened the directory, or if it is damaged, of a newer version, or one of several stores
    /// ([`Database::routed`]). The message says what to do.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self> {
        let sources = with_files_in(Sources::system()?, path.as_ref());
        Database::open_with(path, sources, Options::default()).await
    }

    /// Returns the store of the database, to open a pattern or a collection with. What is written outside of a transaction is atomic for
    /// each document.
    pub fn store(&self) -> Arc<dyn DocumentStore> {
        Arc::new(self.database.clone())
    }

    /// Opens a database with settings and with other sources of time and randomness, for reproducible tests. Sorts and groups write files
    /// only if the sources have a place for them (`query_memory.spill`, such as a [`SpillDirectory`]).
    ///
    /// # Errors
    /// Returns the errors of [`Database::open`].
    pub async fn open_with(path: impl AsRef<Path>, sources: Sources, options: Options) -> Result<Self> {
        let store = EmbeddedStore::open(path, sources.clone(), options).await.map_err(StoreError::from)?;
        ensure_alone(&store).await?;
        let database = handfast_txn::Database::local(store, sources);
        let housekeeping = Some(Arc::new(Housekeeping::start(database.downgrade())));
        Ok(Database { database, _housekeeping: housekeeping })
    }
}

/// Returns the sources of a store in a directory, where sorts and groups write what exceeds their memory.
pub(crate) fn with_files_in(mut sources: Sources, directory: &Path) -> Sources {
    let space: Arc<dyn SpillSpace> = Arc::new(SpillDirectory::new(directory.to_owned(), SPILL_BYTES_MAX));
    sources.query_memory.spill = Some(space);
    sources
}

impl Deref for Database {
    type Target = handfast_txn::Database;

    fn deref(&self) -> &Self::Target {
        &self.database
    }
}

/// Deletes old outcomes until the last handle on the database is dropped.
#[derive(Debug)]
pub(crate) struct Housekeeping(JoinHandle<()>);

impl Housekeeping {
    fn start(database: WeakDatabase) -> Self {
        Housekeeping(tokio::spawn(async move {
            loop {
                tokio::time::sleep(FORGET_INTERVAL).await;
                let Some(database) = database.upgrade() else { return };
                if let Err(error) = database.forget_outcomes(OUTCOMES_KEPT).await {
                    tracing::warn!(%error, "old outcomes of transactions could not be removed");
                }
            }
        }))
    }
}

impl Drop for Housekeeping {
    fn drop(&mut self) {
        self.0.abort();
    }
}
