//! The connections of a listener: how many there may be, how long each may take to ask, and how they end.
//!
//! axum's own loop has no limits, so this is one over hyper. A connection that asks nothing for a while is closed by the time that it has for the
//! head of a request. When the service stops, each connection answers what it has begun and closes.
//!
//! With TLS a connection begins with a handshake, which may take as long as the head of a request. A request without encryption gets an answer that
//! names https.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::http::HeaderValue;
use axum::http::header::CONNECTION;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::client::PeerAddress;
use crate::lingering_close::LingeringClose;
use crate::problem::{Problem, ProblemHeaders};
use crate::write_timeout::WriteTimeout;

/// The pause after a connection could not be accepted, as when the process has no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The first byte of a TLS handshake; no request begins with it.
const HANDSHAKE: u8 = 0x16;

/// The limits of connections, and their encryption.
#[derive(Clone, Debug)]
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
    /// The certificate with which connections are encrypted; without one they are not.
    pub tls: Option<Arc<ServerConfig>>,
}

impl Default for ConnectionOptions {
    /// 4,096 connections; 30 seconds without reading; 5 seconds to end; 30 seconds for a head of 80 KiB, which has room for the longest address that is
    /// allowed (65,534 bytes); 10 seconds to finish; no encryption.
    fn default() -> Self {
        ConnectionOptions {
            open_max: 4_096,
            head_time_max: Duration::from_secs(30),
            write_time_max: Duration::from_secs(30),
            linger_time_max: Duration::from_secs(5),
            head_bytes_max: 80 * 1024,
            shutdown_grace: Duration::from_secs(10),
            tls: None,
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
        let connection = Connection {
            http: http.clone(),
            router: router.clone(),
            peer,
            options: options.clone(),
            stop: stop.clone(),
            watcher: graceful.watcher(),
        };
        let cut = cut.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = cut.cancelled() => {}
                ended = connection.serve(stream) => if let Err(error) = ended {
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

/// A connection that was accepted.
struct Connection {
    http: http1::Builder,
    router: Router,
    peer: PeerAddress,
    options: ConnectionOptions,
    stop: CancellationToken,
    watcher: Watcher,
}

impl Connection {
    /// Answers the requests of a connection until it ends, after its handshake if it has one.
    async fn serve(self, stream: TcpStream) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let (time_max, write_time_max) = (self.options.head_time_max, self.options.write_time_max);
        let Some(tls) = self.options.tls.clone() else {
            return self.answer(WriteTimeout::new(stream, write_time_max)).await;
        };
        let is_handshake = async {
            let mut first = [0];
            stream.peek(&mut first).await.map(|count| count == 0 || first == [HANDSHAKE])
        };
        let is_handshake = tokio::select! {
            () = self.stop.cancelled() => return Ok(()),
            first = tokio::time::timeout(time_max, is_handshake) => first??,
        };
        let stream = WriteTimeout::new(stream, write_time_max);
        if !is_handshake {
            return Connection { router: without_encryption(), ..self }.answer(stream).await;
        }
        let stream = tokio::select! {
            () = self.stop.cancelled() => return Ok(()),
            stream = tokio::time::timeout(time_max, TlsAcceptor::from(tls).accept(stream)) => stream??,
        };
        self.answer(stream).await
    }

    async fn answer<S>(self, stream: S) -> Result<(), Box<dyn std::error::Error + Send + Sync>>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Connection { http, router, peer, options, stop, watcher } = self;
        let router = TowerToHyperService::new(router);
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(peer);
            router.call(request)
        });
        let stream = LingeringClose::new(stream, options.linger_time_max, stop);
        Ok(watcher.watch(http.serve_connection(TokioIo::new(stream), service)).await?)
    }
}

/// Returns the answer to all requests without encryption on a listener with TLS.
fn without_encryption() -> Router {
    Router::new().fallback(|| async {
        let detail = "this address is served with TLS: send the request to https:// instead of http://";
        let say = ProblemHeaders { retry_after_seconds: 1, challenge: "Basic" };
        let mut response = Problem::invalid(detail).into_response(None, say);
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        response
    })
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
