//! The sockets of a scripted server.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bson::RawDocumentBuf;
use handfast_wire::{Flags, Limits, Message, OpMsg, Reply};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tracing::debug;

use super::{Answer, Matcher, ReceivedRequest, Role, Script};
use crate::frame::{ReadError, plain, read};
use crate::request::HANDSHAKES;
use crate::{Error, Result};

/// The number of open connections. Further ones wait until one is closed.
const CONNECTIONS_MAX: usize = 1_000;

/// A server on a free port of 127.0.0.1 that follows a script. It ends when this is dropped.
#[must_use = "finish() says whether the script was followed"]
pub struct ScriptedServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    role: Role,
    /// Its own address, as it says it to drivers.
    address: String,
    script: Mutex<Script>,
    limits: Limits,
}

impl Shared {
    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hello(&self) -> RawDocumentBuf {
        self.role.hello(&self.address)
    }

    fn answer(&self, request: ReceivedRequest) -> Answer {
        match HANDSHAKES.contains(&request.command()) {
            true => Answer::Document(self.hello()),
            false => self.script().answer(request),
        }
    }
}

impl ScriptedServer {
    /// Starts a server on the runtime of the caller.
    ///
    /// # Errors
    /// The system has no free port.
    pub async fn start(role: Role, script: Script) -> Result<Self> {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let failed = |source| Error::Listen { address: any, source };
        let listener = TcpListener::bind(any).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let shared = Arc::new(Shared {
            role,
            address: address.to_string(),
            script: Mutex::new(script),
            limits: Limits::default(),
        });
        let task = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(ScriptedServer { address, shared, task })
    }

    /// Returns the address of the server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the connection string of the server.
    pub fn uri(&self) -> String {
        format!("mongodb://{}/", self.address)
    }

    /// Answers each request that matches and meets no expectation, however often it arrives, from now on. Such requests are no part of the script.
    /// If several autoresponders match, the one that was added last answers.
    pub fn autorespond(&self, matcher: Matcher, answer: impl Into<Answer>) -> Autoresponder {
        let number = self.shared.script().add_response(matcher, answer.into());
        Autoresponder { number, shared: Arc::clone(&self.shared) }
    }

    /// Ends the server. Returns the requests that arrived, without those that were answered without the script.
    ///
    /// # Errors
    /// [`Error::Script`] with the script and the requests, if a request was not expected or did not arrive.
    pub fn finish(self) -> Result<Vec<ReceivedRequest>> {
        self.task.abort();
        std::mem::replace(&mut *self.shared.script(), Script::in_order()).finish()
    }
}

/// Answers of a [`ScriptedServer`] to requests that its script does not expect. They go on when this is dropped.
pub struct Autoresponder {
    number: u64,
    shared: Arc<Shared>,
}

impl Autoresponder {
    /// Ends the answers. Requests that arrive later are answered as before it was added.
    pub fn cancel(self) {
        self.shared.script().remove_response(self.number);
    }
}

impl Drop for ScriptedServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.len() >= CONNECTIONS_MAX {
            connections.join_next().await;
        }
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((client, _)) => drop(connections.spawn(serve(client, Arc::clone(&shared)))),
                Err(error) => return debug!(%error, "a scripted server cannot accept connections any more"),
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(mut client: TcpStream, shared: Arc<Shared>) {
    if let Err(error) = answer_requests(&mut client, &shared).await {
        debug!(%error, "a connection ended");
    }
}

/// Answers requests until one side closes the connection.
async fn answer_requests(client: &mut TcpStream, shared: &Shared) -> std::result::Result<(), ReadError> {
    client.set_nodelay(true)?;
    while let Some(frame) = read(client, &shared.limits).await? {
        let request_id = frame.header.request_id;
        let plain = plain(&frame.bytes, &shared.limits)?;
        let (header, message) = Message::decode(&plain, &shared.limits)?;
        let mut bytes = Vec::new();
        match message {
            // Drivers use it for their first handshake alone.
            Message::Query(_) => Reply::command(&shared.hello()).encode(0, request_id, &mut bytes),
            Message::Msg(message) => {
                let request = ReceivedRequest::of_message(&message);
                let (answer, has_reply) = (shared.answer(request), !message.flags.more_to_come);
                match outcome(answer, request_id, has_reply, client).await? {
                    Outcome::Send(reply) => bytes = reply,
                    Outcome::SendLast(reply) => return Ok(client.write_all(&reply).await?),
                    Outcome::Silence => {
                        tokio::io::copy(client, &mut tokio::io::sink()).await?;
                        return Ok(());
                    }
                }
            }
            Message::Reply(_) => return Err(handfast_wire::Error::OpCode(header.op_code.number()).into()),
        }
        client.write_all(&bytes).await?;
    }
    Ok(())
}

/// The effect of an answer on its connection.
enum Outcome {
    Send(Vec<u8>),
    /// The connection is closed after these bytes.
    SendLast(Vec<u8>),
    /// Nothing more is sent.
    Silence,
}

/// Returns what an answer does to its connection, when it is time to do it.
async fn outcome(answer: Answer, request_id: i32, has_reply: bool, client: &TcpStream) -> std::io::Result<Outcome> {
    let mut answer = answer;
    loop {
        return Ok(match answer {
            Answer::Delay(time, later) => {
                tokio::time::sleep(time).await;
                answer = *later;
                continue;
            }
            Answer::HangUp => Outcome::SendLast(Vec::new()),
            Answer::Reset => {
                client.set_zero_linger()?;
                Outcome::SendLast(Vec::new())
            }
            Answer::Silence => Outcome::Silence,
            Answer::Cut(document) => {
                let mut bytes = message(&document, request_id);
                bytes.truncate(bytes.len() / 2);
                Outcome::SendLast(bytes)
            }
            _ if !has_reply => Outcome::Send(Vec::new()),
            Answer::Document(document) => Outcome::Send(message(&document, request_id)),
            Answer::Garbage(bytes) => Outcome::Send(bytes),
            // Drivers number their requests upwards, so that this one has been answered or was never sent.
            Answer::WrongResponseTo(document) => Outcome::Send(message(&document, request_id.wrapping_sub(1))),
            Answer::Oversized(document) => {
                let mut bytes = message(&document, request_id);
                if let Some(length) = bytes.first_chunk_mut() {
                    *length = i32::MAX.to_le_bytes();
                }
                Outcome::Send(bytes)
            }
        });
    }
}

fn message(document: &RawDocumentBuf, response_to: i32) -> Vec<u8> {
    let mut bytes = Vec::new();
    OpMsg::new(Flags::default(), document).encode(0, response_to, &mut bytes);
    bytes
}
