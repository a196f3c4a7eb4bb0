//! The host names in the reply to a handshake, replaced by the address of the proxy.
//!
//! A member of a replica set lists the members, and a driver connects to these and forgets the address that it was given. So the
//! reply that it gets names one member, the proxy. A standalone server and a mongos name no hosts.

use bson::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};
use handfast_wire::{Limits, Message, OpMsg, Reply};

/// A reply that has more bytes is no reply to a handshake, whose lists name at most 50 members.
const HELLO_BYTES_MAX: usize = 64 * 1024;

/// Returns the reply with the address instead of the host names, or `None` if it names none.
pub(crate) fn with_address(frame: &[u8], address: &str, limits: &Limits) -> Option<Vec<u8>> {
    if frame.len() > HELLO_BYTES_MAX {
        return None;
    }
    // The replies to handshakes are never compressed. What is no reply is for the driver to refuse.
    let (header, message) = Message::decode(frame, limits).ok()?;
    // Most replies are to no handshake, and need no memory.
    let mut out = Vec::new();
    match message {
        Message::Msg(message) => {
            let body = replaced(message.body, address)?;
            OpMsg::new(message.flags, &body).encode(header.request_id, header.response_to, &mut out);
        }
        Message::Reply(reply) => {
            let [document] = reply.documents[..] else { return None };
            let document = replaced(document, address)?;
            Reply { documents: vec![&document], ..reply }.encode(header.request_id, header.response_to, &mut out);
        }
        Message::Query(_) => return None,
    }
    Some(out)
}

/// Returns the document with other host names, or `None` if it is not the reply of a replica set to a handshake.
pub(crate) fn replaced(hello: &RawDocument, address: &str) -> Option<RawDocumentBuf> {
    let text = |name| hello.get(name).ok().flatten().and_then(RawBsonRef::as_str);
    text("setName")?;
    hello.get("maxWireVersion").ok().flatten()?;
    let is_primary = text("primary").is_some() && text("primary") == text("me");
    let mut out = RawDocumentBuf::new();
    for field in hello.iter() {
        let (name, value) = field.ok()?;
        match name.as_str() {
            "hosts" => {
                let mut hosts = RawArrayBuf::new();
                hosts.push(address);
                out.append(name, hosts);
            }
            "me" => out.append(name, address),
            "primary" if is_primary => out.append(name, address),
            // Other members are not behind the proxy.
            "primary" | "passives" | "arbiters" => {}
            _ => out.append(name, value),
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use bson::{RawDocumentBuf, rawdoc};
    use handfast_wire::{Flags, Limits, Message, OpMsg, Reply};

    use super::with_address;

    const ADDRESS: &str = "127.0.0.1:5000";

    fn check(body: RawDocumentBuf, expected: Option<RawDocumentBuf>) {
        let flags = Flags { more_to_come: true, checksum: true, ..Flags::default() };
        let mut frame = Vec::new();
        OpMsg::new(flags, &body).encode(7, 3, &mut frame);
        let found = with_address(&frame, ADDRESS, &Limits::default());
        assert_eq!(found.is_some(), expected.is_some(), "{body:?}");
        if let (Some(found), Some(expected)) = (found, &expected) {
            let (header, message) = Message::decode(&found, &Limits::default()).unwrap();
            assert_eq!((header.request_id, header.response_to), (7, 3));
            assert_eq!(message, Message::Msg(OpMsg::new(flags, expected)));
        }

        let mut legacy = Vec::new();
        Reply::command(&body).encode(7, 3, &mut legacy);
        let found = with_address(&legacy, ADDRESS, &Limits::default());
        assert_eq!(found.is_some(), expected.is_some());
        if let (Some(found), Some(expected)) = (found, &expected) {
            let (_, message) = Message::decode(&found, &Limits::default()).unwrap();
            assert_eq!(message, Message::Reply(Reply::command(expected)));
        }
    }

    #[test]
    fn a_primary_is_at_the_proxy() {
        check(
            rawdoc! {
                "hosts": ["a:1", "b:2"], "passives": ["c:3"], "setName": "rs", "primary": "a:1", "me": "a:1",
                "topologyVersion": { "counter": 1_i64 }, "maxWireVersion": 21,
            },
            Some(rawdoc! {
                "hosts": [ADDRESS], "setName": "rs", "primary": ADDRESS, "me": ADDRESS,
                "topologyVersion": { "counter": 1_i64 }, "maxWireVersion": 21,
            }),
        );
    }

    #[test]
    fn a_secondary_does_not_name_its_primary() {
        check(
            rawdoc! { "hosts": ["a:1", "b:2"], "setName": "rs", "primary": "b:2", "me": "a:1", "maxWireVersion": 21 },
            Some(rawdoc! { "hosts": [ADDRESS], "setName": "rs", "me": ADDRESS, "maxWireVersion": 21 }),
        );
    }

    #[test]
    fn other_replies_are_left_as_they_are() {
        check(rawdoc! { "ok": 1.0, "isWritablePrimary": true, "maxWireVersion": 21 }, None);
        check(rawdoc! { "ok": 1.0, "hosts": ["a:1"] }, None);
        check(rawdoc! { "ok": 1.0, "value": { "setName": "rs", "maxWireVersion": 21 } }, None);
    }
}
