//! Listens on the addresses of a flag for HTTP.

use std::io::ErrorKind;
use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use tokio::net::TcpListener;

use crate::exit::Usage;

/// Returns all addresses of a name (`HOST:PORT`), each once.
pub(super) async fn addresses(flag: &str, listen: &str) -> Result<Vec<SocketAddr>, Usage> {
    if listen.parse::<u16>().is_ok() {
        return Err(Usage(format!("{flag}: '{listen}' is a port, and HOST:PORT is expected: 127.0.0.1:{listen}")));
    }
    let named = tokio::net::lookup_host(listen).await;
    let named = named.map_err(|error| Usage(format!("{flag}: '{listen}' is not an address (HOST:PORT): {error}")))?;
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in named {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    if addresses.is_empty() {
        return Err(Usage(format!("{flag}: '{listen}' resolves to no address")));
    }
    Ok(addresses)
}

/// Listens on the addresses.
pub(super) async fn bind(flag: &str, addresses: Vec<SocketAddr>) -> Result<Vec<TcpListener>> {
    let mut listeners: Vec<TcpListener> = Vec::new();
    let mut refused = None;
    for mut address in addresses {
        // One free port is taken for all.
        if let Some(first) = listeners.first()
            && address.port() == 0
        {
            address.set_port(first.local_addr()?.port());
        }
        match TcpListener::bind(address).await {
            Ok(listener) => listeners.push(listener),
            // As of ::1 on a machine without IPv6, which may name it all the same.
            Err(error) if error.kind() == ErrorKind::AddrNotAvailable => {
                tracing::debug!(%address, %error, "an address of {flag} is none of this machine");
                refused.get_or_insert((address, error));
            }
            Err(error) => return Err(error).with_context(|| format!("{flag}: cannot listen on {address}")),
        }
    }
    match refused {
        Some((address, error)) if listeners.is_empty() => {
            Err(error).with_context(|| format!("{flag}: cannot listen on {address}"))
        }
        _ => Ok(listeners),
    }
}
