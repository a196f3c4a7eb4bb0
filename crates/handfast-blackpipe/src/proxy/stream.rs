//! The connections of the proxy on both sides, with and without TLS.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::frame::ReadError;

/// The time that a TLS handshake may take. A driver gives up after 10 to 30 seconds.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(30);

/// The bytes that arrive on a connection.
pub(crate) type Reader = Box<dyn AsyncRead + Send + Unpin>;
/// The bytes that are sent on a connection.
pub(crate) type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// The server behind a proxy.
#[derive(Clone)]
pub struct Upstream {
    /// `host:port`.
    address: String,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl Upstream {
    /// Creates a server that is reached without TLS, as `host:port`.
    pub fn plain(address: impl Into<String>) -> Self {
        Upstream { address: address.into(), tls: None }
    }

    /// Creates a server that is reached with TLS. Its certificate has to be for this name.
    pub fn with_tls(address: impl Into<String>, name: ServerName<'static>, config: Arc<ClientConfig>) -> Self {
        Upstream { address: address.into(), tls: Some((config.into(), name)) }
    }

    /// Tries whether the server can be reached.
    ///
    /// # Errors
    /// It cannot, or the TLS handshake fails.
    pub async fn check(&self) -> io::Result<()> {
        self.connect().await.map(|_| ())
    }

    /// Opens a connection.
    pub(super) async fn connect(&self) -> io::Result<(Reader, Writer)> {
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        match &self.tls {
            None => Ok(plain(stream)),
            Some((connector, name)) => Ok(halves(in_time(connector.connect(name.clone(), stream)).await?)),
        }
    }
}

impl From<String> for Upstream {
    fn from(address: String) -> Self {
        Upstream::plain(address)
    }
}

/// The connections of clients to a proxy.
#[derive(Clone, Default)]
pub(crate) struct Acceptor(Option<TlsAcceptor>);

/// The connection of a client.
pub(crate) struct AcceptedConnection {
    pub(crate) reader: Reader,
    pub(crate) writer: Writer,
    /// The address by which the client reaches the proxy, with the name that it gave in its handshake, for which the certificate is.
    pub(crate) address: String,
}

impl Acceptor {
    pub(crate) fn with_tls(config: Arc<ServerConfig>) -> Self {
        Acceptor(Some(config.into()))
    }

    /// Takes a new connection.
    pub(crate) async fn accept(&self, stream: TcpStream) -> Result<AcceptedConnection, ReadError> {
        stream.set_nodelay(true)?;
        let address = stream.local_addr()?;
        let Some(acceptor) = &self.0 else {
            let (reader, writer) = plain(stream);
            return Ok(AcceptedConnection { reader, writer, address: address.to_string() });
        };
        let stream = in_time(acceptor.accept(stream)).await.map_err(handshake_error)?;
        let name = stream.get_ref().1.server_name().map(|name| named(name, address));
        let (reader, writer) = halves(stream);
        let address = name.unwrap_or_else(|| address.to_string());
        Ok(AcceptedConnection { reader, writer, address })
    }
}

/// Writes bytes, and sends them at once: a connection with TLS may keep some of them back otherwise.
pub(crate) async fn send(writer: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    writer.write_all(bytes).await?;
    writer.flush().await
}

fn named(name: &str, address: SocketAddr) -> String {
    format!("{name}:{}", address.port())
}

fn plain(stream: TcpStream) -> (Reader, Writer) {
    let (reader, writer) = stream.into_split();
    (Box::new(reader), Box::new(writer))
}

fn halves(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> (Reader, Writer) {
    let (reader, writer) = tokio::io::split(stream);
    (Box::new(reader), Box::new(writer))
}

/// Returns the error of a handshake with a client.
fn handshake_error(error: io::Error) -> ReadError {
    let reason = error.get_ref().and_then(|reason| reason.downcast_ref());
    match reason {
        Some(rustls::Error::InvalidMessage(_)) => ReadError::NoTls,
        _ => error.into(),
    }
}

async fn in_time<T>(handshake: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let timed_out = |_| io::Error::new(io::ErrorKind::TimedOut, "the TLS handshake takes too long");
    tokio::time::timeout(HANDSHAKE_TIME_MAX, handshake).await.map_err(timed_out)?
}
