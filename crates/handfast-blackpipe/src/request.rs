//! The command in the bytes of a request.

use std::borrow::Cow;

use bson::{RawBsonRef, RawDocument};
use handfast_wire::{Error, Limits, Message};

use crate::frame::plain;
use crate::operation::Operation;

/// Commands that drivers send by themselves: handshakes and monitoring, logins, and the end of sessions and cursors.
pub(crate) const DRIVER_COMMANDS: [&str; 11] = [
    "hello",
    "isMaster",
    "ismaster",
    "saslStart",
    "saslContinue",
    "authenticate",
    "getnonce",
    "logout",
    "endSessions",
    "killSessions",
    "killCursors",
];

/// The commands of the handshake, which also monitor a server.
pub(crate) const HANDSHAKES: [&str; 3] = ["hello", "isMaster", "ismaster"];
/// The commands of a login.
pub(crate) const LOGINS: [&str; 4] = ["saslStart", "saslContinue", "authenticate", "getnonce"];

/// A request, as far as the proxy reads it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Request<'a> {
    /// An operation of the application.
    Application(ApplicationRequest<'a>),
    /// A request of the driver itself.
    Driver {
        /// Whether the reply describes the server.
        is_handshake: bool,
        /// Whether the server answers it when its state changes: the driver monitors the server by it.
        is_monitoring: bool,
        /// Whether the driver waits for a reply.
        has_reply: bool,
    },
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ApplicationRequest<'a> {
    pub(crate) command: String,
    /// The collection with the database, if it names one.
    pub(crate) collection: Option<String>,
    pub(crate) has_reply: bool,
    /// The bytes of the request, not compressed.
    pub(crate) plain: Cow<'a, [u8]>,
}

impl ApplicationRequest<'_> {
    pub(crate) fn operation(&self) -> Operation<'_> {
        let collection = self.collection.as_deref();
        Operation { command: &self.command, collection, has_reply: self.has_reply }
    }
}

impl<'a> Request<'a> {
    /// Reads a whole frame, which may be compressed.
    pub(crate) fn of_frame(frame: &'a [u8], limits: &Limits) -> Result<Self, Error> {
        let plain = plain(frame, limits)?;
        let (header, message) = Message::decode(&plain, limits)?;
        match message {
            Message::Msg(message) => {
                let first = message.body.iter_elements().next().and_then(Result::ok);
                let has_reply = !message.flags.more_to_come;
                let command = first.map(|element| element.key().as_str().to_owned()).unwrap_or_default();
                if DRIVER_COMMANDS.contains(&command.as_str()) {
                    let is_monitoring = matches!(message.body.get("maxAwaitTimeMS"), Ok(Some(_)));
                    let is_handshake = HANDSHAKES.contains(&command.as_str());
                    return Ok(Request::Driver { is_handshake, is_monitoring, has_reply });
                }
                let collection = collection_of(&command, message.body);
                Ok(Request::Application(ApplicationRequest { command, collection, has_reply, plain }))
            }
            // Drivers use it for their first handshake alone.
            Message::Query(_) => Ok(Request::Driver { is_handshake: true, is_monitoring: false, has_reply: true }),
            Message::Reply(_) => Err(Error::OpCode(header.op_code.number())),
        }
    }
}

/// Returns a request that allows a single reply, if this one allows several: the bytes of a whole frame, which may be compressed.
pub(crate) fn with_single_reply(frame: &[u8], limits: &Limits) -> Option<Vec<u8>> {
    let plain = plain(frame, limits).ok()?;
    let (header, Message::Msg(mut message)) = Message::decode(&plain, limits).ok()? else { return None };
    if !message.flags.exhaust_allowed {
        return None;
    }
    message.flags.exhaust_allowed = false;
    let mut bytes = Vec::with_capacity(plain.len());
    message.encode(header.request_id, header.response_to, &mut bytes);
    Some(bytes)
}

/// Returns the collection of a command with its database: the value of the command, or of the field `collection` of getMore.
pub(crate) fn collection_of(command: &str, body: &RawDocument) -> Option<String> {
    let text = |name: &str| body.get(name).ok().flatten().and_then(RawBsonRef::as_str);
    let name = text(command).or_else(|| text("collection"))?;
    Some(format!("{}.{name}", text("$db")?))
}

#[cfg(test)]
mod tests {
    use bson::{RawDocumentBuf, rawdoc};
    use handfast_wire::compressed::compress;
    use handfast_wire::{Compressor, Flags, Limits, OpMsg, Query};

    use super::{ApplicationRequest, Request, with_single_reply};

    fn frame(body: &RawDocumentBuf, flags: Flags) -> Vec<u8> {
        let mut frame = Vec::new();
        OpMsg::new(flags, body).encode(1, 0, &mut frame);
        frame
    }

    fn read(frame: &[u8]) -> Request<'_> {
        Request::of_frame(frame, &Limits::default()).unwrap()
    }

    fn application(command: &str, collection: Option<&str>, has_reply: bool, plain: &[u8]) -> Request<'static> {
        let (command, collection) = (command.to_owned(), collection.map(str::to_owned));
        Request::Application(ApplicationRequest { command, collection, has_reply, plain: plain.to_vec().into() })
    }

    #[test]
    fn the_first_field_is_the_command() {
        let plain = frame(&rawdoc! { "find": "orders", "hello": 1, "$db": "shop" }, Flags::default());
        let expected = application("find", Some("shop.orders"), true, &plain);
        assert_eq!(read(&plain), expected);
        for compressor in Compressor::NEGOTIABLE {
            let mut compressed = Vec::new();
            assert!(compress(&plain, compressor, &mut compressed));
            assert_eq!(read(&compressed), expected);
        }
    }

    #[test]
    fn the_collection_is_where_the_command_has_it() {
        let check = |body: RawDocumentBuf, expected: Option<&str>| {
            let frame = frame(&body, Flags::default());
            let Request::Application(request) = read(&frame) else { panic!("{body:?}") };
            assert_eq!(request.collection.as_deref(), expected);
        };
        check(rawdoc! { "getMore": 7_i64, "collection": "orders", "$db": "shop" }, Some("shop.orders"));
        check(rawdoc! { "aggregate": 1, "pipeline": [], "$db": "shop" }, None);
        check(rawdoc! { "find": "orders" }, None);
        check(rawdoc! { "commitTransaction": 1, "$db": "admin" }, None);
    }

    #[test]
    fn an_unacknowledged_write_has_no_reply() {
        let flags = Flags { more_to_come: true, ..Flags::default() };
        let frame = frame(&rawdoc! { "insert": "orders", "$db": "shop" }, flags);
        assert_eq!(read(&frame), application("insert", Some("shop.orders"), false, &frame));
    }

    #[test]
    fn drivers_send_some_commands_by_themselves() {
        let check = |body: RawDocumentBuf, is_handshake, is_monitoring| {
            let expected = Request::Driver { is_handshake, is_monitoring, has_reply: true };
            assert_eq!(read(&frame(&body, Flags::default())), expected);
        };
        check(rawdoc! { "hello": 1 }, true, false);
        check(rawdoc! { "hello": 1, "topologyVersion": {}, "maxAwaitTimeMS": 10_000 }, true, true);
        check(rawdoc! { "endSessions": [] }, false, false);
        check(rawdoc! { "saslStart": 1 }, false, false);
        let mut legacy = Vec::new();
        let query = rawdoc! { "isMaster": 1 };
        Query { flags: 0, collection: "admin.$cmd", skip: 0, limit: -1, query: &query }.encode(1, &mut legacy);
        assert_eq!(read(&legacy), Request::Driver { is_handshake: true, is_monitoring: false, has_reply: true });
        let unacknowledged = frame(&rawdoc! { "killCursors": "a" }, Flags { more_to_come: true, ..Flags::default() });
        let expected = Request::Driver { is_handshake: false, is_monitoring: false, has_reply: false };
        assert_eq!(read(&unacknowledged), expected);
    }

    #[test]
    fn a_request_for_several_replies_becomes_one_for_a_single_reply() {
        let body = rawdoc! { "getMore": 7_i64, "collection": "orders" };
        for checksum in [false, true] {
            let of = |exhaust_allowed| frame(&body, Flags { exhaust_allowed, checksum, ..Flags::default() });
            let mut compressed = Vec::new();
            assert!(compress(&of(true), Compressor::Zstd, &mut compressed));
            for several in [of(true), compressed] {
                assert_eq!(with_single_reply(&several, &Limits::default()), Some(of(false)));
            }
            assert_eq!(with_single_reply(&of(false), &Limits::default()), None);
        }
    }

    #[test]
    fn garbage_is_an_error() {
        let whole = frame(&rawdoc! { "find": "orders" }, Flags::default());
        for length in 0..whole.len() {
            assert!(Request::of_frame(&whole[..length], &Limits::default()).is_err());
        }
    }
}
