//! Accepts connections, forwards messages, and closes connections where a rule says so.
//!
//! ```text
//! driver            proxy                 server
//!   | -- request --> | decide              |
//!   |                |  forward       -->  | -- reply --> proxy -- reply --> driver
//!   |                |  lose-request       |   both connections are closed
//!   |                |  lose-reply    -->  | -- reply --> proxy    both connections are closed
//! ```
//!
//! Each connection of a driver has one to the server. A message is in memory as a whole, at most one for each direction of a connection.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use handfast_wire::Limits;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tracing::debug;

use crate::frame::{ReadError, read};
use crate::hello;
use crate::request::Request;
use crate::{Decision, Error, Fault, ObservedOperation, Result, Rules};

/// The number of open connections, each with two sockets. Further ones wait until one is closed.
const CONNECTIONS_MAX: usize = 10_000;
/// The pause after a failed accept, for instance when no file descriptors are left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A proxy with a bound address, which does not accept connections yet.
pub struct Proxy {
    listener: TcpListener,
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    server: SocketAddr,
    rules: Mutex<Rules>,
    limits: Limits,
}

impl Shared {
    fn rules(&self) -> MutexGuard<'_, Rules> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Shows the operations that arrived at a proxy.
#[derive(Clone)]
pub struct Observer(Arc<Shared>);

impl Observer {
    /// Returns the operations so far, the first [`OPERATIONS_MAX`](crate::rules::OPERATIONS_MAX) of them.
    pub fn operations(&self) -> Vec<ObservedOperation> {
        self.0.rules().operations().to_vec()
    }
}

impl Proxy {
    /// Binds an address in front of a server. Port 0 takes a free one.
    ///
    /// # Errors
    /// The address is in use or not allowed.
    pub async fn bind(listen: SocketAddr, server: SocketAddr, rules: Rules) -> Result<Self> {
        let failed = |source| Error::Listen { address: listen, source };
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let shared = Shared { server, rules: Mutex::new(rules), limits: Limits::default() };
        Ok(Proxy { listener, address, shared: Arc::new(shared) })
    }

    /// Returns the address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns an observer of the operations.
    pub fn observer(&self) -> Observer {
        Observer(Arc::clone(&self.shared))
    }

    /// Forwards messages.
    ///
    /// # Cancellation
    /// Dropping it closes all connections.
    pub async fn run(self) -> Infallible {
        let mut connections = JoinSet::new();
        loop {
            while connections.len() >= CONNECTIONS_MAX {
                connections.join_next().await;
            }
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                Some(_) = connections.join_next() => continue,
            };
            match accepted {
                Ok((client, _)) => {
                    connections.spawn(serve(client, Arc::clone(&self.shared)));
                }
                Err(error) => {
                    debug!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

async fn serve(client: TcpStream, shared: Arc<Shared>) {
    if let Err(error) = relay(client, &shared).await {
        debug!(%error, "a connection ended");
    }
}

/// Forwards the messages of a connection until one side closes it or a fault does. Both sockets are closed then.
async fn relay(mut client: TcpStream, shared: &Shared) -> std::result::Result<(), ReadError> {
    let mut server = TcpStream::connect(shared.server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    // The driver reaches the proxy at the address by which it connected.
    let address = client.local_addr()?.to_string();
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let awaited = AwaitedReply::default();
    tokio::select! {
        ended = forward_requests(from_client, to_server, shared, &awaited) => ended,
        ended = forward_replies(from_server, to_client, shared, &awaited, &address) => ended,
    }
}

/// The request whose reply is to be lost.
#[derive(Default)]
struct AwaitedReply(Mutex<Option<i32>>);

impl AwaitedReply {
    fn set(&self, request_id: i32) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(request_id);
    }

    fn is(&self, response_to: i32) -> bool {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) == Some(response_to)
    }
}

/// Forwards requests until one is lost. After the last one it waits, because replies may still arrive.
async fn forward_requests(
    client: ReadHalf<'_>,
    mut server: WriteHalf<'_>,
    shared: &Shared,
    awaited: &AwaitedReply,
) -> std::result::Result<(), ReadError> {
    let mut client = BufReader::new(client);
    while let Some(frame) = read(&mut client, &shared.limits).await? {
        if let Request::Application { command, has_reply } = Request::of_frame(&frame.bytes, &shared.limits)? {
            match shared.rules().decide(&command, has_reply) {
                Decision::Forward => {}
                Decision::Inject(Fault::LoseRequest) => return Ok(()),
                Decision::Inject(Fault::LoseReply) => awaited.set(frame.header.request_id),
            }
        }
        server.write_all(&frame.bytes).await?;
    }
    server.shutdown().await?;
    std::future::pending().await
}

/// Forwards replies until one is lost or the server closes the connection.
async fn forward_replies(
    server: ReadHalf<'_>,
    mut client: WriteHalf<'_>,
    shared: &Shared,
    awaited: &AwaitedReply,
    address: &str,
) -> std::result::Result<(), ReadError> {
    let mut server = BufReader::new(server);
    while let Some(frame) = read(&mut server, &shared.limits).await? {
        if awaited.is(frame.header.response_to) {
            return Ok(());
        }
        match hello::with_address(&frame.bytes, address, &shared.limits) {
            Some(hello) => client.write_all(&hello).await?,
            None => client.write_all(&frame.bytes).await?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
