//! An empty server in this process, with a proxy in front of it.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context as _, Result, bail};
use handfast_blackpipe::{Handle, Proxy, Rules};
use handfast_server::{Address, Listeners, Options, Server};
use handfast_store::{MemoryStore, Sources};
use handfast_txn::Database;
use tokio::task::JoinSet;

/// A free port of this machine.
const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A server whose documents are in memory, and a proxy; both end when this is dropped.
pub(super) struct ServerBehindProxy {
    /// The data of the server.
    pub(super) database: Database,
    address: SocketAddr,
    proxy: SocketAddr,
    pub(super) handle: Handle,
    _tasks: JoinSet<Option<Infallible>>,
}

impl ServerBehindProxy {
    /// Starts an empty server and a proxy with rules that have seen nothing.
    pub(super) async fn start(sources: &Sources, rules: Rules) -> Result<Self> {
        let listeners = Listeners::bind(&[Address::Tcp(ANY)]).await?;
        let database = Database::local(MemoryStore::new(sources.clone()), sources.clone());
        let server = Server::new(listeners, Options::default(), database.clone());
        let [Address::Tcp(address)] = *server.addresses() else { bail!("the server has no address") };
        let proxy = Proxy::bind(ANY, address.to_string(), rules).await.context("cannot start the proxy")?;
        let (at, handle) = (proxy.address(), proxy.handle());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            server.run().await;
            None
        });
        tasks.spawn(async move { Some(proxy.run().await) });
        Ok(ServerBehindProxy { database, address, proxy: at, handle, _tasks: tasks })
    }

    /// Returns the connection string of the server itself.
    pub(super) fn direct_uri(&self) -> String {
        format!("mongodb://{}/", self.address)
    }

    /// Returns the connection string of the proxy.
    pub(super) fn proxy_uri(&self) -> String {
        format!("mongodb://{}/", self.proxy)
    }
}
