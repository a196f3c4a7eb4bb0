//! Handles one message, and sends no reply, one reply, or a stream of replies.

use std::pin::pin;

use bson::raw::{RawDocument, RawDocumentBuf};
use bytes::{Buf, BytesMut};
use handfast_mql::{Code, depth};
use handfast_wire::limits::COMMAND_BYTES_MAX;
use handfast_wire::{Compressor, Flags, Header, Message, OpCode, OpMsg, Query, Recovery, Reply, compressed};
use tokio::io::{AsyncRead, AsyncWrite};
use tracing::warn;

use crate::dispatch::{self, CommandReply};
use crate::error::{CommandError, CommandResult};
use crate::frame::{Frame, FrameReader, ReadError, write_all};
use crate::memory_budget::MemoryReservation;
use crate::reply::failure;
use crate::request::Request;
use crate::state::{Client, Shared};

/// A message that inflates to more than this is inflated on a thread that may block.
const INFLATE_INLINE_BYTES: usize = 1024 * 1024;

/// The depth of a command: that of the deepest document that can be stored, and the levels around it.
const NESTING_MAX: usize = depth::NESTING_MAX + LEVELS_AROUND;

/// The levels around a document in a command; `{bulkWrite: 1, ops: [{document: ..}]}` has three.
const LEVELS_AROUND: usize = 8;

/// Whether the connection stays open after a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    Continue,
    Close,
}

/// The two halves of a connection, its client and its server.
pub(crate) struct Exchange<'a, R, W> {
    pub(crate) shared: &'a Shared,
    pub(crate) client: &'a Client,
    pub(crate) reader: &'a mut FrameReader<R>,
    pub(crate) writer: &'a mut W,
}

/// A message without compression.
struct PlainMessage {
    bytes: BytesMut,
    compressor: Option<Compressor>,
    /// The reservation for the inflated message.
    _reserved: Option<MemoryReservation>,
}

/// The form in which a reply is sent.
#[derive(Clone, Copy)]
struct ReplyForm {
    response_to: i32,
    flags: Flags,
    compressor: Option<Compressor>,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Exchange<'_, R, W> {
    /// Answers a message.
    pub(crate) async fn answer(&mut self, frame: Frame) -> Result<NextStep, ReadError> {
        let Frame { header, bytes, reserved } = frame;
        self.shared.metrics.requests.increment();
        self.shared.metrics.bytes_in.add(bytes.len() as u64);
        let flags = (header.op_code == OpCode::Msg).then(|| OpMsg::flags_of_frame(&bytes)).flatten();
        let plain = match self.inflate(&header, bytes).await {
            Ok(plain) => plain,
            Err(error) => return self.refuse(&header, flags.unwrap_or_default(), error).await,
        };
        let flags = OpMsg::flags_of_frame(&plain.bytes).unwrap_or_default();
        let after = match Message::decode(&plain.bytes, &self.shared.options.limits) {
            Ok((_, Message::Msg(msg))) => {
                let form = ReplyForm { response_to: header.request_id, flags: msg.flags, compressor: plain.compressor };
                self.answer_msg(&msg, form).await?
            }
            Ok((_, Message::Query(query))) => self.answer_query(&header, &query).await?,
            Ok((_, Message::Reply(_))) => NextStep::Close,
            Err(error) => return self.refuse(&header, flags, error).await,
        };
        drop(reserved);
        self.reader.recycle(plain.bytes);
        Ok(after)
    }

    async fn inflate(&mut self, header: &Header, bytes: BytesMut) -> Result<PlainMessage, handfast_wire::Error> {
        if header.op_code != OpCode::Compressed {
            return Ok(PlainMessage { bytes, compressor: None, _reserved: None });
        }
        // The inflated message has the same bound as a message that this client sends without compression.
        let limits = self.reader.limits();
        let (compressor, plain_bytes) = {
            let compressed = compressed::Compressed::decode(&bytes, &limits)?;
            (compressed.compressor(), compressed.plain_bytes())
        };
        if compressor != Compressor::Noop && !self.shared.options.compressors.contains(&compressor) {
            return Err(handfast_wire::Error::Inflate(format!("{} is not enabled", compressor.name())));
        }
        let reserved = self.shared.inflated.reserve(plain_bytes).await;
        let inflate = move || compressed::Compressed::decode(&bytes, &limits)?.inflate();
        let plain = if plain_bytes <= INFLATE_INLINE_BYTES {
            inflate()?
        } else {
            let task = tokio::task::spawn_blocking(inflate);
            task.await.map_err(|error| handfast_wire::Error::Inflate(error.to_string()))??
        };
        let bytes = BytesMut::from(bytes::Bytes::from(plain));
        Ok(PlainMessage { bytes, compressor: Some(compressor), _reserved: Some(reserved) })
    }

    /// Replies to a message that cannot be read, if its header allows a reply.
    async fn refuse(
        &mut self,
        header: &Header,
        flags: Flags,
        error: handfast_wire::Error,
    ) -> Result<NextStep, ReadError> {
        let recovery = error.recovery();
        warn!(connection = self.client.id, client = self.client.remote, %error, "a message cannot be read");
        let document = failure(&CommandError::from(error));
        if recovery != Recovery::Close && !flags.more_to_come {
            if header.op_code == OpCode::Query {
                self.send_legacy(header.request_id, &document).await?;
            } else {
                let flags = Flags { checksum: flags.checksum, ..Flags::default() };
                let form = ReplyForm { response_to: header.request_id, flags, compressor: None };
                self.send(form, &document, false).await?;
            }
        }
        Ok(if recovery == Recovery::Answer { NextStep::Continue } else { NextStep::Close })
    }

    async fn answer_msg(&mut self, msg: &OpMsg<'_>, form: ReplyForm) -> Result<NextStep, ReadError> {
        let request = match check(msg).and_then(|()| {
            Request::new(msg.body, &msg.sequences, None, form.flags.exhaust_allowed && !form.flags.more_to_come)
        }) {
            Ok(request) => request.of_user(self.client.user_id()),
            Err(error) if form.flags.more_to_come => {
                warn!(connection = self.client.id, %error, "a command that requests no reply was refused");
                return Ok(NextStep::Continue);
            }
            Err(error) => {
                self.send(form, &failure(&error), false).await?;
                return Ok(NextStep::Continue);
            }
        };
        let mut form = form;
        loop {
            let Some(replied) = self.run(&request).await else { return Ok(NextStep::Close) };
            if form.flags.more_to_come {
                return Ok(NextStep::Continue);
            }
            let more = replied.more && request.exhaust;
            let sent = self.send(form, &replied.document, more).await?;
            // The reservation of the reply ends once it is sent.
            drop(replied);
            if !more {
                return Ok(NextStep::Continue);
            }
            // In a stream of replies, each names the one before it as its request.
            form.response_to = sent;
        }
    }

    /// Runs a command. Returns `None` if the client has closed the connection during a read, or must get no reply.
    async fn run(&mut self, request: &Request<'_>) -> Option<CommandReply> {
        // Pinned here so that the large future is not moved.
        let mut run = pin!(dispatch::run(self.shared, self.client, request));
        if request.access.writes() {
            return run.await;
        }
        tokio::select! {
            biased;
            replied = &mut run => replied,
            () = self.reader.peer_gone() => None,
        }
    }

    /// Replies to the legacy handshake, the only OP_QUERY that is supported. Drivers send it as long as they do not know the server.
    async fn answer_query(&mut self, header: &Header, query: &Query<'_>) -> Result<NextStep, ReadError> {
        let document = match self.legacy_reply(query).await {
            Ok(Some(document)) => document,
            Ok(None) => return Ok(NextStep::Close),
            Err(error) => failure(&error),
        };
        self.send_legacy(header.request_id, &document).await?;
        Ok(NextStep::Continue)
    }

    async fn legacy_reply(&mut self, query: &Query<'_>) -> CommandResult<Option<RawDocumentBuf>> {
        check_document(query.query)?;
        let database = query.collection.strip_suffix(".$cmd").unwrap_or_default();
        // A driver wraps the command in {$query: .., $readPreference: ..} for a mongos.
        let command = match query.query.get("$query")? {
            Some(bson::RawBsonRef::Document(command)) => command,
            _ => query.query,
        };
        let request = Request::new(command, &[], Some(database), false)?.of_user(self.client.user_id());
        if !request.properties().legacy_query {
            let text =
                format!("Unsupported OP_QUERY command: {}. The client driver may require an upgrade.", request.name);
            return Err(CommandError::new(UNSUPPORTED_OP_QUERY, text));
        }
        Ok(dispatch::run(self.shared, self.client, &request).await.map(|replied| replied.document))
    }

    /// Sends a reply and returns its id.
    async fn send(&mut self, form: ReplyForm, document: &RawDocument, more: bool) -> Result<i32, ReadError> {
        let id = self.shared.request_id();
        // A compressed message has no checksum, because the compressed bytes have their own.
        let checksum = form.flags.checksum && form.compressor.is_none();
        let flags = Flags { checksum, more_to_come: more, exhaust_allowed: false };
        let msg = OpMsg::new(flags, document);
        if !checksum && form.compressor.is_none() {
            // The document may be large, so it is not copied behind the head.
            let head = msg.head(id, form.response_to);
            self.write(head.as_slice().chain(document.as_bytes())).await?;
            return Ok(id);
        }
        let mut bytes = Vec::with_capacity(document.as_bytes().len() + 64);
        msg.encode(id, form.response_to, &mut bytes);
        if let Some(compressor) = form.compressor {
            let mut compressed = Vec::new();
            if handfast_wire::compressed::compress(&bytes, compressor, &mut compressed) {
                bytes = compressed;
            }
        }
        self.write(bytes.as_slice()).await?;
        Ok(id)
    }

    async fn send_legacy(&mut self, response_to: i32, document: &RawDocument) -> Result<(), ReadError> {
        let mut bytes = Vec::with_capacity(document.as_bytes().len() + 64);
        Reply::command(document).encode(self.shared.request_id(), response_to, &mut bytes);
        self.write(bytes.as_slice()).await
    }

    async fn write(&mut self, bytes: impl Buf) -> Result<(), ReadError> {
        self.shared.metrics.bytes_out.add(bytes.remaining() as u64);
        write_all(self.writer, bytes, &self.shared.options.connections).await
    }
}

const UNSUPPORTED_OP_QUERY: Code = Code(352);

/// Checks the depth of every document, before any recursive function reads it.
fn check(msg: &OpMsg<'_>) -> CommandResult<()> {
    check_document(msg.body)?;
    for sequence in &msg.sequences {
        for document in &sequence.documents {
            check_document(document)?;
        }
    }
    Ok(())
}

/// Checks the size and the depth of a command, before any recursive function reads it.
pub(crate) fn check_document(document: &RawDocument) -> CommandResult<()> {
    let limits = depth::Limits { nesting_max: NESTING_MAX, bytes_max: COMMAND_BYTES_MAX };
    depth::check(document.as_bytes(), limits).map_err(|error| match error.code() {
        Code::Overflow => {
            let text = format!(
                "the command is nested more than {NESTING_MAX} levels deep: a stored document may have {} levels, and the \
                 command around it {LEVELS_AROUND}",
                depth::NESTING_MAX
            );
            CommandError::new(Code::Overflow, text)
        }
        _ => error.into(),
    })
}

#[cfg(test)]
mod tests;
