//! `handfast serve`: the server over the embedded store or another server, from the first line to the last.

pub(super) mod arguments;
mod http;
mod temporary;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use handfast_server::auth::Users;
use handfast_server::{Address, Backup, Listeners, Options, Server, Tls, TlsFile};
use handfast_store::Sources;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use self::http::HttpListeners;
use crate::configuration::{Configuration, ConnectionString, Settings, Topology};
use crate::console::Console;
use crate::exit::Exit;
use crate::service_manager::{ServiceState, notify};
use crate::shutdown::Shutdown;
use crate::store::OpenedDatabase;

pub(super) use self::temporary::run_temporary;

/// The error of a server that ends by itself, which only a bug causes.
const BY_ITSELF: &str = "the server ended without a signal";

/// Serves until a signal asks to stop, or `ended` returns.
pub(super) async fn run(
    configuration: &Configuration,
    ended: impl Future<Output = ()>,
    console: Console,
) -> anyhow::Result<Exit> {
    let settings = &configuration.settings;
    let shutdown = Shutdown::reported_on(console)?;
    let listen = addresses(configuration).await?;
    let tls = tls(configuration)?;
    if tls.is_none() && !settings.insecure && listen.iter().any(is_open) {
        warn!(
            "other machines can reach the server without encryption; --tls-certificate and --tls-key encrypt connections"
        );
    }
    if settings.test_commands {
        warn!("clients can make commands fail, because --test-commands is on; use it for tests only");
    }
    let sources = Sources::system()?;
    // Before the data directory is created: a busy port leaves nothing behind.
    let listeners = Listeners::bind(&listen).await?;
    let http = HttpListeners::bind(configuration, tls.as_ref()).await?;
    let opened = OpenedDatabase::open_to_serve(configuration, sources.clone()).await?;
    if let Some(server) = opened.handfast_server() {
        warn!(
            "{} is {}, which has transactions itself: its own clients see the field _hf, and their writes break the \
             transactions made here; connect to it directly",
            server.address, server.product
        );
    }
    if settings.auth {
        check_users(&Users::new(Arc::new(opened.database.clone())), configuration, &listen).await?;
    }

    let backup = opened.backups(configuration)?.map(|backups| Arc::new(backups) as Arc<dyn Backup>);
    let server = Server::new(
        listeners,
        Options { tls, backup, storage: opened.storage(), ..options(settings) },
        opened.database.clone(),
    );
    let handle = server.shutdown_handle();
    let has_http = settings.http.is_some();
    announce(settings, server.addresses(), &http.urls()?, &opened, console)?;
    let stop = CancellationToken::new();
    let mut serving_http = tokio::spawn(http.serve(server.in_process(), sources, stop.clone()));
    let mut serving = tokio::spawn(server.run());
    console.report(|| "ready".to_owned(), &json!({ "event": "ready" }))?;
    notify(ServiceState::Ready);

    let requested = async {
        tokio::select! {
            () = shutdown.requested() => {}
            () = ended => {}
        }
    };
    tokio::select! {
        () = requested => stop.cancel(),
        result = &mut serving_http, if has_http => {
            result.context("the HTTP API failed")?;
            bail!(BY_ITSELF);
        }
        result = &mut serving => {
            result.context(BY_ITSELF)?;
            bail!(BY_ITSELF);
        }
    }
    // Its requests are commands of the server, and are answered first.
    serving_http.await.context("the HTTP API failed")?;
    handle.shutdown();
    serving.await.context("the server failed")?;
    opened.close().await?;
    console.report(|| "stopped".to_owned(), &json!({ "event": "stopped" }))?;
    Ok(Exit::Good)
}

/// Reports addresses, the location of the data, and the durability.
fn announce(
    settings: &Settings,
    addresses: &[Address],
    http: &[String],
    opened: &OpenedDatabase,
    console: Console,
) -> anyhow::Result<()> {
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let all: Vec<&str> = addresses.iter().chain(http).map(String::as_str).collect();
    let text = || {
        format!(
            "handfast {} listens on {}, {}, durability {}",
            env!("CARGO_PKG_VERSION"),
            all.join(" and "),
            opened.location_text(),
            settings.durability,
        )
    };
    let mut line = json!({
        "event": "listening",
        "version": env!("CARGO_PKG_VERSION"),
        "addresses": addresses,
        "http": http,
        "durability": settings.durability,
    });
    for (key, value) in opened.location_fields() {
        line[key] = value;
    }
    Ok(console.report(text, &line)?)
}

/// Returns all addresses of the name, and the Unix socket.
async fn addresses(configuration: &Configuration) -> anyhow::Result<Vec<Address>> {
    let Settings { listen, insecure, auth, unix_socket, .. } = &configuration.settings;
    let wrong = |reason| configuration.mistake("listen", reason);
    let named = tokio::net::lookup_host(listen).await;
    let sockets: Vec<SocketAddr> =
        named.map_err(|error| wrong(format!("'{listen}' is not an address (HOST:PORT): {error}")))?.collect();
    if sockets.is_empty() {
        return Err(wrong(format!("'{listen}' resolves to no address")).into());
    }
    let open = sockets.iter().find(|socket| !socket.ip().is_loopback());
    if let Some(open) = open.filter(|_| !insecure && !auth) {
        let why = "every client that can reach it could read and change all data";
        let what = "--auth requires a login, --insecure allows this";
        return Err(wrong(format!("{open} is not a loopback address, and {why}; {what}")).into());
    }
    let unix = unix_socket.clone().map(Address::Unix);
    Ok(with_one_free_port(sockets).map(Address::Tcp).chain(unix).collect())
}

/// Returns whether other machines may reach the address.
fn is_open(address: &Address) -> bool {
    matches!(address, Address::Tcp(socket) if !socket.ip().is_loopback())
}

/// Loads certificate and key, if TLS is configured. An error names the setting.
fn tls(configuration: &Configuration) -> anyhow::Result<Option<Tls>> {
    let Settings { tls_certificate, tls_key, tls_client_ca, .. } = &configuration.settings;
    let alone = |key, missing| Err(configuration.mistake(key, format!("it needs {missing}, too")).into());
    let (certificate, key) = match (tls_certificate, tls_key, tls_client_ca) {
        (None, None, None) => return Ok(None),
        (Some(certificate), Some(key), _) => (certificate, key),
        (None, None, Some(_)) => return alone("tls-client-ca", "tls-certificate and tls-key"),
        (None, Some(_), _) => return alone("tls-key", "tls-certificate"),
        (Some(_), None, _) => return alone("tls-certificate", "tls-key"),
    };
    let tls = Tls::load(certificate, key, tls_client_ca.as_deref()).map_err(|error| {
        let key = match error.file {
            TlsFile::Certificate => "tls-certificate",
            TlsFile::Key => "tls-key",
            TlsFile::ClientCa => "tls-client-ca",
        };
        let mistake = configuration.mistake(key, error.to_string());
        // A missing file may exist the next time: no usage error.
        if error.is_unreadable { anyhow!("{mistake}") } else { mistake.into() }
    })?;
    Ok(Some(tls))
}

/// Refuses a server that other machines can reach if it has no users: nobody could log in, so it is most likely a mistake.
async fn check_users(users: &Users, configuration: &Configuration, listen: &[Address]) -> anyhow::Result<()> {
    if users.any().await? {
        return Ok(());
    }
    let what = "no user exists, so nobody can log in; `handfast user add NAME --role root --data DIRECTORY` adds one while the server is stopped";
    if listen.iter().any(is_open) {
        return Err(configuration.mistake("auth", what).into());
    }
    warn!("{what}");
    Ok(())
}

/// Keeps one address if the port is 0, because two addresses of a name (127.0.0.1 and ::1) would get two different ports.
fn with_one_free_port(mut sockets: Vec<SocketAddr>) -> impl Iterator<Item = SocketAddr> {
    sockets.sort();
    sockets.dedup();
    if sockets.iter().any(|socket| socket.port() == 0) {
        sockets.truncate(1);
    }
    sockets.into_iter()
}

fn options(settings: &Settings) -> Options {
    let mut options = Options { durability: settings.durability.into(), ..Options::default() };
    options.topology = match settings.topology {
        Topology::Standalone => handfast_server::Topology::Standalone,
        Topology::Mongos => handfast_server::Topology::Mongos,
        Topology::ReplicaSet => handfast_server::Topology::ReplicaSet {
            name: settings.replica_set.clone(),
            advertise: settings.advertise.clone(),
        },
    };
    options.connections.open_max = settings.max_connections as usize;
    options.connections.idle_timeout = settings.connection_timeout.0;
    options.connections.request_bytes_max = bytes(settings.request_bytes.0);
    options.connections.reply_bytes_max = bytes(settings.reply_bytes.0);
    options.cursors.idle_timeout = settings.cursor_timeout.0;
    options.cursors.open_max = settings.max_cursors as usize;
    options.cursors.per_connection_max = settings.max_cursors_per_connection as usize;
    options.transaction_lifetime = settings.transaction_lifetime.0;
    options.transaction_bytes_max = usize::try_from(settings.transaction_bytes.0).unwrap_or(usize::MAX);
    options.outcome_retention = settings.outcome_retention.0;
    options.shutdown_grace = settings.shutdown_timeout.0;
    options.slow_operation = settings.slow_operation.0;
    options.authentication = settings.auth;
    options.test_commands = settings.test_commands;
    options.command_line = without_secrets(std::env::args());
    options
}

/// Returns the command line without the secrets of connection strings.
fn without_secrets(arguments: impl Iterator<Item = String>) -> Vec<String> {
    const FLAG: &str = "--store";
    let shown = |uri: &str| uri.parse().map(|uri: ConnectionString| uri.to_string()).unwrap_or_default();
    let mut shown_arguments = Vec::new();
    let mut is_store = false;
    for argument in arguments {
        let with_value = argument.strip_prefix(FLAG).and_then(|rest| rest.strip_prefix('='));
        shown_arguments.push(match with_value {
            Some(uri) => format!("{FLAG}={}", shown(uri)),
            None if is_store => shown(&argument),
            None => argument.clone(),
        });
        is_store = argument == FLAG;
    }
    shown_arguments
}

/// Converts a size; the largest size stands for one that the machine cannot address.
fn bytes(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::without_secrets;

    #[test]
    fn clients_see_no_password_of_the_command_line() {
        let check = |line: &str, expected: &str| {
            let shown = without_secrets(line.split(' ').map(str::to_owned));
            assert_eq!(shown.join(" "), expected);
        };
        check("handfast serve --data d", "handfast serve --data d");
        let uri = "mongodb://boss:s3cret@db:1/?tls=true";
        check(&format!("handfast serve --store {uri} --port 1"), "handfast serve --store mongodb://db:1 --port 1");
        check(&format!("handfast serve --store={uri}"), "handfast serve --store=mongodb://db:1");
        check("handfast serve --store boss:s3cret@db", "handfast serve --store mongodb://..");
    }
}
