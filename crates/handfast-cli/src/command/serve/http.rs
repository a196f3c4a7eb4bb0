//! The HTTP API of the server (`--http`).

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use async_trait::async_trait;
use bson::{DateTime, Document, RawDocument, RawDocumentBuf, doc};
use handfast_http::api::{self, ApiOptions, CommandClient, CommandServer, NotReady, TokenOwner};
use handfast_http::{AccessOptions, ConnectionOptions};
use handfast_server::auth::{Password, UserName, UserToken};
use handfast_server::{InProcess, LocalClient, Tls};
use handfast_store::{Namespace, Sources};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::command::listen::{addresses, bind};
use crate::configuration::{Configuration, Settings, WebOrigin};

const FLAG: &str = "--http";
/// The name of the clients in `currentOp` and in the log.
const REMOTE: &str = "http";

/// The listeners of the API.
pub(super) struct HttpListeners {
    listeners: Vec<TcpListener>,
    options: ApiOptions,
    connections: ConnectionOptions,
}

impl HttpListeners {
    /// Listens on the addresses of `--http`; on none without it. `tls` is the certificate of the server, if it has one.
    pub(super) async fn bind(configuration: &Configuration, tls: Option<&Tls>) -> Result<Self> {
        let Settings { http, auth, insecure, tls_client_ca, http_tls, .. } = &configuration.settings;
        let tls = tls.filter(|_| *http_tls);
        let options = options(configuration)?;
        let connections = connections(&configuration.settings, tls);
        let Some(http) = http else {
            return Ok(HttpListeners { listeners: Vec::new(), options, connections });
        };
        let addresses = addresses(FLAG, http).await?;
        if tls_client_ca.is_some() && tls.is_none() && !auth && !insecure {
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
            if tls.is_none() {
                warn!(
                    "other machines can reach {open} without encryption: --tls-certificate and --tls-key encrypt, or a proxy in front of --http"
                );
            }
        }
        let listeners = bind(FLAG, addresses).await?;
        Ok(HttpListeners { listeners, options, connections })
    }

    /// Returns the addresses as URLs.
    pub(super) fn urls(&self) -> Result<Vec<String>> {
        let addresses =
            self.listeners.iter().map(TcpListener::local_addr).collect::<std::io::Result<Vec<SocketAddr>>>()?;
        let scheme = if self.connections.tls.is_some() { "https" } else { "http" };
        Ok(addresses.into_iter().map(|address| format!("{scheme}://{address}")).collect())
    }

    /// Serves the API until `stop` is canceled. Then it answers the requests in progress.
    pub(super) async fn serve(self, server: InProcess, sources: Sources, stop: CancellationToken) {
        if self.listeners.is_empty() {
            return;
        }
        let server = Arc::new(ServerOfApi(server));
        api::serve(self.listeners, server, &sources, self.options, self.connections, stop).await;
    }
}

/// Returns the settings of the API.
fn options(configuration: &Configuration) -> Result<ApiOptions> {
    let Settings { http_allow_origin, http_body_bytes, insecure, .. } = &configuration.settings;
    let origins = http_allow_origin.iter().flat_map(|origins| &origins.0).map(|WebOrigin(origin)| {
        let wrong = |_| configuration.mistake("http-allow-origin", format!("'{origin}' is no origin"));
        origin.parse().map_err(wrong)
    });
    let allowed_origins = origins.collect::<Result<Vec<_>, _>>()?;
    Ok(ApiOptions {
        access: AccessOptions { allowed_origins, ..AccessOptions::default() },
        any_host: *insecure,
        body_bytes_max: usize::try_from(http_body_bytes.0).unwrap_or(usize::MAX),
        ..ApiOptions::default()
    })
}

/// Returns the limits of connections, and their encryption.
fn connections(settings: &Settings, tls: Option<&Tls>) -> ConnectionOptions {
    ConnectionOptions {
        open_max: settings.http_max_connections as usize,
        shutdown_grace: settings.shutdown_timeout.0,
        tls: tls.map(Tls::config),
        ..ConnectionOptions::default()
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

    async fn log_in_by_token(&mut self, token: &str) -> handfast_store::Result<bool> {
        self.0.log_in_by_token(token).await
    }

    async fn add_token(&mut self, name: &str, expires_at: Option<DateTime>) -> handfast_store::Result<Document> {
        let made = self.0.add_token(name, expires_at).await?;
        let mut shown = doc! { "token": made.text };
        shown.extend(document(&made.token));
        Ok(shown)
    }

    async fn tokens(&mut self, of: Option<&TokenOwner>) -> handfast_store::Result<Vec<Document>> {
        let tokens = self.0.tokens(of.map(user_name).transpose()?.as_ref()).await?;
        Ok(tokens.iter().map(document).collect())
    }

    async fn revoke_token(&mut self, of: Option<&TokenOwner>, id: &str) -> handfast_store::Result<bool> {
        self.0.revoke_token(of.map(user_name).transpose()?.as_ref(), id).await
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

fn user_name(owner: &TokenOwner) -> handfast_store::Result<UserName> {
    UserName::new(&owner.database, &owner.name)
}

/// Returns what is shown of a token.
fn document(token: &UserToken) -> Document {
    let mut shown = doc! { "_id": &token.id, "name": &token.name, "createdAt": token.created_at };
    if let Some(at) = token.expires_at {
        shown.insert("expiresAt", at);
    }
    shown
}
