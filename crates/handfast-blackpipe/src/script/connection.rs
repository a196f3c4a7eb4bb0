//! The connections of a scripted server.

use std::sync::Arc;

use bson::RawDocumentBuf;
use bson::raw::cstr;
use handfast_wire::{Flags, Limits, Message, OpMsg, Reply};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tracing::debug;

use super::identity::Identity;
use super::shared::SharedScript;
use super::{Answer, ReceivedRequest};
use crate::fault::is_state_change;
use crate::frame::{ReadError, plain, read};
use crate::request::HANDSHAKES;

/// The number of open connections of a server. Further ones wait until one is closed.
pub(super) const CONNECTIONS_MAX: usize = 1_000;

/// What the connections of a server share.
pub(super) struct Shared {
    pub(super) identity: Identity,
    pub(super) script: SharedScript,
    pub(super) limits: Limits,
}

/// Answers requests until one side closes the connection.
pub(super) async fn serve(mut client: TcpStream, shared: Arc<Shared>) {
    if let Err(error) = answer_requests(&mut client, &shared).await {
        debug!(%error, "a connection ended");
    }
}

async fn answer_requests(client: &mut TcpStream, shared: &Shared) -> Result<(), ReadError> {
    client.set_nodelay(true)?;
    while let Some(frame) = read(client, &shared.limits).await? {
        let request_id = frame.header.request_id;
        let plain = plain(&frame.bytes, &shared.limits)?;
        let (header, message) = Message::decode(&plain, &shared.limits)?;
        let mut bytes = Vec::new();
        match message {
            // Drivers use it for their first handshake alone.
            Message::Query(_) => Reply::command(&shared.identity.hello()).encode(0, request_id, &mut bytes),
            Message::Msg(message) => {
                let request = ReceivedRequest::of_message(&message);
                if HANDSHAKES.contains(&request.command()) {
                    answer_handshake(client, &shared.identity, &request, request_id, message.flags).await?;
                    continue;
                }
                let answer = shared.script.answer(shared.identity.received(request));
                let exchange = Exchange { request_id, has_reply: !message.flags.more_to_come, shared };
                match exchange.outcome(answer, client).await? {
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

/// Answers a handshake. If the client monitors a member by it, waits for a change; if it accepts several replies, sends one after each change or wait, until the
/// connection ends.
async fn answer_handshake(
    client: &mut TcpStream,
    identity: &Identity,
    request: &ReceivedRequest,
    request_id: i32,
    flags: Flags,
) -> Result<(), ReadError> {
    let Some((wait, mut known)) = identity.awaited(request) else {
        return Ok(client.write_all(&message(&identity.hello(), request_id)).await?);
    };
    let flags = Flags { more_to_come: flags.exhaust_allowed, ..Flags::default() };
    let mut response_to = request_id;
    for reply_id in 1.. {
        let hello = identity.changed_hello(&mut known, wait).await;
        let mut bytes = Vec::new();
        OpMsg::new(flags, &hello).encode(reply_id, response_to, &mut bytes);
        client.write_all(&bytes).await?;
        if !flags.more_to_come {
            break;
        }
        // In a stream of replies, each names the one before it as its request.
        response_to = reply_id;
    }
    Ok(())
}

/// A request whose answer is awaited.
struct Exchange<'a> {
    request_id: i32,
    has_reply: bool,
    shared: &'a Shared,
}

/// The effect of an answer on its connection.
enum Outcome {
    Send(Vec<u8>),
    /// The connection is closed after these bytes.
    SendLast(Vec<u8>),
    /// Nothing more is sent.
    Silence,
}

impl Exchange<'_> {
    /// Returns what an answer does to its connection, when it is time to do it.
    async fn outcome(&self, answer: Answer, client: &TcpStream) -> std::io::Result<Outcome> {
        let mut answer = answer;
        loop {
            return Ok(match answer {
                Answer::Delay(time, later) => {
                    tokio::time::sleep(time).await;
                    answer = *later;
                    continue;
                }
                Answer::Election(primary, later) => {
                    self.shared.identity.set_primary(primary);
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
                    let mut bytes = message(&document, self.request_id);
                    bytes.truncate(bytes.len() / 2);
                    Outcome::SendLast(bytes)
                }
                _ if !self.has_reply => Outcome::Send(Vec::new()),
                Answer::Document(document) => Outcome::Send(message(&self.with_version(document), self.request_id)),
                Answer::Garbage(bytes) => Outcome::Send(bytes),
                // Drivers number their requests upwards, so that this one has been answered or was never sent.
                Answer::WrongResponseTo(document) => Outcome::Send(message(&document, self.request_id.wrapping_sub(1))),
                Answer::Oversized(document) => {
                    let mut bytes = message(&document, self.request_id);
                    if let Some(length) = bytes.first_chunk_mut() {
                        *length = i32::MAX.to_le_bytes();
                    }
                    Outcome::Send(bytes)
                }
            });
        }
    }

    /// Adds the `topologyVersion` of a member to the error of a server whose state has changed. By it drivers know whether they have seen the change.
    fn with_version(&self, mut document: RawDocumentBuf) -> RawDocumentBuf {
        let code = document.get_i32("code").ok().filter(|code| is_state_change(*code));
        let is_told = matches!(document.get("topologyVersion"), Ok(Some(_)));
        if let (Some(_), false, Some(version)) = (code, is_told, self.shared.identity.topology_version()) {
            document.append(cstr!("topologyVersion"), version);
        }
        document
    }
}

fn message(document: &RawDocumentBuf, response_to: i32) -> Vec<u8> {
    let mut bytes = Vec::new();
    OpMsg::new(Flags::default(), document).encode(0, response_to, &mut bytes);
    bytes
}
