//! Where the documents are: on a server, or in a directory that this process serves to the workers over loopback.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use handfast_embedded::{EmbeddedStore, Options};
use handfast_server::{Address, Listeners, Server, ShutdownHandle};
use handfast_store::{DocumentStore, Sources};
use handfast_txn::Database;
use tokio::task::JoinHandle;

use crate::command::bank::opened::Place;
use crate::configuration::ConnectionString;
use crate::store::{self, Rule};

/// A store that several processes reach.
pub(super) struct Host {
    /// For this process.
    pub(super) store: Arc<dyn DocumentStore>,
    /// For the workers.
    pub(super) uri: ConnectionString,
    serving: Option<Serving>,
}

struct Serving {
    handle: ShutdownHandle,
    task: JoinHandle<()>,
    embedded: EmbeddedStore,
}

impl Host {
    pub(super) async fn open(place: &Place, sources: &Sources) -> Result<Self> {
        match place {
            Place::Servers(servers) => {
                let (store, _) = store::connect(servers, sources.clone(), Rule::Record).await?;
                Ok(Host { store, uri: servers.only()?.clone(), serving: None })
            }
            Place::Directory(path) => Host::serve(path, sources).await,
        }
    }

    async fn serve(path: &Path, sources: &Sources) -> Result<Self> {
        let listen = Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let listeners = Listeners::bind(&[listen]).await?;
        let embedded = EmbeddedStore::open(path, sources.clone(), Options::default()).await?;
        let database = Database::local(embedded.clone(), sources.clone());
        let server = Server::new(listeners, handfast_server::Options::default(), database.clone());
        let address = server.addresses().first().context("the server listens nowhere")?;
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
