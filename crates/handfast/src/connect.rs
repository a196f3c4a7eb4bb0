//! A database on MongoDB, or on whatever speaks its protocol.

use std::sync::Arc;

use handfast_mongodb::ConnectOptions;
use handfast_store::decorator::Resilient;
use handfast_store::routed::{StandaloneStore, ensure_alone};
use handfast_store::{DocumentStore, Sources};
use handfast_txn::PercolatorOptions;
use handfast_txn::percolator::Unmanaged;

use crate::{Database, Result};

impl Database {
    /// Connects to the servers of a connection string (`mongodb://..`): transactions over any of their documents, though
    /// the servers have none. Other processes may do the same at the same time; whoever writes to these collections without
    /// Handfast breaks what they promise. Needs a tokio runtime.
    ///
    /// If no server can be reached, that is told after 5 seconds, or after the `connectTimeoutMS` of the connection string if
    /// that is longer; its `serverSelectionTimeoutMS` stands above both.
    ///
    /// # Errors
    /// Those of [`handfast_mongodb::connect`]: a connection string that is not valid, a server that is out of reach, or
    /// lacks something. One of several that are used together ([`Database::routed`]) is refused.
    pub async fn connect(uri: &str) -> Result<Self> {
        let sources = Database::system_sources()?;
        Database::connect_with(uri, sources, ConnectOptions::default(), PercolatorOptions::default()).await
    }

    /// Connects with settings. All processes that share the servers have the same [`PercolatorOptions`].
    ///
    /// # Errors
    /// As [`Database::connect`].
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

/// A store on the servers of a connection string, without transactions: for the patterns, which need none. What fails on the
/// network is tried once more where that does no harm.
///
/// The server may be a Handfast in front of another one (`handfast serve --store`), as its documents are changed one at a time here.
/// The collections that such a Handfast, or a [`Database::connect`], writes to are refused where the server behind it is named, with
/// `IllegalOperation` (20): its transactions would not notice what is written beside it.
///
/// # Errors
/// As [`Database::connect`].
pub async fn connect_store(uri: &str) -> Result<Arc<Resilient<dyn DocumentStore>>> {
    let sources = Database::system_sources()?;
    let options = ConnectOptions { accept_front: true, ..ConnectOptions::default() };
    let connection = handfast_mongodb::connect(uri, sources.clone(), options).await?;
    if connection.server.is_front {
        return Ok(Arc::new(Resilient::new(connection.store, sources.ids)));
    }
    ensure_alone(&*connection.store).await?;
    let store: Arc<dyn DocumentStore> = Arc::new(Unmanaged::new(connection.store));
    Ok(Arc::new(Resilient::new(store, sources.ids)))
}
