//! A database, and how it is opened in a directory.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use handfast_embedded::{EmbeddedStore, Options};
use handfast_mql::Code;
use handfast_store::routed::ensure_alone;
use handfast_store::{Error as StoreError, Sources};
use handfast_txn::WeakDatabase;
use tokio::task::JoinHandle;

use crate::Result;

/// How long outcomes of transactions are kept, for whoever lost an answer and asks: those whose
/// [`id`](handfast_txn::Transaction::id) was looked at before the commit. Only time counts in which the database is open.
pub const OUTCOMES_KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// How often older ones are looked for.
const FORGET_INTERVAL: Duration = Duration::from_secs(10 * 60);

/// A database: in one directory, or on servers (feature `mongodb`). Clones are the same database; the directory is free again when the last one, and the last
/// transaction and cursor of it, are gone.
#[derive(Clone, Debug)]
pub struct Database {
    pub(crate) database: handfast_txn::Database,
    /// In a directory, where nobody else does it.
    pub(crate) _housekeeping: Option<Arc<Housekeeping>>,
}

impl Database {
    /// Opens the database in this directory, which is made if it is not there. Needs a tokio runtime.
    ///
    /// # Errors
    /// That another process has it, that it is damaged, made by a newer version, or one of several stores that are used
    /// together ([`Database::routed`]): the text says what to do.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self> {
        Database::open_with(path, Database::system_sources()?, Options::default()).await
    }

    /// Time and chance of the machine.
    pub(crate) fn system_sources() -> Result<Sources> {
        let sources = Sources::system().map_err(|error| {
            let text = format!("the operating system gives no randomness: {error}");
            StoreError::command(Code::InternalError, text)
        });
        Ok(sources?)
    }

    /// Opens with settings, and with time and chance from somewhere else than the machine: for tests that can be
    /// repeated.
    ///
    /// # Errors
    /// As [`Database::open`].
    pub async fn open_with(path: impl AsRef<Path>, sources: Sources, options: Options) -> Result<Self> {
        let store = EmbeddedStore::open(path, sources.clone(), options).await.map_err(StoreError::from)?;
        ensure_alone(&store).await?;
        let database = handfast_txn::Database::local(store, sources);
        let housekeeping = Some(Arc::new(Housekeeping::start(database.downgrade())));
        Ok(Database { database, _housekeeping: housekeeping })
    }
}

impl Deref for Database {
    type Target = handfast_txn::Database;

    fn deref(&self) -> &Self::Target {
        &self.database
    }
}

/// Forgets old outcomes, for as long as there is a handle on the database.
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
