//! The addresses of `--listen`.

use std::io::ErrorKind;
use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use tokio::net::TcpListener;

use super::arguments::ServeCountersArguments;
use crate::exit::Usage;

/// Listens on all addresses of the name. Those that other machines can reach need tokens.
pub(super) async fn listen(arguments: &ServeCountersArguments) -> Result<Vec<TcpListener>> {
    let mut listeners: Vec<TcpListener> = Vec::new();
    let mut refused = None;
    for mut address in addresses(arguments).await? {
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
                tracing::debug!(%address, %error, "an address of --listen is none of this machine");
                refused.get_or_insert((address, error));
            }
            Err(error) => return Err(error).with_context(|| format!("--listen: cannot listen on {address}")),
        }
    }
    match refused {
        Some((address, error)) if listeners.is_empty() => {
            Err(error).with_context(|| format!("--listen: cannot listen on {address}"))
        }
        _ => Ok(listeners),
    }
}

async fn addresses(arguments: &ServeCountersArguments) -> Result<Vec<SocketAddr>> {
    let ServeCountersArguments { listen, tokens, .. } = arguments;
    if listen.parse::<u16>().is_ok() {
        return Err(
            Usage(format!("--listen: '{listen}' is a port, and HOST:PORT is expected: 127.0.0.1:{listen}")).into()
        );
    }
    let named = tokio::net::lookup_host(listen).await;
    let named = named.map_err(|error| Usage(format!("--listen: '{listen}' is not an address (HOST:PORT): {error}")))?;
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in named {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    if addresses.is_empty() {
        return Err(Usage(format!("--listen: '{listen}' resolves to no address")).into());
    }
    if let Some(address) = addresses.iter().find(|address| !address.ip().is_loopback())
        && tokens.is_none()
    {
        let why = "everybody who can reach it could count and delete views";
        let text = format!("--listen: {address} is not a loopback address, and {why}; --tokens requires a token");
        return Err(Usage(text).into());
    }
    Ok(addresses)
}
