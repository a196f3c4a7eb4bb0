//! Passes the messages of the application to a recording.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bson::{RawDocument, RawDocumentBuf};
use handfast_wire::{Limits, Message};
use tracing::warn;

use crate::frame::plain;
use crate::recording::{RecordedMessage, check_comparable};
use crate::script::ReceivedRequest;

/// A function that is called with each message, in the order in which they pass.
type Write = Box<dyn FnMut(&RecordedMessage) + Send>;

/// The recording of a proxy, if it has one.
#[derive(Default)]
pub(super) struct Recorder(Mutex<Option<Recording>>);

struct Recording {
    write: Write,
    request_count: u64,
    has_hello: bool,
}

/// The kind of a reply that is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordedReply {
    Hello,
    /// The reply to the request with this number.
    ToRequest(u64),
}

impl Recorder {
    /// Begins a recording.
    pub(super) fn begin(&self, write: Write) {
        *self.recording() = Some(Recording { write, request_count: 0, has_hello: false });
    }

    /// Returns whether there is a recording.
    pub(super) fn is_recording(&self) -> bool {
        self.recording().is_some()
    }

    /// Returns whether the reply to a handshake is to be recorded.
    pub(super) fn needs_hello(&self) -> bool {
        self.recording().as_ref().is_some_and(|recording| !recording.has_hello)
    }

    /// Records a request, whose bytes are not compressed. Returns what its reply is recorded as; `None` if the request cannot be recorded: it is passed to the
    /// recording with the number 0, which says so.
    pub(super) fn request(&self, connection: u64, plain: &[u8], has_reply: bool) -> Option<RecordedReply> {
        let mut recording = self.recording();
        let recording = recording.as_mut()?;
        let command = document_of(plain, &Limits::default())?;
        let is_recorded = check_comparable(&command).is_ok();
        recording.request_count += u64::from(is_recorded);
        let request = if is_recorded { recording.request_count } else { 0 };
        (recording.write)(&RecordedMessage::Request { connection, request, command, has_reply });
        is_recorded.then_some(RecordedReply::ToRequest(request))
    }

    /// Records a reply.
    pub(super) fn reply(&self, connection: u64, recorded: RecordedReply, reply: &RawDocument) {
        let mut recording = self.recording();
        let Some(recording) = recording.as_mut() else { return };
        let message = match recorded {
            RecordedReply::Hello if recording.has_hello => return,
            RecordedReply::Hello => match RecordedMessage::hello(reply) {
                Ok(hello) => hello,
                Err(error) => return warn!(%error, "a handshake cannot be recorded"),
            },
            RecordedReply::ToRequest(request) => {
                RecordedMessage::Reply { connection, request, reply: reply.to_owned() }
            }
        };
        recording.has_hello |= recorded == RecordedReply::Hello;
        (recording.write)(&message);
    }

    fn recording(&self) -> MutexGuard<'_, Option<Recording>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the document of a message, with its lists of documents as array fields; `None` for what is no message.
pub(super) fn document_of(frame: &[u8], limits: &Limits) -> Option<RawDocumentBuf> {
    match Message::decode(&plain(frame, limits).ok()?, limits).ok()?.1 {
        Message::Msg(message) => Some(ReceivedRequest::of_message(&message).body().to_owned()),
        Message::Reply(reply) => reply.documents.first().map(|document| (*document).to_owned()),
        Message::Query(_) => None,
    }
}
