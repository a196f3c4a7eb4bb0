//! The HTTP API of the server (`--http`).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use async_trait::async_trait;
use bson::{RawDocument, RawDocumentBuf};
use handfast_http::ConnectionOptions;
use handfast_http::api::{self, ApiOptions, CommandClient, CommandServer, NotReady};
use handfast_server::auth::{Password, UserName};
use handfast_server::{InProcess, LocalClient};
use handfast_store::{Namespace, Sources};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::command::listen::{addresses, bind};
use crate::configuration::{Configuration, Settings};

const FLAG: &str = "--http";
/// The name of the clients in `currentOp` and in the log.
const REMOTE: &str = "http";

/// The listeners of the API.
pub(super) struct HttpListeners {
    listeners: Vec<TcpListener>,
    any_host: bool,
    shutdown_grace: Duration,
}

impl HttpListeners {
    /// Listens on the addresses of `--http`; on none without it.
    pub(super) async fn bind(configuration: &Configuration) -> Result<Self> {
        let Settings { http, auth, insecure, tls_client_ca, .. } = &configuration.settings;
        let shutdown_grace = configuration.settings.shutdown_timeout.0;
        let Some(http) = http else {
            return Ok(HttpListeners { listeners: Vec::new(), any_host: false, shutdown_grace });
        };
        let addresses = addresses(FLAG, http).await?;
        if tls_client_ca.is_some() && !auth && !insecure {
            let why = "it asks for no certificate, as --tls-client-ca does";
            return Err(configuration
                .mistake("http", format!("{why}; --auth requires a login, --insecure allows this"))
                .into());
        }
        if let Some(open) = addresses.iter().find(|address| !address.ip().is_loopback()) {
            if !auth && !insecure {
                let why = "everybody who can reach it could change the data";
                let what = "--auth requires a login, --insecure allows this";
                let text = format!("{open} is not a loopback address, and {why}; {what}");
                return Err(configuration.mistake("http", text).into());
            }
            warn!("other machines can reach {open} without encryption: put a proxy that encrypts in front of --http");
        }
        let listeners = bind(FLAG, addresses).await?;
        Ok(HttpListeners { listeners, any_host: *insecure, shutdown_grace })
    }

    /// Returns the addresses as URLs.
    pub(super) fn urls(&self) -> Result<Vec<String>> {
        let addresses =
            self.listeners.iter().map(TcpListener::local_addr).collect::<std::io::Result<Vec<SocketAddr>>>()?;
        Ok(addresses.into_iter().map(|address| format!("http://{address}")).collect())
    }

    /// Serves the API until `stop` is canceled. Then it answers the requests in progress.
    pub(super) async fn serve(self, server: InProcess, sources: Sources, stop: CancellationToken) {
        if self.listeners.is_empty() {
            return;
        }
        let server = Arc::new(ServerOfApi(server));
        let connections = ConnectionOptions { shutdown_grace: self.shutdown_grace, ..ConnectionOptions::default() };
        let options = ApiOptions { any_host: self.any_host, ..ApiOptions::default() };
        api::serve(self.listeners, server, &sources, options, connections, stop).await;
    }
}

/// The server, as the API uses it.
struct ServerOfApi(InProcess);

#[async_trait]
impl CommandServer for ServerOfApi {
    async fn not_ready(&self) -> Vec<NotReady> {
        if self.0.is_shutting_down() {
            return vec![NotReady { part: "server", detail: "it stops".to_owned() }];
        }
        let checked = self.0.check_store().await;
        checked.err().map(|error| NotReady { part: "store", detail: error.to_string() }).into_iter().collect()
    }

    fn requires_login(&self) -> bool {
        self.0.requires_login()
    }

    fn writes_to(&self, namespace: Namespace) -> watch::Receiver<()> {
        self.0.writes_to(namespace)
    }

    fn connect(&self) -> Box<dyn CommandClient> {
        Box::new(ClientOfApi(self.0.connect(REMOTE)))
    }
}

struct ClientOfApi(LocalClient);

#[async_trait]
impl CommandClient for ClientOfApi {
    async fn log_in(&mut self, database: &str, name: &str, password: &str) -> handfast_store::Result<bool> {
        // Nobody has a name that is not allowed.
        let Ok(name) = UserName::new(database, name) else { return Ok(false) };
        self.0.log_in(&name, Password::new(password)).await
    }

    fn user_id(&self) -> Option<[u8; 16]> {
        self.0.user_id()
    }

    fn is_login_current(&self) -> bool {
        self.0.is_login_current()
    }

    fn same_login(&self) -> Box<dyn CommandClient> {
        Box::new(ClientOfApi(self.0.same_login(REMOTE)))
    }

    async fn run(&mut self, database: &str, command: &RawDocument) -> RawDocumentBuf {
        self.0.run(database, command).await
    }
}
