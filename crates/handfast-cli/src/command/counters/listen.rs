//! The addresses of `--listen`.

use anyhow::Result;
use tokio::net::TcpListener;

use super::arguments::ServeCountersArguments;
use crate::command::listen::{addresses, bind};
use crate::exit::Usage;

const FLAG: &str = "--listen";

/// Listens on all addresses of the name. Those that other machines can reach need tokens.
pub(super) async fn listen(arguments: &ServeCountersArguments) -> Result<Vec<TcpListener>> {
    let addresses = addresses(FLAG, &arguments.listen).await?;
    if let Some(address) = addresses.iter().find(|address| !address.ip().is_loopback())
        && arguments.tokens.is_none()
    {
        let why = "everybody who can reach it could count and delete views";
        let text = format!("{FLAG}: {address} is not a loopback address, and {why}; --tokens requires a token");
        return Err(Usage(text).into());
    }
    bind(FLAG, addresses).await
}
