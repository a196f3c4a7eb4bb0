//! A connection that reads on for a while after its last answer, so that the client sees the answer.
//!
//! An answer may come before the end of its request: the body is larger than its limit, or the head is no HTTP. If the connection were closed then, the
//! system would answer what the client still sends with a reset, and a client that gets one may throw away the answer. So the service says that it sends
//! no more, and drops what still arrives until the client closes its side, too.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::CancellationToken;

/// The bytes that are read and dropped at once.
const DROPPED_BYTES: usize = 4 * 1024;
/// The bytes that are dropped at most: far more than a network has under way.
const DROPPED_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A stream whose shutdown waits until the other side has ended, a limit of time is over, or the service stops.
pub(crate) struct LingeringClose<S> {
    stream: S,
    time_max: Duration,
    stop: CancellationToken,
    /// Whether the other side has ended.
    has_ended: bool,
    /// The bytes that may still be dropped.
    dropped_bytes_left: usize,
    /// The timer that ends the wait, once the stream is shut down.
    waiting: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl<S> LingeringClose<S> {
    pub(crate) fn new(stream: S, time_max: Duration, stop: CancellationToken) -> Self {
        LingeringClose {
            stream,
            time_max,
            stop,
            has_ended: false,
            dropped_bytes_left: DROPPED_BYTES_MAX,
            waiting: None,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for LingeringClose<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        self.has_ended |= buffer.filled().len() == before && buffer.remaining() > 0;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for LingeringClose<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.waiting.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(context))?;
        }
        let (time_max, stop) = (this.time_max, &this.stop);
        let mut waiting = this.waiting.take().unwrap_or_else(|| {
            let stop = stop.clone();
            Box::pin(async move {
                // Both are reasons to end.
                let _ = tokio::time::timeout(time_max, stop.cancelled()).await;
            })
        });
        while !this.has_ended && this.dropped_bytes_left > 0 && waiting.as_mut().poll(context).is_pending() {
            let mut dropped = [0; DROPPED_BYTES];
            let mut dropped = ReadBuf::new(&mut dropped);
            match Pin::new(&mut *this).poll_read(context, &mut dropped) {
                Poll::Ready(Ok(())) => {
                    this.dropped_bytes_left = this.dropped_bytes_left.saturating_sub(dropped.filled().len());
                }
                // The answer is on its way, or lost.
                Poll::Ready(Err(_)) => break,
                Poll::Pending => {
                    this.waiting = Some(waiting);
                    return Poll::Pending;
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
    use tokio::task::JoinHandle;
    use tokio::time::{sleep, timeout};
    use tokio_util::sync::CancellationToken;

    use super::{DROPPED_BYTES_MAX, LingeringClose};

    const TIME_MAX: Duration = Duration::from_secs(5);
    const SECOND: Duration = Duration::from_secs(1);

    /// Closes a connection after an answer of one byte. Returns the other side, and the task that waits for its end.
    async fn closed(stop: &CancellationToken) -> (DuplexStream, JoinHandle<()>) {
        let (mut client, server) = duplex(10);
        let mut server = LingeringClose::new(server, TIME_MAX, stop.clone());
        let closing = tokio::spawn(async move {
            server.write_all(&[7]).await.expect("written");
            server.shutdown().await.expect("shut down");
        });
        assert_eq!(client.read_u8().await.expect("an answer"), 7);
        assert_eq!(client.read(&mut [0]).await.expect("the end"), 0);
        (client, closing)
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_client_still_sends_is_read_until_it_ends() {
        let (mut client, mut closing) = closed(&CancellationToken::new()).await;
        client.write_all(&[0; 100_000]).await.expect("it is read");
        assert!(timeout(SECOND, &mut closing).await.is_err(), "it is waited for");
        drop(client);
        timeout(SECOND, closing).await.expect("at once").expect("no panic");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_end_is_waited_for_up_to_the_limit() {
        let (mut client, mut closing) = closed(&CancellationToken::new()).await;
        let sending = tokio::spawn(async move {
            while client.write_all(&[0; 3]).await.is_ok() {
                sleep(SECOND / 7).await;
            }
        });
        assert!(timeout(TIME_MAX - SECOND, &mut closing).await.is_err(), "not earlier");
        timeout(2 * SECOND, closing).await.expect("in time").expect("no panic");
        timeout(SECOND, sending).await.expect("the connection has ended").expect("no panic");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_sends_without_end_is_cut_off() {
        let (mut client, closing) = closed(&CancellationToken::new()).await;
        assert!(client.write_all(&vec![0; 2 * DROPPED_BYTES_MAX]).await.is_err(), "it is not read to the end");
        closing.await.expect("no panic");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_ends_the_wait() {
        let stop = CancellationToken::new();
        let (_client, closing) = closed(&stop).await;
        stop.cancel();
        timeout(SECOND, closing).await.expect("at once").expect("no panic");
    }
}
