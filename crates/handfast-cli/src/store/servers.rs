//! Servers as stores: connects to each, and makes several one by their routes.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{anyhow, ensure};
use handfast_mongodb::{Capability, ConnectOptions, SELECTION_TIMEOUT, Server};
use handfast_mql::Code;
use handfast_store::routed::{Part, Route, Routing, StandaloneStore};
use handfast_store::{DocumentStore, Routed, Sources};
use tracing::warn;

use super::Access;
use crate::advice::about_login;
use crate::configuration::{ConnectionString, NamedStore, Settings, Stores, variable};

/// The servers that documents are on, and the routes between several.
#[derive(Clone, Debug)]
pub(crate) struct Servers {
    pub(crate) stores: Stores,
    /// Empty if there is one server.
    pub(crate) routes: Vec<Route>,
    /// Whether no other process writes to the server.
    pub(crate) sole_writer: bool,
    /// The time to search for a server that was reached before.
    pub(crate) timeout: Duration,
}

impl Servers {
    /// Returns a single server.
    pub(crate) fn one(uri: ConnectionString, sole_writer: bool) -> Self {
        let stores = Stores(vec![NamedStore { name: None, uri }]);
        Servers { stores, routes: Vec::new(), sole_writer, timeout: SELECTION_TIMEOUT }
    }

    /// Returns the servers that the settings name, if they name any.
    pub(crate) fn of(settings: &Settings) -> Option<Self> {
        let stores = settings.store.clone()?;
        let routes = settings.route.as_ref().map_or(Vec::new(), |routes| routes.0.clone());
        Some(Servers { stores, routes, sole_writer: settings.sole_writer, timeout: settings.store_timeout.0 })
    }

    /// Returns the address of the only server.
    ///
    /// # Errors
    /// Fails if there are several servers.
    pub(crate) fn only(&self) -> anyhow::Result<&ConnectionString> {
        match self.stores.0.as_slice() {
            [only] => Ok(&only.uri),
            _ => Err(anyhow!("only one store is possible here")),
        }
    }

    /// Returns the rule by which several stores are one.
    pub(super) fn routing(&self) -> anyhow::Result<Option<Routing>> {
        let names: Vec<&str> = self.stores.0.iter().map(|store| store.name.as_deref().unwrap_or_default()).collect();
        let routing = (!self.routes.is_empty()).then(|| Routing::new(&names, &self.routes)).transpose();
        routing.map_err(|error| anyhow!("cannot use these stores together: {error}"))
    }

    /// Connects to the servers, and warns of what a server lacks that matters to every command. Several become one store by their routes.
    pub(super) async fn connect(
        &self,
        access: Access,
        sources: Sources,
    ) -> anyhow::Result<(Arc<dyn DocumentStore>, Vec<ConnectedServer>)> {
        let (mut parts, mut connected) = (Vec::new(), Vec::new());
        for named in &self.stores.0 {
            let (store, server) = self.connect_one(named, access, sources.clone()).await?;
            parts.push((named, store));
            connected.push(ConnectedServer { name: named.name.clone(), server });
        }
        let store = match parts.as_slice() {
            // A Handfast in front of others routes by itself.
            [(_, store)] if self.routes.is_empty() && connected.iter().any(|connected| connected.server.is_front) => {
                Arc::clone(store)
            }
            [(named, store)] if self.routes.is_empty() => {
                let alone = StandaloneStore::open(Arc::clone(store)).await;
                Arc::new(alone.map_err(|error| anyhow!("cannot use the store {}: {error}", named.uri))?)
            }
            _ => {
                let front = connected.iter().find(|connected| connected.server.is_front);
                ensure!(front.is_none(), "{}", front.map(not_with_others).unwrap_or_default());
                let part = |(named, store): (&NamedStore, _)| Part::new(named.name.clone().unwrap_or_default(), store);
                let parts = parts.into_iter().map(part).collect();
                let routed = match access {
                    Access::Serving | Access::Transactions | Access::SingleDocuments => {
                        Routed::open(parts, &self.routes, sources).await
                    }
                    Access::Inspection => Routed::open_recorded(parts, &self.routes, sources).await,
                };
                Arc::new(routed.map_err(|error| anyhow!("cannot use these stores together: {error}"))?)
            }
        };
        Ok((store, connected))
    }

    async fn connect_one(
        &self,
        named: &NamedStore,
        access: Access,
        sources: Sources,
    ) -> anyhow::Result<(Arc<dyn DocumentStore>, Arc<Server>)> {
        let Servers { sole_writer, timeout, .. } = *self;
        let accept_front = access == Access::SingleDocuments;
        let options =
            ConnectOptions { sole_writer, selection_timeout: timeout, accept_front, ..ConnectOptions::default() };
        let connected = handfast_mongodb::connect(named.uri.secret(), sources, options).await;
        let connection = connected.map_err(|error| {
            let advice = match error.code() {
                Code::CommandNotSupported => {
                    Some("--sole-writer declares that this process is the only writer".to_owned())
                }
                _ => about_login(&error, &variable("store")),
            };
            let advice = advice.map_or_else(String::new, |advice| format!("; {advice}"));
            anyhow!("cannot use the store {named}: {error}{advice}")
        })?;
        let server = connection.server;
        if !server.capabilities.has(Capability::AtomicUpdates) {
            let product = &server.product;
            warn!(
                "{product} has no atomic updates: writes of other processes get lost, or undo writes of this process"
            );
        }
        Ok((connection.store, server))
    }
}

/// A server that was reached.
pub(crate) struct ConnectedServer {
    /// Its name in routes.
    pub(super) name: Option<String>,
    pub(super) server: Arc<Server>,
}

impl ConnectedServer {
    /// Returns whether the server is a Handfast, which has transactions itself.
    pub(crate) fn is_handfast(&self) -> bool {
        self.server.is_handfast()
    }

    /// Returns name, address and product for people.
    pub(super) fn text(&self) -> String {
        let name = self.name.as_ref().map_or(String::new(), |name| format!("{name} "));
        format!("{name}{} ({})", self.server.address, self.server.product)
    }
}

/// Returns the message that a Handfast in front of other servers cannot be one of several stores.
fn not_with_others(front: &ConnectedServer) -> String {
    format!("{} is Handfast in front of another server: use it as the only store, without routes", front.text())
}
