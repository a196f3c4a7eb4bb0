//! Accepts connections.

use std::convert::Infallible;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tracing::debug;

/// The pause after a failed accept, for instance when no file descriptors are left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections, and serves so many at a time. Further ones wait until one is closed.
///
/// # Cancellation
/// Dropping it closes all connections.
pub(crate) async fn accept<S>(
    listener: TcpListener,
    connections_max: usize,
    mut serve: impl FnMut(TcpStream) -> S,
) -> Infallible
where
    S: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        while connections.len() >= connections_max {
            connections.join_next().await;
        }
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Ok((client, _)) => drop(connections.spawn(serve(client))),
            Err(error) => {
                debug!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
