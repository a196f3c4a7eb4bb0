use bson::rawdoc;
use proptest::prelude::*;

use super::{Query, Reply};
use crate::header::frame;
use crate::{Error, Limits, Message, OpCode, Recovery};

#[test]
fn a_handshake_and_its_answer() {
    let command = rawdoc! { "ismaster": 1, "helloOk": true };
    let query = Query { flags: 0, collection: "admin.$cmd", skip: 0, limit: -1, query: &command };
    let mut out = Vec::new();
    query.encode(11, &mut out);
    let (header, decoded) = Message::decode(&out, &Limits::default()).unwrap();
    assert_eq!((header.request_id, header.op_code), (11, OpCode::Query));
    assert_eq!(decoded, Message::Query(query));

    let answer = rawdoc! { "ok": 1.0 };
    let mut out = Vec::new();
    Reply::command(&answer).encode(5, 11, &mut out);
    let (header, decoded) = Message::decode(&out, &Limits::default()).unwrap();
    assert_eq!((header.response_to, header.op_code), (11, OpCode::Reply));
    assert_eq!(decoded, Message::Reply(Reply::command(&answer)));
}

#[test]
fn bytes_after_the_query_are_checked() {
    let command = rawdoc! { "ismaster": 1 };
    let query = Query { flags: 0, collection: "admin.$cmd", skip: 0, limit: -1, query: &command };
    let with = |rest: &[u8]| {
        let mut out = Vec::new();
        query.encode(1, &mut out);
        out.extend_from_slice(rest);
        let length = i32::try_from(out.len()).unwrap();
        out[..4].copy_from_slice(&length.to_le_bytes());
        Message::decode(&out, &Limits::default()).map(|_| ())
    };
    assert_eq!(with(rawdoc! { "field": 1 }.as_bytes()), Ok(()));
    assert_eq!(with(&[5, 0, 0, 0, 0, 9]), Err(Error::TrailingBytes(1)));
    assert_eq!(with(&[5, 0, 0]), Err(Error::Truncated("the field selector of OP_QUERY")));
}

#[test]
fn a_reply_cannot_announce_what_it_does_not_hold() {
    let mut out = Vec::new();
    frame(&mut out, 1, 0, OpCode::Reply, |out| {
        out.extend_from_slice(&[0; 16]);
        out.extend_from_slice(&i32::MAX.to_le_bytes());
    });
    assert!(matches!(Message::decode(&out, &Limits::default()), Err(Error::BadNumber { .. })));
}

#[test]
fn obsolete_opcodes_close_the_connection() {
    for op_code in [2001, 2002, 2005, 2006, 2007, 2010, 0, -1] {
        let mut out = Vec::new();
        frame(&mut out, 1, 0, OpCode::Other(op_code), |_| {});
        let error = Message::decode(&out, &Limits::default()).unwrap_err();
        assert_eq!(error, Error::OpCode(op_code));
        assert_eq!(error.recovery(), Recovery::Close);
    }
}

proptest! {
    #[test]
    fn damaged_queries_give_a_value_or_an_error(
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let command = rawdoc! { "ismaster": 1, "client": { "application": { "name": "x" } } };
        let mut out = Vec::new();
        Query { flags: 0, collection: "admin.$cmd", skip: 0, limit: -1, query: &command }.encode(1, &mut out);
        for (place, byte) in damage {
            let place = place.index(out.len());
            out[place] = byte;
        }
        let _ = Message::decode(&out, &Limits::default());
    }
}
