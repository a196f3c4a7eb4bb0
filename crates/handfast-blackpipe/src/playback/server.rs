//! The sockets of a server that answers from a recording.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bson::{RawDocumentBuf, doc};
use handfast_wire::{Flags, Limits, Message, OpMsg, Reply};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tracing::debug;

use super::{Playback, PlayedAnswer};
use crate::accept::accept;
use crate::frame::{ReadError, plain, read};
use crate::proxy::stream::{AcceptedConnection, Acceptor, send};
use crate::proxy::{Warning, Warnings};
use crate::request::{DRIVER_COMMANDS, HANDSHAKES, LOGINS};
use crate::script::ReceivedRequest;
use crate::{Error, ErrorReply, Result, hello};

/// The number of open connections. Further ones wait until one is closed.
const CONNECTIONS_MAX: usize = 10_000;
/// The code of the answer to a request that is not in the recording. No driver repeats a request after it.
const NOT_RECORDED: i32 = 8000;

/// A server with a bound address that answers from a recording, and does not accept connections yet.
pub struct PlaybackServer {
    listener: TcpListener,
    address: SocketAddr,
    acceptor: Acceptor,
    shared: Arc<Shared>,
}

type Log = Arc<dyn Fn(&str) + Send + Sync>;

struct Shared {
    playback: Mutex<Playback>,
    log: Log,
    limits: Limits,
    warnings: Warnings,
}

impl Shared {
    fn playback(&self) -> MutexGuard<'_, Playback> {
        self.playback.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Shows what has arrived at a server that answers from a recording.
pub struct PlaybackHandle(Arc<Shared>);

impl PlaybackHandle {
    /// Calls a function with the recording.
    pub fn inspect<T>(&self, function: impl FnOnce(&Playback) -> T) -> T {
        function(&self.0.playback())
    }
}

impl PlaybackServer {
    /// Binds an address. Port 0 takes a free one. Calls `log` with a sentence about each request that is not in the recording, and about the first client that speaks TLS
    /// where there is no certificate, or does not where there is one.
    ///
    /// # Errors
    /// Fails if the address is in use or not allowed.
    pub async fn bind(
        listen: SocketAddr,
        playback: Playback,
        log: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Self> {
        let failed = |source| Error::Listen { address: listen, source };
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (log, warnings): (Log, _) = (Arc::new(log), Warnings::default());
        let warn = Arc::clone(&log);
        warnings.begin(Box::new(move |warning| warn(&warning.to_string())));
        let shared = Shared { playback: Mutex::new(playback), log, limits: Limits::default(), warnings };
        Ok(PlaybackServer { listener, address, acceptor: Acceptor::default(), shared: Arc::new(shared) })
    }

    /// Takes connections with TLS alone.
    #[must_use]
    pub fn with_tls(self, config: Arc<ServerConfig>) -> Self {
        PlaybackServer { acceptor: Acceptor::with_tls(config), ..self }
    }

    /// Returns the address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a handle of the server, which can be used while it runs.
    pub fn handle(&self) -> PlaybackHandle {
        PlaybackHandle(Arc::clone(&self.shared))
    }

    /// Answers requests.
    ///
    /// # Cancellation
    /// Dropping it closes all connections.
    pub async fn run(self) -> Infallible {
        let PlaybackServer { listener, acceptor, shared, .. } = self;
        accept(listener, CONNECTIONS_MAX, |client| serve(client, acceptor.clone(), Arc::clone(&shared))).await
    }
}

async fn serve(client: TcpStream, acceptor: Acceptor, shared: Arc<Shared>) {
    if let Err(error) = answer_requests(client, &acceptor, &shared).await {
        Warning::of(&error).into_iter().for_each(|warning| shared.warnings.report(warning));
        debug!(%error, "a connection ended");
    }
}

/// Answers requests until one side closes the connection.
async fn answer_requests(
    client: TcpStream,
    acceptor: &Acceptor,
    shared: &Shared,
) -> std::result::Result<(), ReadError> {
    let AcceptedConnection { mut reader, mut writer, address } = acceptor.accept(client).await?;
    while let Some(frame) = read(&mut reader, &shared.limits).await? {
        let request_id = frame.header.request_id;
        let plain = plain(&frame.bytes, &shared.limits)?;
        let (header, message) = Message::decode(&plain, &shared.limits)?;
        let mut bytes = Vec::new();
        match message {
            // Drivers use it for their first handshake alone.
            Message::Query(_) => Reply::command(&handshake(shared, &address)).encode(0, request_id, &mut bytes),
            Message::Msg(message) => {
                let request = ReceivedRequest::of_message(&message);
                let reply = match request.command() {
                    command if HANDSHAKES.contains(&command) => Some(handshake(shared, &address)),
                    command if LOGINS.contains(&command) => Some(no_login()),
                    command if DRIVER_COMMANDS.contains(&command) => Some(bson::rawdoc! { "ok": 1.0 }),
                    _ => answer(&request, shared),
                };
                match reply {
                    _ if !request.has_reply() => continue,
                    None => return Ok(()),
                    Some(reply) => OpMsg::new(Flags::default(), &reply).encode(0, request_id, &mut bytes),
                }
            }
            Message::Reply(_) => return Err(handfast_wire::Error::OpCode(header.op_code.number()).into()),
        }
        send(&mut writer, &bytes).await?;
    }
    Ok(())
}

/// Returns the reply to a request of the application; `None` if the connection is closed instead.
fn answer(request: &ReceivedRequest, shared: &Shared) -> Option<RawDocumentBuf> {
    let answer = shared.playback().answer(request.body());
    match answer {
        PlayedAnswer::Reply(reply) => Some(reply),
        PlayedAnswer::NoReply => None,
        PlayedAnswer::NotRecorded(reason) => {
            (shared.log)(&reason);
            Some(ErrorReply { message: reason, ..ErrorReply::of_code(NOT_RECORDED) }.document())
        }
    }
}

/// Returns the recorded reply to a handshake, of a server at this address.
fn handshake(shared: &Shared, address: &str) -> RawDocumentBuf {
    let mut hello = shared.playback().hello.clone();
    // The recorded client may have asked by the other one of the two names of the command.
    let is_writable = hello.get_bool("isWritablePrimary").or_else(|_| hello.get_bool("ismaster")).unwrap_or(true);
    hello.extend(doc! { "isWritablePrimary": is_writable, "ismaster": is_writable });
    let raw = RawDocumentBuf::try_from(&hello).unwrap_or_default();
    hello::replaced(&raw, address).unwrap_or(raw)
}

fn no_login() -> RawDocumentBuf {
    let message = "a recording knows no users: leave user and password out of the connection string".to_owned();
    ErrorReply { message, ..ErrorReply::of_code(NOT_RECORDED) }.document()
}

#[cfg(test)]
mod tests;
