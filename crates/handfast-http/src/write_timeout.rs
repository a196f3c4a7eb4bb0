//! A connection that ends if its client does not read: hyper has time-outs for requests, and none for answers.

use std::future::Future as _;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A stream whose writes fail if none of them gets on for a time.
pub(crate) struct WriteTimeout<S> {
    stream: S,
    time_max: Duration,
    /// Runs while a write waits for the client.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteTimeout<S> {
    pub(crate) fn new(stream: S, time_max: Duration) -> Self {
        WriteTimeout { stream, time_max, waiting: None }
    }

    /// Returns the result of a write, or an error if none has come for too long.
    fn limited<T>(&mut self, context: &mut Context<'_>, write: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if write.is_ready() {
            self.waiting = None;
            return write;
        }
        let time_max = self.time_max;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(time_max)));
        ready!(waiting.as_mut().poll(context));
        let text = format!("the client has read nothing for {} seconds", time_max.as_secs());
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, text)))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let write = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.limited(context, write)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let write = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.limited(context, write)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flush = Pin::new(&mut self.stream).poll_flush(context);
        self.limited(context, flush)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shutdown = Pin::new(&mut self.stream).poll_shutdown(context);
        self.limited(context, shutdown)
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio::time::{sleep, timeout};

    use super::WriteTimeout;

    const TIME_MAX: Duration = Duration::from_secs(30);
    const SECOND: Duration = Duration::from_secs(1);
    /// The bytes of an answer, which are many times what the connection holds.
    const ANSWER: [u8; 100] = [7; 100];

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_that_gets_on_has_all_the_time() {
        let (mut client, server) = duplex(1);
        let mut server = WriteTimeout::new(server, TIME_MAX);
        let writing = tokio::spawn(async move { server.write_all(&ANSWER).await });
        let mut read = Vec::new();
        while read.len() < ANSWER.len() {
            sleep(TIME_MAX - SECOND).await;
            read.push(client.read_u8().await.expect("a byte"));
        }
        assert_eq!(read, ANSWER);
        writing.await.expect("no panic").expect("written");
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_stops_is_cut_off_when_the_time_is_over() {
        let (mut client, server) = duplex(1);
        let mut server = WriteTimeout::new(server, TIME_MAX);
        let mut writing = tokio::spawn(async move { server.write_all(&ANSWER).await });
        // The time begins with the last byte that was read.
        sleep(TIME_MAX - SECOND).await;
        client.read_u8().await.expect("a byte");
        assert!(timeout(TIME_MAX - SECOND, &mut writing).await.is_err(), "not earlier");
        let cut = timeout(2 * SECOND, writing).await.expect("in time").expect("no panic");
        assert_eq!(cut.expect_err("cut off").kind(), io::ErrorKind::TimedOut);
        assert!(client.read_to_end(&mut Vec::new()).await.is_ok(), "the connection has ended");
    }
}
