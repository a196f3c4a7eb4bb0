//! The command in the bytes of a request.

use std::borrow::Cow;

use handfast_wire::compressed::Compressed;
use handfast_wire::{Error, Header, Limits, Message, OpCode};

/// Commands that drivers send by themselves: handshakes and monitoring, logins, and the end of sessions and cursors.
const DRIVER_COMMANDS: [&str; 11] = [
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

/// A request, as far as the proxy reads it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// An operation of the application.
    Application {
        /// The name of its command.
        command: String,
        /// Whether the client waits for a reply.
        has_reply: bool,
    },
    /// A request of the driver itself.
    Driver,
}

impl Request {
    /// Reads a whole frame, which may be compressed.
    pub(crate) fn of_frame(frame: &[u8], limits: &Limits) -> Result<Self, Error> {
        let plain = match Header::of_frame(frame)?.op_code {
            OpCode::Compressed => Cow::Owned(Compressed::decode(frame, limits)?.inflate()?),
            _ => Cow::Borrowed(frame),
        };
        let (header, message) = Message::decode(&plain, limits)?;
        match message {
            Message::Msg(message) => {
                let first = message.body.iter_elements().next().and_then(Result::ok);
                let command = first.map(|element| element.key().as_str().to_owned()).unwrap_or_default();
                let has_reply = !message.flags.more_to_come;
                match DRIVER_COMMANDS.contains(&command.as_str()) {
                    true => Ok(Request::Driver),
                    false => Ok(Request::Application { command, has_reply }),
                }
            }
            // Drivers use it for their first handshake alone.
            Message::Query(_) => Ok(Request::Driver),
            Message::Reply(_) => Err(Error::OpCode(header.op_code.number())),
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::{RawDocumentBuf, rawdoc};
    use handfast_wire::compressed::compress;
    use handfast_wire::{Compressor, Flags, Limits, OpMsg, Query};

    use super::Request;

    fn frame(body: &RawDocumentBuf, flags: Flags) -> Vec<u8> {
        let mut frame = Vec::new();
        OpMsg::new(flags, body).encode(1, 0, &mut frame);
        frame
    }

    fn read(frame: &[u8]) -> Request {
        Request::of_frame(frame, &Limits::default()).unwrap()
    }

    #[test]
    fn the_first_field_is_the_command() {
        let plain = frame(&rawdoc! { "find": "orders", "hello": 1, "$db": "shop" }, Flags::default());
        let expected = || Request::Application { command: "find".to_owned(), has_reply: true };
        assert_eq!(read(&plain), expected());
        for compressor in Compressor::NEGOTIABLE {
            let mut compressed = Vec::new();
            assert!(compress(&plain, compressor, &mut compressed));
            assert_eq!(read(&compressed), expected());
        }
    }

    #[test]
    fn an_unacknowledged_write_has_no_reply() {
        let flags = Flags { more_to_come: true, ..Flags::default() };
        let request = read(&frame(&rawdoc! { "insert": "orders", "$db": "shop" }, flags));
        assert_eq!(request, Request::Application { command: "insert".to_owned(), has_reply: false });
    }

    #[test]
    fn drivers_send_some_commands_by_themselves() {
        for body in [rawdoc! { "hello": 1 }, rawdoc! { "endSessions": [] }, rawdoc! { "saslStart": 1 }] {
            assert_eq!(read(&frame(&body, Flags::default())), Request::Driver);
        }
        let mut legacy = Vec::new();
        let query = rawdoc! { "isMaster": 1 };
        Query { flags: 0, collection: "admin.$cmd", skip: 0, limit: -1, query: &query }.encode(1, &mut legacy);
        assert_eq!(read(&legacy), Request::Driver);
    }

    #[test]
    fn garbage_is_an_error() {
        let whole = frame(&rawdoc! { "find": "orders" }, Flags::default());
        for length in 0..whole.len() {
            assert!(Request::of_frame(&whole[..length], &Limits::default()).is_err());
        }
    }
}
