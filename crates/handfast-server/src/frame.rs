//! Reads frames, the bytes of whole messages, from a stream of bytes, and writes messages to it.
//!
//! The buffer grows with the bytes that arrive, and not with the length that a client announces. A message of up to 64 KiB needs no
//! reservation; for a larger one memory is reserved once its first 64 KiB have arrived. There are three time-outs: for a connection
//! without a message (idle), for a message of which no more bytes arrive (stall), and for a message that takes too long as a whole.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use handfast_wire::{HEADER_BYTES, Header, Limits};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::time::{Instant, Sleep, timeout_at};

use crate::memory_budget::{FREE_BYTES, MemoryBudget, MemoryReservation};
use crate::options::ConnectionLimits;
use crate::tls;

/// The buffer grows by at least this much.
const READ_BYTES: usize = 8 * 1024;
/// A buffer that has grown larger is freed after its message.
const KEPT_BYTES: usize = 256 * 1024;

/// A message is sent from two buffers: its head, and the document.
const MESSAGE_PLACES: usize = 2;

/// A whole message.
pub(crate) struct Frame {
    pub(crate) header: Header,
    pub(crate) bytes: BytesMut,
    pub(crate) reserved: Option<MemoryReservation>,
}

/// The reason why no further frame is read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Wire(#[from] handfast_wire::Error),
    #[error(
        "the client speaks TLS (its connection string has tls=true), and there is none here: --tls-certificate and \
         --tls-key bring it"
    )]
    Tls,
    #[error("the connection ended in the middle of a message")]
    Truncated,
    #[error("no message for {0:?}")]
    Idle(Duration),
    #[error("a message stopped in the middle for {0:?}")]
    Stalled(Duration),
    #[error("a message took longer than {0:?}")]
    TooSlow(Duration),
}

/// Reads frames from a stream. Every method can be cancelled: the bytes that have arrived stay in the buffer.
pub(crate) struct FrameReader<R> {
    stream: R,
    buffer: BytesMut,
    limits: Limits,
    times: ConnectionLimits,
    ended: bool,
    /// The time at which the reader began to wait for the rest of the message in the buffer.
    begun: Option<Instant>,
    /// Fires at the deadline or before it. It is not reset for every read, because that would cost more than the read.
    timer: Pin<Box<Sleep>>,
    reserved: Option<MemoryReservation>,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(crate) fn new(stream: R, limits: Limits, times: ConnectionLimits) -> Self {
        FrameReader {
            stream,
            buffer: BytesMut::new(),
            limits,
            times,
            ended: false,
            begun: None,
            timer: Box::pin(tokio::time::sleep(times.idle_timeout)),
            reserved: None,
        }
    }

    /// Changes the bounds on the messages and waits that follow.
    pub(crate) fn set_bounds(&mut self, limits: Limits, times: ConnectionLimits) {
        (self.limits, self.times) = (limits, times);
    }

    /// Returns the bounds on messages.
    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// Returns whether no part of a message has arrived.
    pub(crate) fn is_idle(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Returns the next frame, or `None` if the client closed the connection between two messages.
    pub(crate) async fn next(&mut self, budget: &MemoryBudget) -> Result<Option<Frame>, ReadError> {
        loop {
            let mut missing = HEADER_BYTES.saturating_sub(self.buffer.len());
            if let Some(bytes) = self.buffer.first_chunk() {
                let header = Header::decode(bytes);
                if tls::is_hello(bytes) {
                    return Err(ReadError::Tls);
                }
                let length = header.frame_bytes(&self.limits)?;
                if self.buffer.len() >= length {
                    return Ok(Some(self.cut(header, length)));
                }
                missing = length - self.buffer.len();
                if length > FREE_BYTES && self.buffer.len() >= FREE_BYTES && self.reserved.is_none() {
                    self.reserved = Some(budget.reserve(length).await);
                    continue;
                }
                if self.reserved.is_none() && self.buffer.len() < FREE_BYTES {
                    missing = missing.min(FREE_BYTES - self.buffer.len());
                }
            }
            if self.ended {
                return if self.buffer.is_empty() { Ok(None) } else { Err(ReadError::Truncated) };
            }
            self.read(missing).await?;
        }
    }

    fn cut(&mut self, header: Header, length: usize) -> Frame {
        let bytes =
            if self.buffer.len() == length { std::mem::take(&mut self.buffer) } else { self.buffer.split_to(length) };
        // The bytes behind it belong to the next message, whose time begins when it is requested.
        self.begun = None;
        Frame { header, bytes, reserved: self.reserved.take() }
    }

    /// Keeps the buffer of a frame that is no longer needed for the next message.
    pub(crate) fn recycle(&mut self, mut bytes: BytesMut) {
        if self.buffer.is_empty() && bytes.capacity() <= KEPT_BYTES && bytes.capacity() > self.buffer.capacity() {
            bytes.clear();
            self.buffer = bytes;
        }
    }

    /// Reads some bytes, within the time that is left.
    async fn read(&mut self, missing: usize) -> Result<(), ReadError> {
        let (deadline, error) = if self.buffer.is_empty() {
            (timer_now() + self.times.idle_timeout, ReadError::Idle(self.times.idle_timeout))
        } else {
            self.times.deadline(*self.begun.get_or_insert_with(timer_now))
        };
        // The buffer doubles, so that it is copied rarely, up to the announced length.
        let room = missing.min(self.buffer.len()).max(READ_BYTES);
        self.buffer.reserve(room);
        let count = tokio::select! {
            biased;
            count = self.stream.read_buf(&mut self.buffer) => count?,
            () = reached(&mut self.timer, deadline) => return Err(error),
        };
        self.ended = count == 0;
        Ok(())
    }

    /// Returns once the client has closed its side. Until then it reads ahead, but not far: at most what a message
    /// may have without a reservation.
    pub(crate) async fn peer_gone(&mut self) {
        while !self.ended {
            if self.buffer.len() >= FREE_BYTES {
                return std::future::pending().await;
            }
            self.buffer.reserve(READ_BYTES);
            match self.stream.read_buf(&mut self.buffer).await {
                Ok(0) | Err(_) => self.ended = true,
                Ok(_) => {}
            }
        }
    }
}

/// Returns at the deadline.
async fn reached(timer: &mut Pin<Box<Sleep>>, deadline: Instant) {
    if timer.deadline() > deadline {
        timer.as_mut().reset(deadline);
    }
    loop {
        timer.as_mut().await;
        if timer.deadline() >= deadline {
            return;
        }
        // The timer was set for an earlier message.
        timer.as_mut().reset(deadline);
    }
}

/// Writes all bytes. The write fails if the client takes none within the stall time-out, or not all within the message time-out.
pub(crate) async fn write_all<W: AsyncWrite + Unpin>(
    writer: &mut W,
    mut bytes: impl Buf,
    times: &ConnectionLimits,
) -> Result<(), ReadError> {
    let mut begun = None;
    while bytes.has_remaining() {
        // The buffers of most connections have room for the reply, so the clock is read only if a write has to wait.
        let written = match at_once(writer, &bytes).await {
            Some(written) => written?,
            None => {
                let (deadline, error) = times.deadline(*begun.get_or_insert_with(timer_now));
                let write = poll_fn(|context| poll_write(writer, context, &bytes));
                timeout_at(deadline, write).await.map_err(|_| error)??
            }
        };
        if written == 0 {
            return Err(ReadError::Io(io::ErrorKind::WriteZero.into()));
        }
        bytes.advance(written);
    }
    Ok(())
}

/// Writes the bytes that can be written without waiting, or returns `None` if there are none.
async fn at_once<W: AsyncWrite + Unpin>(writer: &mut W, bytes: &impl Buf) -> Option<io::Result<usize>> {
    poll_fn(|context| match poll_write(writer, context, bytes) {
        Poll::Ready(written) => Poll::Ready(Some(written)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Writes some bytes from the buffers of a message.
fn poll_write<W: AsyncWrite + Unpin>(
    writer: &mut W,
    context: &mut Context<'_>,
    bytes: &impl Buf,
) -> Poll<io::Result<usize>> {
    let mut places = [IoSlice::new(&[]); MESSAGE_PLACES];
    let count = bytes.chunks_vectored(&mut places);
    Pin::new(writer).poll_write_vectored(context, places.get(..count).unwrap_or_default())
}

/// Returns the time of the runtime's timers, which tests move. It is for deadlines only.
#[expect(
    clippy::disallowed_methods,
    reason = "a timer fires by the runtime's clock, so its deadline is counted by that"
)]
pub(crate) fn timer_now() -> Instant {
    Instant::now()
}

impl ConnectionLimits {
    /// Returns the deadline for the next bytes of a message that has begun, and the error after it.
    fn deadline(&self, begun: Instant) -> (Instant, ReadError) {
        let stalled = timer_now() + self.stall_timeout;
        let too_slow = begun + self.message_timeout;
        if stalled <= too_slow {
            (stalled, ReadError::Stalled(self.stall_timeout))
        } else {
            (too_slow, ReadError::TooSlow(self.message_timeout))
        }
    }
}

#[cfg(test)]
mod tests;
