//! Whole frames from a stream of bytes, and back.
//!
//! What a client announces is not what it gets memory for: the buffer grows with the bytes that arrive. Up to 64 KiB a
//! message costs nothing but that; one that is announced larger has to send 64 KiB before room is reserved for it.
//! Time-outs tell three silences apart: no message for long (idle), a message that stopped (stall), a message that
//! trickles (too slow as a whole).

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
/// A buffer that grew larger is given back once its message is answered.
const KEPT_BYTES: usize = 256 * 1024;

/// A message is sent from two places: its head, and the document.
const MESSAGE_PLACES: usize = 2;

/// A whole message.
pub(crate) struct Frame {
    pub(crate) header: Header,
    pub(crate) bytes: BytesMut,
    pub(crate) reserved: Option<MemoryReservation>,
}

/// Why there is no next frame.
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

/// Cuts frames off a stream. Every method can be dropped while it waits: what has arrived stays in the buffer.
pub(crate) struct FrameReader<R> {
    stream: R,
    buffer: BytesMut,
    limits: Limits,
    times: ConnectionLimits,
    ended: bool,
    /// The time at which the reader began to wait for the rest of the message in the buffer.
    begun: Option<Instant>,
    /// Rings at the deadline or before it. Setting it anew for every read would cost more than the read's own work.
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

    /// Changes the bounds on what comes from now on.
    pub(crate) fn set_bounds(&mut self, limits: Limits, times: ConnectionLimits) {
        (self.limits, self.times) = (limits, times);
    }

    /// The bounds on messages.
    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// No part of a message is here.
    pub(crate) fn is_idle(&self) -> bool {
        self.buffer.is_empty()
    }

    /// The next frame; none if the client closed the connection between two.
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
        // What follows belongs to a message of its own, which begins when it is asked for.
        self.begun = None;
        Frame { header, bytes, reserved: self.reserved.take() }
    }

    /// Takes back the buffer of a frame that is done with, so that the next message finds it.
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
        // Doubling keeps the copies few; the announced rest bounds it.
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
        // It was set for an earlier message.
        timer.as_mut().reset(deadline);
    }
}

/// Writes all bytes. A client that takes none for the time of a stall, or not all in that of a message, is given up.
pub(crate) async fn write_all<W: AsyncWrite + Unpin>(
    writer: &mut W,
    mut bytes: impl Buf,
    times: &ConnectionLimits,
) -> Result<(), ReadError> {
    let mut begun = None;
    while bytes.has_remaining() {
        // Most clients have room for the reply: the clock is not read unless a write waits.
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

/// Writes what can be written without waiting; none if that is nothing.
async fn at_once<W: AsyncWrite + Unpin>(writer: &mut W, bytes: &impl Buf) -> Option<io::Result<usize>> {
    poll_fn(|context| match poll_write(writer, context, bytes) {
        Poll::Ready(written) => Poll::Ready(Some(written)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Writes some bytes, from as many places as a message has.
fn poll_write<W: AsyncWrite + Unpin>(
    writer: &mut W,
    context: &mut Context<'_>,
    bytes: &impl Buf,
) -> Poll<io::Result<usize>> {
    let mut places = [IoSlice::new(&[]); MESSAGE_PLACES];
    let count = bytes.chunks_vectored(&mut places);
    Pin::new(writer).poll_write_vectored(context, places.get(..count).unwrap_or_default())
}

/// The time of the runtime's timers, which tests move: for their deadlines and nothing else.
#[expect(
    clippy::disallowed_methods,
    reason = "a timer fires by the runtime's clock, so its deadline is counted by that"
)]
pub(crate) fn timer_now() -> Instant {
    Instant::now()
}

impl ConnectionLimits {
    /// Until when the next bytes of a message that has begun have to move, and what it is called if they do not.
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
