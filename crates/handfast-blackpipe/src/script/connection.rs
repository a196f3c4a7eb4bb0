//! The connections of a scripted server.

use std::sync::Arc;

use bson::RawDocumentBuf;
use bson::raw::cstr;
use handfast_wire::compressed::{Compressed, compress};
use handfast_wire::{Compressor, Flags, Limits, Message, OpCode, OpMsg, Reply};
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

/// The state that the connections of a server share.
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
        let compressor = match frame.header.op_code {
            OpCode::Compressed => Some(Compressed::decode(&frame.bytes, &shared.limits)?.compressor()),
            _ => None,
        };
        let plain = plain(&frame.bytes, &shared.limits)?;
        let (header, message) = Message::decode(&plain, &shared.limits)?;
        match message {
            // Drivers use it for their first handshake alone.
            Message::Query(query) => {
                let hello = shared.script.with_compression(query.query, shared.identity.hello());
                let mut bytes = Vec::new();
                Reply::command(&hello).encode(0, request_id, &mut bytes);
                client.write_all(&bytes).await?;
            }
            Message::Msg(message) => {
                let request = ReceivedRequest::of_message(&message).compressed_by(compressor);
                if HANDSHAKES.contains(&request.command()) {
                    answer_handshake(client, shared, &request, request_id).await?;
                    continue;
                }
                let mut exchange =
                    Exchange { response_to: request_id, has_reply: request.has_reply(), compressor, shared };
                let answer = shared.script.answer(shared.identity.received(request));
                if exchange.give(answer, client).await? == Connection::Closed {
                    return Ok(());
                }
            }
            Message::Reply(_) => return Err(handfast_wire::Error::OpCode(header.op_code.number()).into()),
        }
    }
    Ok(())
}

/// Answers a handshake. If the client monitors a member by it, waits for a change; if it accepts several replies, sends one after each change or wait, until the
/// connection ends.
async fn answer_handshake(
    client: &mut TcpStream,
    shared: &Shared,
    request: &ReceivedRequest,
    request_id: i32,
) -> Result<(), ReadError> {
    let identity = &shared.identity;
    let Some((wait, mut known)) = identity.awaited(request) else {
        let hello = shared.script.with_compression(request.body(), identity.hello());
        return Ok(client.write_all(&encoded(&hello, Flags::default(), 0, request_id)).await?);
    };
    let flags = Flags { more_to_come: request.is_exhaust_allowed(), ..Flags::default() };
    let mut response_to = request_id;
    for reply_id in 1.. {
        let hello = identity.changed_hello(&mut known, wait).await;
        client.write_all(&encoded(&hello, flags, reply_id, response_to)).await?;
        if !flags.more_to_come {
            break;
        }
        // In a stream of replies, each names the one before it as its request.
        response_to = reply_id;
    }
    Ok(())
}

/// A request whose answer is given.
struct Exchange<'a> {
    /// The request, or the reply before this one in a stream of replies.
    response_to: i32,
    has_reply: bool,
    /// The compressor of the request, and so of the replies.
    compressor: Option<Compressor>,
    shared: &'a Shared,
}

/// Whether a connection goes on after an answer.
#[derive(PartialEq, Eq)]
enum Connection {
    Open,
    Closed,
}

impl Exchange<'_> {
    /// Does with the connection what an answer says, when it is time to do it.
    async fn give(&mut self, answer: Answer, client: &mut TcpStream) -> std::io::Result<Connection> {
        // What is still to do, the next one last.
        let mut answers = vec![answer];
        let mut sent = 0;
        while let Some(answer) = answers.pop() {
            let has_more = !answers.is_empty();
            let bytes = match answer {
                Answer::Exhaust(several) => {
                    answers.extend(several.into_iter().rev());
                    continue;
                }
                Answer::Delay(time, later) => {
                    tokio::time::sleep(time).await;
                    answers.push(*later);
                    continue;
                }
                Answer::Election(primary, later) => {
                    self.shared.identity.set_primary(primary);
                    answers.push(*later);
                    continue;
                }
                Answer::HangUp => return Ok(Connection::Closed),
                Answer::Reset => {
                    client.set_zero_linger()?;
                    return Ok(Connection::Closed);
                }
                Answer::Cut(document) => {
                    let bytes = self.message(&document, sent, false);
                    client.write_all(bytes.get(..bytes.len() / 2).unwrap_or_default()).await?;
                    return Ok(Connection::Closed);
                }
                Answer::Silence => {
                    tokio::io::copy(client, &mut tokio::io::sink()).await?;
                    return Ok(Connection::Closed);
                }
                _ if !self.has_reply => continue,
                Answer::Document(document) => self.message(&self.with_version(document), sent, has_more),
                Answer::Garbage(bytes) => bytes,
                Answer::WrongResponseTo(document) => {
                    // Drivers number their requests upwards, so that this one has been answered or was never sent.
                    let wrong = Exchange { response_to: self.response_to.wrapping_sub(1), ..*self };
                    wrong.message(&document, sent, has_more)
                }
                Answer::Oversized(document) => {
                    let mut bytes = self.message(&document, sent, has_more);
                    if let Some(length) = bytes.first_chunk_mut() {
                        *length = i32::MAX.to_le_bytes();
                    }
                    bytes
                }
            };
            client.write_all(&bytes).await?;
            if has_more {
                // In a stream of replies, each names the one before it as its request.
                self.response_to = sent;
                sent += 1;
            }
        }
        Ok(Connection::Open)
    }

    /// Adds the `topologyVersion` of a member to the error of a server whose state has changed. By it drivers know whether they have seen the change.
    fn with_version(&self, mut document: RawDocumentBuf) -> RawDocumentBuf {
        let code = document.get_i32("code").ok().filter(|code| is_state_change(*code));
        let has_version = matches!(document.get("topologyVersion"), Ok(Some(_)));
        if let (Some(_), false, Some(version)) = (code, has_version, self.shared.identity.topology_version()) {
            document.append(cstr!("topologyVersion"), version);
        }
        document
    }

    /// Returns a reply with this number, compressed as the request was.
    fn message(&self, document: &RawDocumentBuf, number: i32, has_more: bool) -> Vec<u8> {
        let plain = encoded(document, Flags { more_to_come: has_more, ..Flags::default() }, number, self.response_to);
        let mut compressed = Vec::new();
        match self.compressor {
            Some(compressor) if compress(&plain, compressor, &mut compressed) => compressed,
            _ => plain,
        }
    }
}

fn encoded(document: &RawDocumentBuf, flags: Flags, number: i32, response_to: i32) -> Vec<u8> {
    let mut bytes = Vec::new();
    OpMsg::new(flags, document).encode(number, response_to, &mut bytes);
    bytes
}
