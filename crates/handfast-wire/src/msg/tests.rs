use bson::{RawDocument, RawDocumentBuf, rawdoc};
use proptest::prelude::*;

use super::{Flags, OpMsg, Sequence};
use crate::header::frame;
use crate::limits::{SEQUENCES_MAX, WRITE_BATCH_MAX};
use crate::{Error, Header, Limits, Message, OpCode, Recovery, Result};

fn decode(frame: &[u8]) -> Result<OpMsg<'_>> {
    match Message::decode(frame, &Limits::default())? {
        (_, Message::Msg(msg)) => Ok(msg),
        (_, other) => panic!("no OP_MSG: {other:?}"),
    }
}

/// Builds a frame of flag bits and further bytes.
fn raw_frame(bits: u32, rest: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame(&mut out, 7, 0, OpCode::Msg, |out| {
        out.extend_from_slice(&bits.to_le_bytes());
        out.extend_from_slice(rest);
    });
    out
}

fn body_section(document: &RawDocument) -> Vec<u8> {
    [&[0], document.as_bytes()].concat()
}

fn sequence_section(identifier: &str, documents: &[RawDocumentBuf]) -> Vec<u8> {
    let mut out = Vec::new();
    Sequence { identifier, documents: documents.iter().map(|d| &**d).collect() }.encode(&mut out);
    out
}

#[test]
fn bytes_as_the_specification_shows_them() {
    let body = rawdoc! { "ping": 1 };
    let mut out = Vec::new();
    OpMsg::new(Flags::default(), &body).encode(0x0102_0304, 0, &mut out);
    let expected = [
        &[0x24, 0, 0, 0][..],
        &[0x04, 0x03, 0x02, 0x01],
        &[0, 0, 0, 0],
        &[0xdd, 0x07, 0, 0],
        &[0, 0, 0, 0],
        &[0],
        &[0x0f, 0, 0, 0, 0x10, b'p', b'i', b'n', b'g', 0, 1, 0, 0, 0, 0],
    ]
    .concat();
    assert_eq!(out, expected);
    let head = OpMsg::new(Flags::default(), &body).head(0x0102_0304, 0);
    assert_eq!([&head, body.as_bytes()].concat(), expected);
}

#[test]
fn checksum_of_a_known_message() {
    // This is the published check value of CRC-32C for "123456789", which differs from that of the other CRC-32.
    assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
    let body = rawdoc! { "ping": 1 };
    let flags = Flags { checksum: true, ..Flags::default() };
    let mut out = Vec::new();
    OpMsg::new(flags, &body).encode(1, 0, &mut out);
    assert_eq!(decode(&out).unwrap().flags, flags);
    for place in 0..out.len() {
        let mut damaged = out.clone();
        damaged[place] ^= 0x10;
        assert!(decode(&damaged).is_err(), "a flip at byte {place} went unnoticed");
    }
}

#[test]
fn unknown_required_flags_are_refused() {
    let section = body_section(&rawdoc! { "ping": 1 });
    let cases = [(1 << 2, true), (1 << 15, true), (1 << 17, false), (1 << 31, false), (1 << 16, false)];
    for (bits, refused) in cases {
        let frame = raw_frame(bits, &section);
        let result = decode(&frame);
        if refused {
            assert_eq!(result, Err(Error::UnknownFlags(bits)));
            assert_eq!(Error::UnknownFlags(bits).recovery(), Recovery::AnswerAndClose);
        } else {
            assert_eq!(result.unwrap().flags.exhaust_allowed, bits == 1 << 16);
        }
    }
}

#[test]
fn sections_are_decoded_or_refused() {
    let body = body_section(&rawdoc! { "insert": "c" });
    let documents = sequence_section("documents", &[rawdoc! { "_id": 1 }, rawdoc! { "_id": 2 }]);
    let other = sequence_section("other", &[]);
    let third = sequence_section("third", &[]);
    let check = |sections: &[&[u8]], expected: Result<usize>| {
        let frame = raw_frame(0, &sections.concat());
        let actual = decode(&frame).map(|msg| msg.sequences.iter().map(|s| s.documents.len()).sum());
        assert_eq!(actual, expected, "{sections:?}");
    };
    check(&[&body], Ok(0));
    check(&[&body, &documents], Ok(2));
    check(&[&documents, &body], Ok(2));
    check(&[&other, &body, &documents], Ok(2));
    check(&[], Err(Error::Bodies(0)));
    check(&[&documents], Err(Error::Bodies(0)));
    check(&[&body, &body], Err(Error::Bodies(2)));
    check(&[&body, &documents, &documents], Err(Error::DuplicateSequence("documents".to_owned())));
    check(&[&body, &other, &documents, &third], Err(Error::TooManySequences));
    check(&[&body, &sequence_section("insert", &[])], Err(Error::DuplicateSequence("insert".to_owned())));
    check(&[&body, &[2]], Err(Error::SectionKind(2)));
    check(&[&body, &[1]], Err(Error::Truncated("the size of a document sequence")));
    check(&[&body, &[1, 3, 0, 0, 0]], Err(Error::BadNumber { what: "the size of a document sequence", value: 3 }));
    check(
        &[&body, &[1, 255, 255, 255, 255]],
        Err(Error::BadNumber { what: "the size of a document sequence", value: -1 }),
    );
    check(&[&body, &[1, 255, 255, 255, 127, 0]], Err(Error::Truncated("a document sequence")));
    check(&[&body, &[1, 6, 0, 0, 0, b'a', b'b']], Err(Error::Truncated("the identifier of a document sequence")));
    check(&[&body, &[1, 6, 0, 0, 0, 0xff, 0]], Err(Error::NotUtf8("the identifier of a document sequence")));
    check(&[&body[..body.len() - 1]], Err(Error::Truncated("the body of OP_MSG")));
}

#[test]
fn a_document_above_the_bound_is_refused_by_its_prefix() {
    let limits = Limits { document_bytes_max: 20, ..Limits::default() };
    let frame = raw_frame(0, &[0, 21, 0, 0, 0]);
    let error = Message::decode(&frame, &limits).unwrap_err();
    assert_eq!(error, Error::DocumentTooLarge { what: "the body of OP_MSG", length: 21, max: 20 });
    assert_eq!((error.code(), error.recovery()), (10_334, Recovery::Answer));
}

#[test]
fn a_sequence_is_bounded_in_documents() {
    let body = body_section(&rawdoc! { "insert": "c" });
    for (count, good) in [(WRITE_BATCH_MAX, true), (WRITE_BATCH_MAX + 1, false)] {
        let sequence = sequence_section("documents", &vec![RawDocumentBuf::new(); count]);
        let frame = raw_frame(0, &[&body[..], &sequence].concat());
        match decode(&frame) {
            Ok(msg) => assert!(good && msg.sequences[0].documents.len() == count),
            Err(error) => {
                assert!(!good && error == Error::BatchTooLarge(count) && error.recovery() == Recovery::Answer);
            }
        }
    }
}

#[test]
fn a_document_must_end_in_zero() {
    let frame = raw_frame(0, &[0, 5, 0, 0, 0, 1]);
    assert!(matches!(decode(&frame), Err(Error::Document { .. })));
    let frame = raw_frame(0, &[0, 4, 0, 0, 0, 0]);
    assert!(matches!(decode(&frame), Err(Error::Document { .. })));
}

#[test]
fn impossible_message_lengths_are_refused() {
    let limits = Limits { message_bytes_max: 100, ..Limits::default() };
    for (length, good) in
        [(15, false), (16, true), (100, true), (101, false), (0, false), (-1, false), (i32::MIN, false)]
    {
        let header = Header { message_length: length, request_id: 1, response_to: 0, op_code: OpCode::Msg };
        let result = header.frame_bytes(&limits);
        assert_eq!(result.is_ok(), good, "{length}");
        if let Err(error) = result {
            assert_eq!(error.recovery(), Recovery::Close);
        }
    }
}

fn document() -> impl Strategy<Value = RawDocumentBuf> {
    proptest::collection::vec(("[a-z]{1,8}", any::<i64>()), 0..6).prop_map(|fields| {
        let mut document = RawDocumentBuf::new();
        for (place, (name, value)) in fields.into_iter().enumerate() {
            let key = bson::raw::CString::try_from(format!("{name}{place}")).unwrap();
            document.append(key, value);
        }
        document
    })
}

proptest! {
    #[test]
    fn an_encoded_message_is_decoded_again(
        body in document(),
        lists in proptest::collection::vec(proptest::collection::vec(document(), 0..5), 0..=SEQUENCES_MAX),
        checksum in any::<bool>(), more_to_come in any::<bool>(), exhaust_allowed in any::<bool>(),
        request_id in any::<i32>(), response_to in any::<i32>(),
    ) {
        let names = ["DOCUMENTS", "OPS"];
        let sequences = lists
            .iter()
            .zip(names)
            .map(|(list, identifier)| Sequence { identifier, documents: list.iter().map(|d| &**d).collect() })
            .collect();
        let msg = OpMsg { flags: Flags { checksum, more_to_come, exhaust_allowed }, body: &body, sequences };
        let mut out = vec![9, 9, 9];
        msg.encode(request_id, response_to, &mut out);
        let frame = &out[3..];
        let (header, decoded) = Message::decode(frame, &Limits::default()).unwrap();
        prop_assert_eq!((header.request_id, header.response_to), (request_id, response_to));
        if !checksum && msg.sequences.is_empty() {
            prop_assert_eq!([&msg.head(request_id, response_to), body.as_bytes()].concat(), frame);
        }
        prop_assert_eq!(decoded, Message::Msg(msg));
    }

    #[test]
    fn arbitrary_bytes_give_a_value_or_an_error(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), honest in any::<bool>(), op in 0..4) {
        if honest && bytes.len() >= 16 {
            let length = i32::try_from(bytes.len()).unwrap();
            bytes[..4].copy_from_slice(&length.to_le_bytes());
            let op_code: i32 = [1, 2004, 2012, 2013][usize::try_from(op).unwrap()];
            bytes[12..16].copy_from_slice(&op_code.to_le_bytes());
        }
        let _ = Message::decode(&bytes, &Limits::default());
        let _ = OpMsg::flags_of_frame(&bytes);
    }

    /// A valid message with some changed bytes reaches each check, unlike random bytes.
    #[test]
    fn damaged_messages_give_a_value_or_an_error(
        body in document(), list in proptest::collection::vec(document(), 0..4),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6), cut in any::<prop::sample::Index>(),
    ) {
        let sequences = vec![Sequence { identifier: "documents", documents: list.iter().map(|d| &**d).collect() }];
        let mut out = Vec::new();
        OpMsg { flags: Flags::default(), body: &body, sequences }.encode(1, 0, &mut out);
        for (place, byte) in damage {
            let place = place.index(out.len());
            out[place] = byte;
        }
        let _ = Message::decode(&out, &Limits::default());
        let cut = cut.index(out.len());
        prop_assert!(Message::decode(&out[..cut], &Limits::default()).is_err());
    }
}
