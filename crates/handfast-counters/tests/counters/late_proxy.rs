//! A proxy before a Redis that keeps one of the commands that write, and delivers it when the test says so.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

use crate::waiting::PATIENCE;

/// The commands that change something.
const WRITES: [&str; 6] = ["EVALSHA", "EVAL", "SET", "SADD", "HDEL", "DEL"];

/// How a command is late.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Late {
    /// It does not arrive, and the connection breaks; it arrives later.
    Instead,
    /// It arrives, and later once more.
    Again,
}

/// A proxy, which ends when it is dropped.
pub(crate) struct LateProxy {
    port: u16,
    state: Arc<State>,
    accepting: AbortHandle,
}

struct State {
    server: u16,
    /// The name of the command that is not answered, and its number among those of this name, counted from 0.
    unanswered: Option<(&'static str, u64)>,
    named: AtomicU64,
    /// The number of the command that is late, counted from 0.
    late: Option<(u64, Late)>,
    writes: AtomicU64,
    kept: Mutex<Option<Vec<u8>>>,
}

impl LateProxy {
    /// Starts a proxy before the Redis on a port.
    pub(crate) async fn start(server: u16, late: Option<(u64, Late)>) -> Self {
        Self::start_with(server, late, None).await
    }

    /// Starts a proxy that stops to answer on a connection with the command of this name and number.
    pub(crate) async fn start_unanswered(server: u16, name: &'static str, number: u64) -> Self {
        Self::start_with(server, None, Some((name, number))).await
    }

    async fn start_with(server: u16, late: Option<(u64, Late)>, unanswered: Option<(&'static str, u64)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (named, writes, kept) = Default::default();
        let state = Arc::new(State { server, unanswered, named, late, writes, kept });
        let of_connections = Arc::clone(&state);
        let accepting = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(Arc::clone(&of_connections).connection(client));
            }
        });
        LateProxy { port, state, accepting: accepting.abort_handle() }
    }

    /// Returns the URL of the proxy for a buffer.
    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Returns how many commands that write there were.
    pub(crate) fn writes(&self) -> u64 {
        self.state.writes.load(Ordering::SeqCst)
    }

    /// Delivers the command that was kept, and returns the beginning of its answer; `None` if there is none.
    pub(crate) async fn deliver(&self) -> Option<String> {
        let kept = self.state.kept.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let mut stream = TcpStream::connect(("127.0.0.1", self.state.server)).await.expect("a connection");
        stream.write_all(&kept).await.expect("sent");
        let mut answer = [0; 256];
        let read = tokio::time::timeout(PATIENCE, stream.read(&mut answer)).await.expect("an answer");
        let bytes = read.expect("an answer");
        Some(String::from_utf8_lossy(&answer[..bytes]).into_owned())
    }
}

impl Drop for LateProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl State {
    /// Forwards both directions of a connection until one of them ends.
    async fn connection(self: Arc<Self>, client: TcpStream) {
        let Ok(server) = TcpStream::connect(("127.0.0.1", self.server)).await else { return };
        let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
            (client.into_split(), server.into_split());
        let requests = async {
            let mut received = Vec::new();
            while from_client.read_buf(&mut received).await.is_ok_and(|bytes| bytes > 0) {
                while let Some(length) = command_length(&received) {
                    let command: Vec<u8> = received.drain(..length).collect();
                    if self.is_unanswered(&command) {
                        std::future::pending::<()>().await;
                    }
                    if self.is_held_back(&command) || to_server.write_all(&command).await.is_err() {
                        return;
                    }
                }
            }
        };
        tokio::select! {
            () = requests => {}
            _ = copy(&mut from_server, &mut to_client) => {}
        }
    }

    /// Counts a command, and returns whether it is the one that is not answered.
    fn is_unanswered(&self, command: &[u8]) -> bool {
        let Some((name, number)) = self.unanswered else { return false };
        name_of(command) == Some(name) && self.named.fetch_add(1, Ordering::SeqCst) == number
    }

    /// Keeps a command if it is the one that is late, and returns whether it must not arrive now.
    fn is_held_back(&self, command: &[u8]) -> bool {
        if !name_of(command).is_some_and(|name| WRITES.contains(&name)) {
            return false;
        }
        let number = self.writes.fetch_add(1, Ordering::SeqCst);
        let Some((_, late)) = self.late.filter(|(at, _)| *at == number) else { return false };
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(command.to_vec());
        matches!(late, Late::Instead)
    }
}

/// Returns the number behind a letter at the beginning of a line, and what comes after the line.
fn number_line(bytes: &[u8], letter: u8) -> Option<(usize, &[u8])> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    let (line, rest) = (bytes[..end].strip_prefix(&[letter])?, &bytes[end + 2..]);
    Some((std::str::from_utf8(line).ok()?.parse().ok()?, rest))
}

/// Returns the length of the first command, an array of strings of the protocol; `None` if it is not whole.
fn command_length(bytes: &[u8]) -> Option<usize> {
    let (count, mut rest) = number_line(bytes, b'*')?;
    for _ in 0..count {
        let (length, text) = number_line(rest, b'$')?;
        rest = text.get(length + 2..)?;
    }
    Some(bytes.len() - rest.len())
}

fn name_of(command: &[u8]) -> Option<&str> {
    let (_, rest) = number_line(command, b'*')?;
    let (length, text) = number_line(rest, b'$')?;
    std::str::from_utf8(text.get(..length)?).ok()
}
