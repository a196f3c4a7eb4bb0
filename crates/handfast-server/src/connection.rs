//! Serves one connection: reads a message, sends its reply, reads the next message.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use handfast_wire::Limits;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tracing::{debug, warn};

use crate::auth::login::LOGIN_TIME;
use crate::exchange::{Exchange, NextStep};
use crate::frame::{FrameReader, ReadError};
use crate::options::{ConnectionLimits, Options};
use crate::state::{Client, Shared, shutdown_begun};

/// The largest message of a client that has not logged in. A handshake with a login in it takes less than 2 KiB.
const UNAUTHENTICATED_MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// The idle timeout of a client that has not logged in, after its first message. Drivers watch the server through
/// connections that never log in, with a `hello` every ten seconds, or less often if they are set up so.
const UNAUTHENTICATED_IDLE_TIME: Duration = Duration::from_secs(5 * 60);

/// Counts a connection as open until it is dropped.
pub(crate) struct OpenConnection(Arc<Shared>);

impl OpenConnection {
    /// Counts the connection as open, and as unauthenticated if a login is needed. If there are too many, the error is the message
    /// for the client.
    pub(crate) fn new(shared: &Arc<Shared>, client: &Client) -> Result<Self, String> {
        let max = shared.options.connections.open_max;
        let full = || format!("the server has {max} open connections, which is its limit (--max-connections)");
        let open = take(&shared.connections, max).then(|| OpenConnection(Arc::clone(shared))).ok_or_else(full)?;
        if shared.options.authentication {
            let max = shared.options.connections.unauthenticated_max();
            let full = || format!("the server has {max} connections that have not logged in, which is its limit");
            let connection = take(&shared.unauthenticated, max)
                .then(|| UnauthenticatedConnection(Arc::clone(shared)))
                .ok_or_else(full)?;
            client.login.count_as_unauthenticated(connection);
        }
        Ok(open)
    }
}

fn take(places: &AtomicUsize, max: usize) -> bool {
    let more = |count| if count < max { Some(count + 1) } else { None };
    places.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
}

/// Counts a connection as unauthenticated until it is dropped.
pub(crate) struct UnauthenticatedConnection(Arc<Shared>);

impl Drop for UnauthenticatedConnection {
    fn drop(&mut self) {
        self.0.unauthenticated.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Serves a connection until it ends.
pub(crate) async fn serve<R, W>(shared: &Shared, client: &Arc<Client>, reader: R, mut writer: W)
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    debug!(connection = client.id, client = client.remote, "connection accepted");
    let _registration = shared.operations.register(client);
    let result = messages(shared, client, reader, &mut writer).await;
    match &result {
        Ok(()) | Err(ReadError::Idle(_)) => debug!(connection = client.id, "connection ended"),
        Err(ReadError::Io(error)) => debug!(connection = client.id, %error, "connection lost"),
        Err(error) => {
            shared.metrics.connections_broken.increment();
            warn!(connection = client.id, client = client.remote, %error, "connection closed");
        }
    }
    // The client may be gone, so an error of the shutdown tells nothing.
    let _ = tokio::time::timeout(shared.options.connections.stall_timeout, writer.shutdown()).await;
}

async fn messages<R, W>(shared: &Shared, client: &Client, reader: R, writer: &mut W) -> Result<(), ReadError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut reader = FrameReader::new(reader, shared.options.limits, shared.options.connections);
    let mut shutdown = shared.subscribe_to_shutdown();
    // One future for all messages: a new one for each message would cost more than most replies.
    let shutting_down = shutdown_begun(&mut shutdown);
    tokio::pin!(shutting_down);
    let mut silent = true;
    loop {
        if shared.options.authentication {
            let (limits, times) = bounds(shared, client, silent);
            reader.set_bounds(limits, times);
        }
        let frame = tokio::select! {
            biased;
            frame = reader.next(&shared.requests) => frame?,
            () = &mut shutting_down => {
                if reader.is_idle() {
                    return Ok(());
                }
                // A message has begun. It is read to its end and refused with an error.
                reader.next(&shared.requests).await?
            }
        };
        let Some(frame) = frame else { return Ok(()) };
        silent = false;
        let after = Exchange { shared, client, reader: &mut reader, writer }.answer(frame).await?;
        if after == NextStep::Close || shared.is_shutting_down() || client.login.has_failed_too_often() {
            return Ok(());
        }
    }
}

/// Returns the bounds of a connection, which are narrow until its client has logged in.
fn bounds(shared: &Shared, client: &Client, silent: bool) -> (Limits, ConnectionLimits) {
    let Options { limits, connections: times, .. } = &shared.options;
    if client.login.is_logged_in() {
        return (*limits, *times);
    }
    let idle = if silent || client.login.is_under_way() { LOGIN_TIME } else { UNAUTHENTICATED_IDLE_TIME };
    let limits =
        Limits { message_bytes_max: limits.message_bytes_max.min(UNAUTHENTICATED_MESSAGE_BYTES_MAX), ..*limits };
    let times = ConnectionLimits {
        idle_timeout: times.idle_timeout.min(idle),
        stall_timeout: times.stall_timeout.min(LOGIN_TIME),
        message_timeout: times.message_timeout.min(LOGIN_TIME),
        ..*times
    };
    (limits, times)
}

#[cfg(test)]
mod tests;
