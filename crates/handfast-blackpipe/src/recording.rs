//! The requests and replies of a proxy in a file, a line of Extended JSON each.
//!
//! ```text
//! {"hello":{"isWritablePrimary":true,..}}                               the reply to the first handshake
//! {"connection":1,"request":1,"command":{"find":"orders",..}}
//! {"connection":2,"request":2,"command":{"insert":"orders",..},"acknowledged":false}
//! {"connection":1,"request":1,"reply":{"cursor":{..},"ok":1.0}}
//! ```
//!
//! Requests are numbered over all connections, in the order in which they arrive. A request without a reply has lost it, or is an
//! unacknowledged write. The requests of drivers themselves are not in the file, and nor are logins.
//!
//! Extended JSON cannot write each document so that it is read as it was: a field may be called `$oid`, a name may be there twice. Such a document stands
//! there as its bytes in base64: `{"$bson":"DAAAABBuAAcAAAAA"}`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bson::{Bson, Document, RawBsonRef, RawDocument, RawDocumentBuf};
use serde_json::{Map, Value, json};

use crate::{Error, Result};

/// The bytes of a recording: it is in memory as a whole when it is played.
pub const RECORDING_BYTES_MAX: u64 = 1 << 30;

/// The name of the field that has the bytes of a document.
const BYTES: &str = "$bson";

/// The levels of documents within documents that a recording has. Stored documents have 100 at most; a file with more than 127 would not be read.
const DEPTH_MAX: usize = 120;

/// The fields of the reply to a handshake that are about one connection or one moment, or ask the client for what a recording cannot answer.
const NOT_RECORDED: [&str; 8] = [
    "compression",
    "saslSupportedMechs",
    "speculativeAuthenticate",
    "topologyVersion",
    "connectionId",
    "lastWrite",
    "$clusterTime",
    "operationTime",
];

/// A line of a recording.
#[derive(Clone, Debug, PartialEq)]
pub enum RecordedMessage {
    /// The reply to a handshake.
    Hello(RawDocumentBuf),
    /// A request of the application.
    Request {
        /// The number of its connection, from 1.
        connection: u64,
        /// The number of the request, from 1; 0 if it cannot be written as a line.
        request: u64,
        /// The command, with its lists of documents as array fields.
        command: RawDocumentBuf,
        /// Whether the client waits for a reply. It does not for an unacknowledged write.
        has_reply: bool,
    },
    /// The reply that the client got.
    Reply {
        /// The number of its connection.
        connection: u64,
        /// The number of the request.
        request: u64,
        /// The reply.
        reply: RawDocumentBuf,
    },
}

impl RecordedMessage {
    /// Creates the line of a handshake.
    pub(crate) fn hello(reply: &RawDocument) -> Result<Self> {
        let mut hello = parsed(reply)?;
        NOT_RECORDED.iter().for_each(|name| drop(hello.remove(name)));
        Ok(RecordedMessage::Hello(
            RawDocumentBuf::try_from(&hello).map_err(|error| Error::Document(error.to_string()))?,
        ))
    }

    /// Returns the line.
    ///
    /// # Errors
    /// [`Error::Document`] if the command is not valid BSON or too deep: it could not be compared with a request that arrives.
    pub fn to_line(&self) -> Result<String> {
        let line = match self {
            RecordedMessage::Hello(reply) => json!({ "hello": written(reply) }),
            RecordedMessage::Request { connection, request, command, has_reply } => {
                check_comparable(command)?;
                let mut line = json!({ "connection": connection, "request": request, "command": written(command) });
                if let (false, Some(fields)) = (has_reply, line.as_object_mut()) {
                    fields.insert("acknowledged".to_owned(), Value::Bool(false));
                }
                line
            }
            RecordedMessage::Reply { connection, request, reply } => {
                json!({ "connection": connection, "request": request, "reply": written(reply) })
            }
        };
        Ok(line.to_string())
    }

    /// Reads the lines of a recording. Returns each with its number, from 1.
    ///
    /// # Errors
    /// [`Error::Recording`] with the first line that is none.
    pub fn parse(text: &str) -> Result<Vec<(usize, Self)>> {
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let read = lines.map(|(index, line)| match of_line(line) {
            Ok(message) => Ok((index + 1, message)),
            Err(reason) => Err(Error::Recording { line: index + 1, reason }),
        });
        read.collect()
    }
}

/// Checks whether a command can be compared with another one.
pub(crate) fn check_comparable(command: &RawDocument) -> Result<()> {
    parsed(command).map(drop)
}

/// Returns a document as it stands in a recording.
fn written(document: &RawDocument) -> Value {
    let is_same =
        |value: &Value| self::document("", value.clone()).is_ok_and(|read| read.as_bytes() == document.as_bytes());
    match extended(document) {
        Ok(value) if is_same(&value) => value,
        _ => json!({ BYTES: BASE64.encode(document.as_bytes()) }),
    }
}

/// Returns a document as Extended JSON.
pub(crate) fn extended(document: &RawDocument) -> Result<Value> {
    Ok(Bson::Document(parsed(document)?).into_canonical_extjson())
}

/// Reads a document by functions that call themselves for each level of it.
pub(crate) fn parsed(document: &RawDocument) -> Result<Document> {
    check_depth(document)?;
    Document::try_from(document).map_err(|error| Error::Document(error.to_string()))
}

/// Checks the depth without recursion.
fn check_depth(document: &RawDocument) -> Result<()> {
    let invalid = |error: bson::error::Error| Error::Document(error.to_string());
    let mut open = vec![(document, 1)];
    while let Some((document, depth)) = open.pop() {
        if depth > DEPTH_MAX {
            return Err(Error::Document(format!("it has more than {DEPTH_MAX} levels")));
        }
        for field in document.iter() {
            match field.map_err(invalid)?.1 {
                RawBsonRef::Document(inner) => open.push((inner, depth + 1)),
                RawBsonRef::Array(array) => {
                    open.push((RawDocument::from_bytes(array.as_bytes()).map_err(invalid)?, depth + 1));
                }
                RawBsonRef::JavaScriptCodeWithScope(code) => open.push((code.scope, depth + 1)),
                _ => {}
            }
        }
    }
    Ok(())
}

fn of_line(line: &str) -> std::result::Result<RecordedMessage, String> {
    let mut fields: Map<String, Value> =
        serde_json::from_str(line).map_err(|error| format!("it is no object: {error}"))?;
    if let Some(hello) = fields.remove("hello") {
        return Ok(RecordedMessage::Hello(document("hello", hello)?));
    }
    let number = |name: &str| {
        let number = fields.get(name).and_then(Value::as_u64);
        number.ok_or_else(|| format!("'{name}' is missing, or is no whole number"))
    };
    let (connection, request) = (number("connection")?, number("request")?);
    let has_reply = fields.get("acknowledged") != Some(&Value::Bool(false));
    match (fields.remove("command"), fields.remove("reply")) {
        (Some(command), None) => {
            Ok(RecordedMessage::Request { connection, request, command: document("command", command)?, has_reply })
        }
        (None, Some(reply)) => Ok(RecordedMessage::Reply { connection, request, reply: document("reply", reply)? }),
        _ => Err("it has neither a command nor a reply, or both".to_owned()),
    }
}

fn document(name: &str, value: Value) -> std::result::Result<RawDocumentBuf, String> {
    let wrong = |reason: String| format!("'{name}' is no document in Extended JSON: {reason}");
    if let Some(bytes) = value.get(BYTES).and_then(Value::as_str) {
        let bytes = BASE64.decode(bytes).map_err(|error| wrong(format!("its bytes are no base64: {error}")))?;
        return RawDocumentBuf::from_bytes(bytes).map_err(|error| wrong(error.to_string()));
    }
    match Bson::try_from(value).map_err(|error| wrong(error.to_string()))? {
        Bson::Document(document) => RawDocumentBuf::try_from(&document).map_err(|error| wrong(error.to_string())),
        other => Err(wrong(format!("it is {other}"))),
    }
}

#[cfg(test)]
mod tests {
    use bson::{RawDocumentBuf, rawdoc};

    use super::RecordedMessage;

    #[test]
    fn a_recording_is_read_as_it_is_written() {
        let command = rawdoc! { "find": "orders", "filter": { "n": 1_i64, "x": 1.0 }, "$db": "shop" };
        let request =
            |has_reply| RecordedMessage::Request { connection: 1, request: 2, command: command.clone(), has_reply };
        let reply = RecordedMessage::Reply { connection: 1, request: 2, reply: rawdoc! { "ok": 1.0, "n": 7 } };
        let messages = [RecordedMessage::Hello(rawdoc! { "ok": 1.0 }), request(true), request(false), reply];
        let lines: Vec<String> = messages.iter().map(|message| message.to_line().unwrap()).collect();
        let read = RecordedMessage::parse(&lines.join("\n\n")).unwrap();
        let expected: Vec<_> = [1, 3, 5, 7].into_iter().zip(messages).collect();
        assert_eq!(read, expected);
    }

    #[test]
    fn documents_that_extended_json_does_not_keep_are_read_as_they_are_written() {
        let mut twice = rawdoc! { "a": 1 };
        twice.append(bson::raw::cstr!("a"), 2);
        let deep = (0..200).fold(rawdoc! { "x": 1 }, |inner, _| rawdoc! { "a": inner });
        let text = |text: &[u8]| {
            let mut bytes = rawdoc! { "a": "??" }.into_bytes();
            bytes[11..13].copy_from_slice(text);
            RawDocumentBuf::from_bytes(bytes).unwrap()
        };
        let documents = [
            rawdoc! { "a": { "$oid": "5f5f5f5f5f5f5f5f5f5f5f5f" } },
            rawdoc! { "a": { "$date": 5 } },
            rawdoc! { "a": { "$uuid": "no" }, "b": [{ "$numberInt": "zz" }] },
            rawdoc! { "$bson": "DAAAABBuAAcAAAAA" },
            twice,
            deep,
            text(&[0xff, 0xfe]),
        ];
        for reply in documents {
            let message = RecordedMessage::Reply { connection: 1, request: 2, reply: reply.clone() };
            let line = message.to_line().unwrap();
            assert!(line.contains("$bson"), "{line}");
            assert_eq!(RecordedMessage::parse(&line).unwrap(), [(1, message)]);
        }
        let plain = RecordedMessage::Hello(text(b"ok")).to_line().unwrap();
        assert_eq!(plain, r#"{"hello":{"a":"ok"}}"#);
    }

    #[test]
    fn a_handshake_is_recorded_without_what_is_about_one_connection() {
        let reply = rawdoc! { "ok": 1.0, "speculativeAuthenticate": { "payload": "secret" }, "compression": ["zlib"], "setName": "rs" };
        let expected = RecordedMessage::Hello(rawdoc! { "ok": 1.0, "setName": "rs" });
        assert_eq!(RecordedMessage::hello(&reply).unwrap(), expected);
    }

    #[test]
    fn documents_have_a_greatest_depth() {
        let nested = |levels: usize| {
            (1..levels).fold(RawDocumentBuf::new(), |inner, level| match level % 2 {
                0 => rawdoc! { "a": inner },
                _ => rawdoc! { "a": [inner] },
            })
        };
        let line = |levels| {
            let command = nested(levels);
            RecordedMessage::Request { connection: 1, request: 1, command, has_reply: true }.to_line()
        };
        let deepest = (1..200).take_while(|levels| line(*levels).is_ok()).last().unwrap();
        assert!(RecordedMessage::parse(&line(deepest).unwrap()).is_ok());
        for levels in [deepest + 1, 10_000] {
            assert!(line(levels).unwrap_err().to_string().contains("more than 120 levels"));
        }
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        let check = |line: &str, expected: &str| {
            let error = RecordedMessage::parse(&format!("{{\"hello\":{{}}}}\n{line}\n")).unwrap_err().to_string();
            assert!(error.starts_with("line 2: ") && error.contains(expected), "{error}");
        };
        check("find", "it is no object");
        check("{\"connection\":1}", "'request' is missing");
        check("{\"connection\":1,\"request\":1}", "neither a command nor a reply");
        check("{\"connection\":1,\"request\":1,\"reply\":7}", "'reply' is no document");
    }
}
