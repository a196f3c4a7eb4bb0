//! The store of the worker processes: a server, or a directory that this process serves to them over loopback.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use handfast_embedded::EmbeddedStore;
use handfast_server::{Address, Listeners, Server, ShutdownHandle};
use handfast_store::{DocumentStore, Sources};
use handfast_txn::Database;
use tokio::task::JoinHandle;

use crate::configuration::ConnectionString;
use crate::store::{Access, Directory, Location, OpenedStore};

/// A store that several processes reach.
pub(super) struct Host {
    /// The store as this process uses it.
    pub(super) store: Arc<dyn DocumentStore>,
    /// The address that the workers connect to.
    pub(super) uri: ConnectionString,
    serving: Option<Serving>,
}

struct Serving {
    handle: ShutdownHandle,
    task: JoinHandle<()>,
    embedded: EmbeddedStore,
}

impl Host {
    pub(super) async fn open(location: &Location, sources: &Sources) -> Result<Self> {
        match location {
            Location::Servers(servers) => {
                let opened = OpenedStore::open(location, Access::Transactions, sources.clone()).await?;
                Ok(Host { store: opened.documents(), uri: servers.only()?.clone(), serving: None })
            }
            Location::Directory(directory) => Host::serve(directory, sources).await,
        }
    }

    async fn serve(directory: &Directory, sources: &Sources) -> Result<Self> {
        let listen = Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let listeners = Listeners::bind(&[listen]).await?;
        let embedded = directory.open(sources.clone()).await?;
        let database = Database::local(embedded.clone(), sources.clone());
        let server = Server::new(listeners, handfast_server::Options::default(), database.clone());
        let address = server.addresses().first().context("the server has no address")?;
        let uri = format!("mongodb://{address}/?directConnection=true").parse()?;
        let handle = server.shutdown_handle();
        let task = tokio::spawn(server.run());
        let serving = Serving { handle, task, embedded };
        Ok(Host { store: Arc::new(database), uri, serving: Some(serving) })
    }

    pub(super) async fn close(self) -> Result<()> {
        drop(self.store);
        if let Some(Serving { handle, task, embedded }) = self.serving {
            handle.shutdown();
            task.await?;
            embedded.close().await?;
        }
        Ok(())
    }
}
