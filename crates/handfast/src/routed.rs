//! One database over several stores.

use std::path::Path;
use std::sync::Arc;

use handfast_embedded::{EmbeddedStore, Options};
use handfast_store::routed::{Part, Route, Routed};
use handfast_store::{DocumentStore, Error as StoreError, Sources};
use handfast_txn::PercolatorOptions;

use crate::{Database, Result};

impl Database {
    /// Over several stores, each collection in one of them: transactions are over documents in any. The routes say what is
    /// where (`shop.orders=NAME`, `shop=NAME`, and `*=NAME` for the rest, which is also where the database keeps what is its
    /// own); they and the names must stay as they were the first time. Other processes may do the same at the same time, if the
    /// stores take several. Needs a tokio runtime.
    ///
    /// # Errors
    /// Routes that leave something open, or are others than before; those of the stores, all of which must be in reach.
    pub async fn routed(parts: Vec<Part>, routes: &[&str]) -> Result<Self> {
        Database::routed_with(parts, routes, Database::system_sources()?, PercolatorOptions::default()).await
    }

    /// The same with settings. All processes that share the stores have the same [`PercolatorOptions`].
    ///
    /// # Errors
    /// As [`Database::routed`].
    pub async fn routed_with(
        parts: Vec<Part>,
        routes: &[&str],
        sources: Sources,
        percolator: PercolatorOptions,
    ) -> Result<Self> {
        let routes = routes.iter().map(|route| route.parse()).collect::<Result<Vec<Route>, StoreError>>()?;
        let store = Routed::open(parts, &routes, sources.clone()).await?;
        let percolator = PercolatorOptions { routing: Some(store.routing().clone()), ..percolator };
        let database = handfast_txn::Database::percolator(Arc::new(store), sources, percolator)?;
        Ok(Database { database, _housekeeping: None })
    }
}

/// The store in a directory, which is made if it is not there, without transactions: to be one of several, or for the
/// patterns. Needs a tokio runtime.
///
/// # Errors
/// As [`Database::open`].
pub async fn open_store(path: impl AsRef<Path>) -> Result<Arc<dyn DocumentStore>> {
    let opened = EmbeddedStore::open(path, Database::system_sources()?, Options::default()).await;
    Ok(Arc::new(opened.map_err(StoreError::from)?))
}
