//! Accepts connections until the shutdown.
//!
//! ```text
//! run       accepts connections; each is served by a task
//! shutdown  accepts no more and closes idle connections; running commands are finished, further ones fail with code 91;
//!           commands that run after the grace period are aborted
//! ```

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use handfast_mql::Code;
use handfast_txn::Database;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

use crate::connection::{self, OpenConnection};
use crate::error::CommandError;
use crate::in_process::InProcess;
use crate::listeners::{Listener, Listeners, Stream};
use crate::metrics::Metrics;
use crate::options::{Address, Options};
use crate::refusal;
use crate::state::{Client, Shared, shutdown_begun};
use crate::tls;

/// The interval at which the cluster time is set and expired transactions are rolled back.
const SECOND: Duration = Duration::from_secs(1);
/// The interval at which old outcomes are removed, by a scan of all of them.
const FORGET_INTERVAL: Duration = Duration::from_secs(60 * 60);
/// The interval at which expired cursors and sessions are removed.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(10);
/// The pause after a failed accept, for instance when no file descriptors are left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The time after which TCP probes an idle connection; it repeats the probe each [`KEEPALIVE_INTERVAL`].
const KEEPALIVE_TIME: Duration = Duration::from_secs(120);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);

/// The time limit of the TLS handshake.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);

/// A server with bound addresses, which does not accept connections yet.
pub struct Server {
    shared: Arc<Shared>,
    listeners: Listeners,
}

/// Shuts a running server down. The handle keeps neither the server nor its store alive.
#[derive(Clone)]
pub struct ShutdownHandle {
    shared: Weak<Shared>,
}

impl ShutdownHandle {
    /// Begins the shutdown; [`Server::run`] returns when it is complete.
    pub fn shutdown(&self) {
        // A server that was dropped has shut down.
        if let Some(shared) = self.shared.upgrade() {
            shared.shut_down();
        }
    }
}

impl Server {
    /// Creates a server of a database at bound addresses.
    pub fn new(listeners: Listeners, options: Options, database: Database) -> Self {
        Server { shared: Arc::new(Shared::new(database, options)), listeners }
    }

    /// Returns the addresses at which it listens; port 0 is replaced by the port that was chosen.
    pub fn addresses(&self) -> &[Address] {
        self.listeners.addresses()
    }

    /// Returns the metrics of the server.
    pub fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.shared.metrics)
    }

    /// Returns the server for clients in this process.
    pub fn in_process(&self) -> InProcess {
        InProcess::new(Arc::clone(&self.shared))
    }

    /// Returns a handle that shuts the server down.
    pub fn shutdown_handle(&self) -> ShutdownHandle {
        ShutdownHandle { shared: Arc::downgrade(&self.shared) }
    }

    /// Serves until the shutdown is complete.
    ///
    /// # Cancellation
    /// Dropping it closes all connections; running commands may or may not be applied.
    pub async fn run(self) {
        let Server { shared, listeners } = self;
        let mut accepting = JoinSet::new();
        for listener in listeners.into_all() {
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
        debug!("shutting down: no new connections, running commands are finished");
        while accepting.join_next().await.is_some() {}
        forgetting.shutdown().await;
        // No client is left that could commit an open transaction.
        shared.sessions.end_all();
    }
}

/// Removes old outcomes at intervals.
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
            () = shutdown_begun(&mut shutdown) => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
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
        warn!(connections = connections.len(), "commands still run after the grace period and are aborted");
        connections.shutdown().await;
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
            // The number of connections that are refused with an error at once is bounded; others are closed without one.
            if let Some(permit) = refusal::RefusalPermit::take(&shared) {
                let error = CommandError::new(Code::OperationFailed, text);
                connections.spawn(async move {
                    refusal::refuse(&shared, error, reader, writer).await;
                    drop(permit);
                });
            }
        }
    }
}

/// Starts a TLS handshake. The connection counts as open during it, which bounds the number of handshakes.
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
            () = shutdown_begun(&mut shutdown) => return,
            handshake = tokio::time::timeout(HANDSHAKE_TIME, acceptor.accept(stream)) => handshake,
        };
        match handshake {
            Ok(Ok(stream)) => {
                if let Some(name) = stream.get_ref().1.server_name() {
                    client.dialled(name);
                }
                let (reader, writer) = tokio::io::split(stream);
                connection::serve(&shared, &client, reader, writer).await;
            }
            Ok(Err(error)) => {
                shared.metrics.connections_broken.increment();
                warn!(client = client.remote, %error, why = tls::why(&error), "a TLS handshake failed");
            }
            Err(_) => {
                shared.metrics.connections_broken.increment();
                warn!(client = client.remote, "a TLS handshake took longer than {HANDSHAKE_TIME:?}");
            }
        }
        drop(open);
    });
}

#[cfg(test)]
mod tests;
