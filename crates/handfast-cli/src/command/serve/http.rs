//! The HTTP API of the server (`--http`).

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use async_trait::async_trait;
use bson::{RawDocument, RawDocumentBuf};
use handfast_http::ConnectionOptions;
use handfast_http::api::{self, ApiOptions, CommandClient, CommandServer};
use handfast_server::auth::{Password, UserName};
use handfast_server::{InProcess, LocalClient};
use handfast_store::Sources;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::command::listen::{addresses, bind};
use crate::configuration::{Configuration, Settings};

const FLAG: &str = "--http";
/// The name of the clients in `currentOp` and in the log.
const REMOTE: &str = "http";

/// The listeners of the API.
pub(super) struct HttpListeners(Vec<TcpListener>);

impl HttpListeners {
    /// Listens on the addresses of `--http`; on none without it.
    pub(super) async fn bind(configuration: &Configuration) -> Result<Self> {
        let Settings { http, auth, insecure, .. } = &configuration.settings;
        let Some(http) = http else { return Ok(HttpListeners(Vec::new())) };
        let addresses = addresses(FLAG, http).await?;
        if let Some(open) = addresses.iter().find(|address| !address.ip().is_loopback()) {
            if !auth && !insecure {
                let why = "everybody who can reach it could change the data";
                let what = "--auth requires a login, --insecure allows this";
                let text = format!("{open} is not a loopback address, and {why}; {what}");
                return Err(configuration.mistake("http", text).into());
            }
            warn!("other machines can reach {open} without encryption: put a proxy that encrypts in front of --http");
        }
        Ok(HttpListeners(bind(FLAG, addresses).await?))
    }

    /// Returns the addresses as URLs.
    pub(super) fn urls(&self) -> Result<Vec<String>> {
        let addresses = self.0.iter().map(TcpListener::local_addr).collect::<std::io::Result<Vec<SocketAddr>>>()?;
        Ok(addresses.into_iter().map(|address| format!("http://{address}")).collect())
    }

    /// Serves the API until `stop` is canceled. Then it answers the requests in progress.
    pub(super) async fn serve(self, server: InProcess, sources: Sources, stop: CancellationToken) {
        if self.0.is_empty() {
            return;
        }
        let server = Arc::new(Served(server));
        api::serve(self.0, server, &sources, ApiOptions::default(), ConnectionOptions::default(), stop).await;
    }
}

/// The server, as the API uses it.
struct Served(InProcess);

impl CommandServer for Served {
    fn requires_login(&self) -> bool {
        self.0.requires_login()
    }

    fn connect(&self) -> Box<dyn CommandClient> {
        Box::new(ServedClient(self.0.connect(REMOTE)))
    }
}

struct ServedClient(LocalClient);

#[async_trait]
impl CommandClient for ServedClient {
    async fn log_in(&mut self, database: &str, name: &str, password: &str) -> handfast_store::Result<bool> {
        // Nobody has a name that is not allowed.
        let Ok(name) = UserName::new(database, name) else { return Ok(false) };
        self.0.log_in(&name, Password::new(password)).await
    }

    fn is_login_current(&self) -> bool {
        self.0.is_login_current()
    }

    fn same_login(&self) -> Box<dyn CommandClient> {
        Box::new(ServedClient(self.0.same_login(REMOTE)))
    }

    async fn run(&mut self, database: &str, command: &RawDocument) -> RawDocumentBuf {
        self.0.run(database, command).await
    }
}
