//! One connection, from its first byte to its last: a message, its answer, the next message.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tracing::{debug, warn};

use crate::exchange::{After, Exchange};
use crate::frame::{FrameReader, ReadError};
use crate::state::{Client, Shared, begun};

/// Counts a connection as open until it is dropped.
pub(crate) struct OpenConnection(Arc<Shared>);

impl OpenConnection {
    /// Takes a place; none if there are too many already.
    pub(crate) fn new(shared: &Arc<Shared>) -> Option<Self> {
        let max = shared.options.connections.open_max;
        let more = |open| if open < max { Some(open + 1) } else { None };
        shared.connections.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some(OpenConnection(Arc::clone(shared)))
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Serves a connection until it ends.
pub(crate) async fn serve<R, W>(shared: &Shared, client: &Client, reader: R, mut writer: W)
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    debug!(connection = client.id, client = client.remote, "connection accepted");
    let result = messages(shared, client, reader, &mut writer).await;
    match &result {
        Ok(()) | Err(ReadError::Idle(_)) => debug!(connection = client.id, "connection ended"),
        Err(ReadError::Io(error)) => debug!(connection = client.id, %error, "connection lost"),
        Err(error) => {
            shared.metrics.connections_broken.increment();
            warn!(connection = client.id, client = client.remote, %error, "connection closed");
        }
    }
    // The client may be gone: what cannot be said any more is not said.
    let _ = tokio::time::timeout(shared.options.connections.stall_timeout, writer.shutdown()).await;
}

async fn messages<R, W>(shared: &Shared, client: &Client, reader: R, writer: &mut W) -> Result<(), ReadError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut reader = FrameReader::new(reader, shared.options.limits, shared.options.connections);
    let mut shutdown = shared.shutdown.subscribe();
    // One wait for all messages: each of its own would cost more than most answers.
    let shutting_down = begun(&mut shutdown);
    tokio::pin!(shutting_down);
    loop {
        let frame = tokio::select! {
            biased;
            frame = reader.next(&shared.requests) => frame?,
            () = &mut shutting_down => {
                if reader.is_idle() {
                    return Ok(());
                }
                // A message has begun: it is read to its end and refused in words.
                reader.next(&shared.requests).await?
            }
        };
        let Some(frame) = frame else { return Ok(()) };
        let after = Exchange { shared, client, reader: &mut reader, writer }.answer(frame).await?;
        if after == After::Close || shared.is_shutting_down() {
            return Ok(());
        }
    }
}
