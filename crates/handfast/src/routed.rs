//! Opens one database over several stores.

use std::path::Path;
use std::sync::Arc;

use handfast_embedded::{EmbeddedStore, Options};
use handfast_store::routed::{Part, Route, Routed};
use handfast_store::{DocumentStore, Error as StoreError, Sources};
use handfast_txn::PercolatorOptions;

use crate::database::with_files_in;
use crate::{Database, Result};

impl Database {
    /// Opens a database over several stores, each of which keeps some of the collections. A transaction may use all of them.
    ///
    /// The routes assign collections to stores: `shop.orders=NAME`, `shop=NAME`, and `*=NAME` for all others and for the
    /// database's own collections. The names and routes must not change later. Other processes may open the same stores if
    /// these allow it. Needs a tokio runtime.
    ///
    /// # Errors
    /// Returns an error for incomplete or changed routes, and for a store that cannot be reached.
    pub async fn routed(parts: Vec<Part>, routes: &[&str]) -> Result<Self> {
        Database::routed_with(parts, routes, Sources::system()?, PercolatorOptions::default()).await
    }

    /// Opens a database over several stores with settings. All processes that share the stores have the same [`PercolatorOptions`].
    ///
    /// # Errors
    /// Returns the errors of [`Database::routed`].
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

/// Opens a store without transactions in a directory, for [`Database::routed`] or the patterns. Creates the directory if it does
/// not exist. Needs a tokio runtime.
///
/// # Errors
/// Returns the errors of [`Database::open`].
pub async fn open_store(path: impl AsRef<Path>) -> Result<Arc<dyn DocumentStore>> {
    let sources = with_files_in(Sources::system()?, path.as_ref());
    let opened = EmbeddedStore::open(path, sources, Options::default()).await;
    Ok(Arc::new(opened.map_err(StoreError::from)?))
}
