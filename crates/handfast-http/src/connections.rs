//! The connections of a listener: how many there may be, how long each may take to ask, and how they end.
//!
//! axum's own loop has no limits, so this is one over hyper. A connection that asks nothing for a while is closed by the time that it has for the
//! head of a request. When the service stops, each connection answers what it has begun and closes.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::client::PeerAddress;
use crate::lingering_close::LingeringClose;
use crate::write_timeout::WriteTimeout;

/// The pause after a connection could not be accepted, as when the process has no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The limits of connections.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionOptions {
    /// The maximum number of open connections; further ones wait until the system's own queue refuses them.
    pub open_max: usize,
    /// The time that the head of a request may take, which is also how long a connection may be idle.
    pub head_time_max: Duration,
    /// The time for which a client may read nothing of an answer.
    pub write_time_max: Duration,
    /// The maximum time to read and drop what a client sends after the last answer of a connection.
    pub linger_time_max: Duration,
    /// The maximum size of the head of a request, in bytes, with its first line and the empty one at its end.
    pub head_bytes_max: usize,
    /// The time that requests in progress get to finish when the service stops.
    pub shutdown_grace: Duration,
}

impl Default for ConnectionOptions {
    /// 4,096 connections; 30 seconds without reading; 5 seconds to end; 30 seconds for a head of 80 KiB, which has room for the longest address that is
    /// allowed (65,534 bytes); 10 seconds to finish.
    fn default() -> Self {
        ConnectionOptions {
            open_max: 4_096,
            head_time_max: Duration::from_secs(30),
            write_time_max: Duration::from_secs(30),
            linger_time_max: Duration::from_secs(5),
            head_bytes_max: 80 * 1024,
            shutdown_grace: Duration::from_secs(10),
        }
    }
}

/// Serves a router on listeners until `stop` is canceled and requests in progress are answered, or their time is over.
pub async fn serve_connections(
    listeners: Vec<TcpListener>,
    router: Router,
    options: ConnectionOptions,
    stop: CancellationToken,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(options.head_time_max);
    // The size of the buffer alone would count what has arrived of a head, and of what follows it.
    http.max_header_size(options.head_bytes_max).max_buf_size(options.head_bytes_max);
    let graceful = GracefulShutdown::new();
    let cut = CancellationToken::new();
    let _cut_at_the_end = cut.clone().drop_guard();
    let places = Arc::new(Semaphore::new(options.open_max));
    loop {
        let accepted = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (place, accept(&listeners).await)
        };
        let (place, stream) = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accepted => accepted,
        };
        let (stream, peer) = match stream {
            Ok((stream, peer)) => (stream, PeerAddress(peer.ip())),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // Answers are small, and each is one write.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection is gone");
            continue;
        }
        let router = TowerToHyperService::new(router.clone());
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(peer);
            router.call(request)
        });
        let stream = WriteTimeout::new(stream, options.write_time_max);
        let stream = LingeringClose::new(stream, options.linger_time_max, stop.clone());
        let connection = http.serve_connection(TokioIo::new(stream), service);
        let (connection, cut) = (graceful.watch(connection), cut.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = cut.cancelled() => {}
                ended = connection => if let Err(error) = ended {
                    tracing::debug!(%error, "a connection ended");
                }
            }
            drop(place);
        });
    }
    drop(listeners);
    let open = graceful.count();
    if tokio::time::timeout(options.shutdown_grace, graceful.shutdown()).await.is_err() {
        tracing::warn!(open, "some connections did not end in time, and are closed");
    }
}

/// Accepts a connection of any of the listeners.
async fn accept(listeners: &[TcpListener]) -> io::Result<(TcpStream, SocketAddr)> {
    // They are asked in turn, and each wakes the task when it has a connection.
    poll_fn(|context| {
        let mut accepted = listeners.iter().map(|listener| listener.poll_accept(context));
        accepted.find(Poll::is_ready).unwrap_or(Poll::Pending)
    })
    .await
}
