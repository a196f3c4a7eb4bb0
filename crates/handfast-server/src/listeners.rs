//! Binds the addresses of a server before it runs, all or none, so that a busy port is reported before a store is opened.
//!
//! A client that connects meanwhile waits until the server runs.

use std::fs::Permissions;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tracing::warn;

use crate::error::{Error, Result};
use crate::options::Address;

/// The permissions of a Unix socket: only the user who runs the server may connect.
const SOCKET_MODE: u32 = 0o700;

/// Bound addresses, which are released when this is dropped.
pub struct Listeners {
    all: Vec<Listener>,
    addresses: Vec<Address>,
}

impl Listeners {
    /// Binds the addresses.
    ///
    /// # Errors
    /// Fails if an address is in use or not allowed, or if the list is empty.
    pub async fn bind(listen: &[Address]) -> Result<Self> {
        if listen.is_empty() {
            return Err(Error::NoAddress);
        }
        let mut listeners = Listeners { all: Vec::new(), addresses: Vec::new() };
        for address in listen {
            let (listener, address) = Listener::bind(address).await?;
            listeners.all.push(listener);
            listeners.addresses.push(address);
        }
        Ok(listeners)
    }

    /// Returns the addresses; port 0 is replaced by the port that was chosen.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    pub(crate) fn into_all(self) -> Vec<Listener> {
        self.all
    }
}

pub(crate) enum Listener {
    Tcp(TcpListener),
    /// A Unix socket, whose file is removed with the listener.
    Unix(UnixListener, #[expect(dead_code, reason = "held until it is dropped")] SocketFile),
}

pub(crate) enum Stream {
    Tcp(TcpStream, SocketAddr),
    Unix(UnixStream),
}

impl Listener {
    /// Binds an address, and returns it with the port that was chosen.
    async fn bind(address: &Address) -> Result<(Self, Address)> {
        let failed = |source| Error::Listen { address: address.to_string(), source };
        match address {
            Address::Tcp(socket) => {
                let listener = TcpListener::bind(socket).await.map_err(failed)?;
                let address = Address::Tcp(listener.local_addr().map_err(failed)?);
                Ok((Listener::Tcp(listener), address))
            }
            Address::Unix(path) => {
                remove_abandoned(path).await?;
                let listener = UnixListener::bind(path).map_err(failed)?;
                let file = SocketFile(path.clone());
                std::fs::set_permissions(path, Permissions::from_mode(SOCKET_MODE)).map_err(failed)?;
                Ok((Listener::Unix(listener, file), address.clone()))
            }
        }
    }

    pub(crate) async fn accept(&self) -> io::Result<Stream> {
        match self {
            Listener::Tcp(listener) => listener.accept().await.map(|(stream, remote)| Stream::Tcp(stream, remote)),
            Listener::Unix(listener, _) => listener.accept().await.map(|(stream, _)| Stream::Unix(stream)),
        }
    }
}

/// Removes the file of a Unix socket when it is dropped.
pub(crate) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            warn!(path = %self.0.display(), %error, "cannot remove the socket");
        }
    }
}

/// Removes a socket without a listener. Anything else at the path is an error.
async fn remove_abandoned(path: &Path) -> Result<()> {
    let in_the_way = |why| Err(Error::SocketPath { path: path.to_owned(), why });
    let failed = |source| Error::Listen { address: path.display().to_string(), source };
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(failed(source)),
        Ok(found) if !found.file_type().is_socket() => in_the_way("a file that is no socket is in its place"),
        Ok(_) => match UnixStream::connect(path).await {
            Ok(_) => in_the_way("another server listens there"),
            Err(_) => std::fs::remove_file(path).map_err(failed),
        },
    }
}

#[cfg(test)]
mod tests;
