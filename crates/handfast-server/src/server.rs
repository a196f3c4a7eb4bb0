//! Listens, accepts connections, and ends.
//!
//! ```text
//! bind      every address is taken, or none: a busy port is known before anything runs
//! run       accepts until shutdown; one task a connection
//! shutdown  no new connections; idle ones are closed, running commands get their answer, further ones code 91;
//!           what still runs after the grace period is cut off
//! ```

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use handfast_mql::Code;
use handfast_txn::Database;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tracing::{info, warn};

use crate::connection::{self, OpenConnection};
use crate::error::{CommandError, Error, Result};
use crate::metrics::Metrics;
use crate::options::{Address, Options};
use crate::refusal;
use crate::state::{Client, Shared, begun};

/// How often the cluster time is set, and transactions are looked at for their time: what they hold goes that much later
/// at most.
const SECOND: Duration = Duration::from_secs(1);
/// How often old outcomes are forgotten: a scan of all of them.
const FORGET_INTERVAL: Duration = Duration::from_secs(60 * 60);
/// How often cursors and sessions are looked at for their time-outs.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(10);
/// After a failed accept (no file descriptors left), so long until the next one.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// A silent client is asked whether it is still there after this, and then each [`KEEPALIVE_INTERVAL`].
const KEEPALIVE_TIME: Duration = Duration::from_secs(120);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);

/// How long a client may take for the TLS handshake.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);

/// Only the user who runs the server may connect through a Unix socket.
const SOCKET_MODE: u32 = 0o700;

enum Listener {
    Tcp(TcpListener),
    /// The file goes when the listener does.
    Unix(UnixListener, #[expect(dead_code, reason = "held until it is dropped")] SocketFile),
}

/// Removes the file of a Unix socket when the server is done with it.
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            warn!(path = %self.0.display(), %error, "cannot remove the socket");
        }
    }
}

/// A server that has its addresses and does not serve yet.
pub struct Server {
    shared: Arc<Shared>,
    listeners: Vec<Listener>,
    addresses: Vec<Address>,
}

/// Tells a running server to end, from anywhere. It keeps neither the server nor its store.
#[derive(Clone)]
pub struct ShutdownHandle {
    shared: Weak<Shared>,
}

impl ShutdownHandle {
    /// Begins the shutdown; [`Server::run`] returns when it is complete.
    pub fn shutdown(&self) {
        // A server that is gone has ended.
        if let Some(shared) = self.shared.upgrade() {
            shared.shut_down();
        }
    }
}

impl Server {
    /// Takes the addresses.
    ///
    /// # Errors
    /// An address is taken or not allowed, or none is given.
    pub async fn bind(options: Options, database: Database) -> Result<Self> {
        if options.listen.is_empty() {
            return Err(Error::NoAddress);
        }
        let mut listeners = Vec::new();
        let mut addresses = Vec::new();
        for address in &options.listen {
            let failed = |source| Error::Listen { address: address.to_string(), source };
            match address {
                Address::Tcp(socket) => {
                    let listener = TcpListener::bind(socket).await.map_err(failed)?;
                    addresses.push(Address::Tcp(listener.local_addr().map_err(failed)?));
                    listeners.push(Listener::Tcp(listener));
                }
                Address::Unix(path) => {
                    remove_abandoned(path).await?;
                    let listener = UnixListener::bind(path).map_err(failed)?;
                    let file = SocketFile(path.clone());
                    std::fs::set_permissions(path, Permissions::from_mode(SOCKET_MODE)).map_err(failed)?;
                    addresses.push(address.clone());
                    listeners.push(Listener::Unix(listener, file));
                }
            }
        }
        Ok(Server { shared: Arc::new(Shared::new(database, options)), listeners, addresses })
    }

    /// Where it listens, with the ports that were free.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// What it counts.
    pub fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.shared.metrics)
    }

    /// Ends it.
    pub fn shutdown_handle(&self) -> ShutdownHandle {
        ShutdownHandle { shared: Arc::downgrade(&self.shared) }
    }

    /// Serves until the shutdown is complete.
    ///
    /// # Cancellation
    /// If it is dropped, connections are cut off; commands in flight may or may not have happened.
    pub async fn run(self) {
        let Server { shared, listeners, .. } = self;
        let mut accepting = JoinSet::new();
        for listener in listeners {
            accepting.spawn(accept(Arc::clone(&shared), listener));
        }
        let mut expiry = tokio::time::interval(EXPIRY_INTERVAL);
        let mut seconds = tokio::time::interval(SECOND);
        let mut forgetting = JoinSet::new();
        forgetting.spawn(forget(Arc::clone(&shared)));
        let ended = shared.shutting_down();
        tokio::pin!(ended);
        loop {
            tokio::select! {
                () = &mut ended => break,
                _ = expiry.tick() => shared.expire(),
                _ = seconds.tick() => {
                    shared.tick();
                    shared.expire_transactions();
                }
            }
        }
        info!("shutting down: no new connections, running commands are finished");
        while accepting.join_next().await.is_some() {}
        forgetting.shutdown().await;
        // What is open now has nobody who could commit it.
        shared.sessions.end_all();
    }
}

/// Forgets old outcomes from time to time, beside everything else.
async fn forget(shared: Arc<Shared>) {
    let mut pause = tokio::time::interval(FORGET_INTERVAL);
    loop {
        pause.tick().await;
        shared.forget_outcomes().await;
    }
}

/// Accepts connections until the shutdown begins, then waits for them.
async fn accept(shared: Arc<Shared>, listener: Listener) {
    let mut connections = JoinSet::new();
    let mut shutdown = shared.subscribe_to_shutdown();
    loop {
        let accepted = tokio::select! {
            biased;
            () = begun(&mut shutdown) => break,
            Some(_) = connections.join_next() => continue,
            accepted = accept_one(&listener) => accepted,
        };
        match accepted {
            Ok(stream) => start(&shared, stream, &mut connections),
            Err(error) => {
                warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    let all = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(shared.options.shutdown_grace, all).await.is_err() {
        warn!(connections = connections.len(), "commands still run after the grace period: they are cut off");
        connections.shutdown().await;
    }
}

enum Stream {
    Tcp(TcpStream, std::net::SocketAddr),
    Unix(UnixStream),
}

async fn accept_one(listener: &Listener) -> io::Result<Stream> {
    match listener {
        Listener::Tcp(listener) => listener.accept().await.map(|(stream, remote)| Stream::Tcp(stream, remote)),
        Listener::Unix(listener, _) => listener.accept().await.map(|(stream, _)| Stream::Unix(stream)),
    }
}

fn start(shared: &Arc<Shared>, stream: Stream, connections: &mut JoinSet<()>) {
    let id = shared.metrics.connections_created.increment();
    match stream {
        Stream::Tcp(stream, remote) => {
            if let Err(error) = set_up(&stream) {
                warn!(%error, "cannot set up a connection");
            }
            let local = stream.local_addr().map(|address| address.to_string()).unwrap_or_default();
            let client = Arc::new(Client::new(id, remote.to_string(), local));
            match &shared.options.tls {
                Some(tls) => spawn_tls(shared, client, stream, tls.acceptor(), connections),
                None => {
                    let (reader, writer) = stream.into_split();
                    spawn(shared, client, reader, writer, connections);
                }
            }
        }
        Stream::Unix(stream) => {
            let local = stream.local_addr().ok();
            let local = local.as_ref().and_then(|address| address.as_pathname()).map(|path| path.display().to_string());
            let (reader, writer) = stream.into_split();
            let client = Arc::new(Client::new(id, "anonymous unix socket".to_owned(), local.unwrap_or_default()));
            spawn(shared, client, reader, writer, connections);
        }
    }
}

fn set_up(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_TIME).with_interval(KEEPALIVE_INTERVAL);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

fn spawn<R, W>(shared: &Arc<Shared>, client: Arc<Client>, reader: R, writer: W, connections: &mut JoinSet<()>)
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let shared = Arc::clone(shared);
    match OpenConnection::new(&shared, &client) {
        Ok(open) => {
            connections.spawn(async move {
                connection::serve(&shared, &client, reader, writer).await;
                drop(open);
            });
        }
        Err(text) => {
            shared.metrics.connections_refused.increment();
            warn!(client = client.remote, "a connection is refused: {text}");
            // Refusals in words are few at a time; beyond that a connection is closed without one.
            if let Some(place) = refusal::Place::take(&shared) {
                let error = CommandError::new(Code::OperationFailed, text);
                connections.spawn(async move {
                    refusal::refuse(&shared, error, reader, writer).await;
                    drop(place);
                });
            }
        }
    }
}

/// The handshake holds a place already: whoever begins many is one of a bounded number.
fn spawn_tls(
    shared: &Arc<Shared>,
    client: Arc<Client>,
    stream: TcpStream,
    acceptor: TlsAcceptor,
    connections: &mut JoinSet<()>,
) {
    let shared = Arc::clone(shared);
    let open = match OpenConnection::new(&shared, &client) {
        Ok(open) => open,
        Err(text) => {
            shared.metrics.connections_refused.increment();
            warn!(client = client.remote, "a connection is refused: {text}");
            return;
        }
    };
    connections.spawn(async move {
        let mut shutdown = shared.subscribe_to_shutdown();
        let handshake = tokio::select! {
            () = begun(&mut shutdown) => return,
            handshake = tokio::time::timeout(HANDSHAKE_TIME, acceptor.accept(stream)) => handshake,
        };
        match handshake {
            Ok(Ok(stream)) => {
                let (reader, writer) = tokio::io::split(stream);
                connection::serve(&shared, &client, reader, writer).await;
            }
            Ok(Err(error)) => {
                shared.metrics.connections_broken.increment();
                warn!(client = client.remote, %error, "a TLS handshake failed");
            }
            Err(_) => {
                shared.metrics.connections_broken.increment();
                warn!(client = client.remote, "a TLS handshake took longer than {HANDSHAKE_TIME:?}");
            }
        }
        drop(open);
    });
}

/// A socket that nobody listens on any more is in the way of nobody; anything else is not ours to remove.
async fn remove_abandoned(path: &Path) -> Result<()> {
    let in_the_way = |why| Err(Error::SocketPath { path: path.to_owned(), why });
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(Error::Listen { address: path.display().to_string(), source }),
        Ok(found) if !found.file_type().is_socket() => in_the_way("something that is no socket is there"),
        Ok(_) => match UnixStream::connect(path).await {
            Ok(_) => in_the_way("a server listens there already"),
            Err(_) => std::fs::remove_file(path)
                .map_err(|source| Error::Listen { address: path.display().to_string(), source }),
        },
    }
}

#[cfg(test)]
mod tests;
