//! A client of HTTP that does little work, because its cost is a part of every figure.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, bail, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The bytes that one read of the socket takes: a whole answer of the service.
const READ_BYTES: usize = 4_096;
const END_OF_HEAD: &[u8] = b"\r\n\r\n";
const CONTENT_LENGTH: &[u8] = b"\r\ncontent-length: ";

/// A connection that stays open, sends one request and waits for its answer.
pub(super) struct HttpClient {
    stream: TcpStream,
    answer: Vec<u8>,
}

impl HttpClient {
    pub(super) async fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await.with_context(|| format!("connecting to {address}"))?;
        stream.set_nodelay(true)?;
        Ok(HttpClient { stream, answer: Vec::with_capacity(READ_BYTES) })
    }

    /// Sends a request and reads the whole answer, which must have status 200. Returns its body.
    pub(super) async fn send(&mut self, request: &[u8]) -> Result<&[u8]> {
        self.stream.write_all(request).await?;
        self.answer.clear();
        loop {
            ensure!(self.stream.read_buf(&mut self.answer).await? > 0, "the service closed the connection");
            if let Some(body) = body_of(&self.answer)? {
                let body_at = self.answer.len() - body;
                return self.answer.get(body_at..).context("an answer shorter than its body");
            }
        }
    }
}

/// Returns the length of the body if the answer is whole.
///
/// # Errors
/// Fails if the status is not 200.
fn body_of(answer: &[u8]) -> Result<Option<usize>> {
    let Some(head) = position(answer, END_OF_HEAD) else { return Ok(None) };
    let (head, body) = (answer.get(..head).unwrap_or_default(), answer.len() - head - END_OF_HEAD.len());
    if !head.starts_with(b"HTTP/1.1 200 ") {
        bail!("the service answered {:?}", String::from_utf8_lossy(answer));
    }
    let digits = position(head, CONTENT_LENGTH).and_then(|at| head.get(at + CONTENT_LENGTH.len()..));
    let digits = digits.context("an answer without a length")?.iter().take_while(|byte| byte.is_ascii_digit());
    let length = digits.fold(0, |length, digit| length * 10 + usize::from(digit - b'0'));
    Ok((body == length).then_some(length))
}

fn position(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

/// Returns the request for the total of an item.
pub(super) fn read_request(id: u64) -> Vec<u8> {
    format!("GET /v1/bench/{id} HTTP/1.1\r\nhost: bench\r\n\r\n").into_bytes()
}

/// Returns the request that counts a view of an item.
pub(super) fn write_request(id: u64) -> Vec<u8> {
    format!("POST /v1/bench/{id}/views HTTP/1.1\r\nhost: bench\r\ncontent-length: 0\r\n\r\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::body_of;

    #[test]
    fn an_answer_is_whole_when_its_body_is_there() {
        let whole = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 12\r\n\r\nabcdefghijkl";
        for cut in 0..whole.len() {
            assert_eq!(body_of(&whole[..cut]).unwrap(), None, "{cut}");
        }
        assert_eq!(body_of(whole).unwrap(), Some(12));
        assert!(body_of(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n").is_err());
    }
}
