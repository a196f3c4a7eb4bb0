//! Opens a database on MongoDB or another server of its protocol.

use std::sync::Arc;

use handfast_mongodb::ConnectOptions;
use handfast_store::decorator::Resilient;
use handfast_store::routed::{StandaloneStore, ensure_alone};
use handfast_store::{DocumentStore, Sources};
use handfast_txn::PercolatorOptions;
use handfast_txn::percolator::Unmanaged;

use crate::{Database, Result};

impl Database {
    /// Opens a database on the servers of a connection string (`mongodb://..`), which need no transactions of their own.
    ///
    /// Other processes may open it at the same time. Clients that write to its collections without Handfast break the
    /// transactions' guarantees. Needs a tokio runtime.
    ///
    /// Fails after 5 seconds if no server can be reached, or after the `connectTimeoutMS` of the connection string if that is
    /// longer; `serverSelectionTimeoutMS` overrides both.
    ///
    /// # Errors
    /// Fails if no server can be reached, a login is refused or a capability is missing ([`handfast_mongodb::connect`]). A store of
    /// several ([`Database::routed`]) is refused.
    pub async fn connect(uri: &str) -> Result<Self> {
        let sources = Sources::system()?;
        Database::connect_with(uri, sources, ConnectOptions::default(), PercolatorOptions::default()).await
    }

    /// Connects with settings. All processes that share the servers have the same [`PercolatorOptions`].
    ///
    /// # Errors
    /// Returns the errors of [`Database::connect`].
    pub async fn connect_with(
        uri: &str,
        sources: Sources,
        options: ConnectOptions,
        percolator: PercolatorOptions,
    ) -> Result<Self> {
        let connection = handfast_mongodb::connect(uri, sources.clone(), options).await?;
        let store = Arc::new(StandaloneStore::open(connection.store).await?);
        let database = handfast_txn::Database::percolator(store, sources, percolator)?;
        Ok(Database { database, _housekeeping: None })
    }
}

/// Opens a store without transactions on the servers of a connection string, for the patterns. Repeats requests after network
/// errors, where that is safe.
///
/// The server may be a Handfast in front of another one (`handfast serve --store`). If the connection string names the server
/// behind it, the collections of such a Handfast or of a [`Database::connect`] are refused with `IllegalOperation` (20), because
/// their transactions would not notice these writes.
///
/// # Errors
/// Returns the errors of [`Database::connect`].
pub async fn connect_store(uri: &str) -> Result<Arc<Resilient<dyn DocumentStore>>> {
    let sources = Sources::system()?;
    let options = ConnectOptions { accept_front: true, ..ConnectOptions::default() };
    let connection = handfast_mongodb::connect(uri, sources.clone(), options).await?;
    if connection.server.is_front {
        return Ok(Arc::new(Resilient::new(connection.store, sources.ids)));
    }
    ensure_alone(&*connection.store).await?;
    let store: Arc<dyn DocumentStore> = Arc::new(Unmanaged::new(connection.store));
    Ok(Arc::new(Resilient::new(store, sources.ids)))
}
