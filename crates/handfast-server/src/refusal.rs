//! Refuses connections beyond the limit: the reply to the first message is an error.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use handfast_wire::{Flags, OpCode, OpMsg, Reply};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use crate::error::CommandError;
use crate::frame::{FrameReader, ReadError, write_all};
use crate::reply::failure;
use crate::state::Shared;

/// Connections that are refused with an error at the same time.
const REFUSALS_MAX: usize = 16;
/// The time in which a client has to send its first message and to receive the error.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);

/// A permit to refuse one connection with an error.
pub(crate) struct RefusalPermit(Arc<Shared>);

impl RefusalPermit {
    pub(crate) fn take(shared: &Arc<Shared>) -> Option<Self> {
        let more = |count| if count < REFUSALS_MAX { Some(count + 1) } else { None };
        shared.refusals.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some(RefusalPermit(Arc::clone(shared)))
    }
}

impl Drop for RefusalPermit {
    fn drop(&mut self) {
        self.0.refusals.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Replies to the first message with the error, and closes the connection.
pub(crate) async fn refuse<R, W>(shared: &Shared, error: CommandError, reader: R, mut writer: W)
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let answer = async {
        let mut reader = FrameReader::new(reader, shared.options.limits, shared.options.connections);
        let Some(frame) = reader.next(&shared.requests).await? else { return Ok::<(), ReadError>(()) };
        let document = failure(&error);
        let mut bytes = Vec::new();
        if frame.header.op_code == OpCode::Query {
            Reply::command(&document).encode(shared.request_id(), frame.header.request_id, &mut bytes);
        } else {
            OpMsg::new(Flags::default(), &document).encode(shared.request_id(), frame.header.request_id, &mut bytes);
        }
        write_all(&mut writer, bytes.as_slice(), &shared.options.connections).await?;
        writer.shutdown().await?;
        Ok(())
    };
    // A client that sends no message in time gets no error.
    let _ = tokio::time::timeout(REFUSAL_TIMEOUT, answer).await;
}
