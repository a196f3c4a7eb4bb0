use bson::rawdoc;
use proptest::prelude::*;

use super::{Limits, check};
use crate::Code;

fn nested(levels: usize) -> Vec<u8> {
    let mut bytes = vec![5, 0, 0, 0, 0];
    for level in 0..levels {
        let tag = if level % 2 == 0 { 0x03 } else { 0x04 };
        let mut outer = ((bytes.len() + 8) as i32).to_le_bytes().to_vec();
        outer.extend([tag, b'0', 0]);
        outer.extend(&bytes);
        outer.push(0);
        bytes = outer;
    }
    bytes
}

#[test]
fn deep_nesting_is_refused_without_recursion() {
    assert_eq!(check(&nested(100), Limits::default()), Ok(()));
    assert_eq!(check(&nested(101), Limits::default()).unwrap_err().code(), Code::Overflow);
    assert_eq!(check(&nested(10_000), Limits::default()).unwrap_err().code(), Code::Overflow);
    let deep = Limits { nesting_max: 10_000, ..Limits::default() };
    assert_eq!(check(&nested(10_000), deep), Ok(()));
}

#[test]
fn documents_that_are_too_large_are_refused() {
    let document = rawdoc! { "a": "x".repeat(100) };
    let limits = Limits { bytes_max: document.as_bytes().len(), ..Limits::default() };
    assert_eq!(check(document.as_bytes(), limits), Ok(()));
    let limits = Limits { bytes_max: document.as_bytes().len() - 1, ..limits };
    assert_eq!(check(document.as_bytes(), limits).unwrap_err().code(), Code::BSONObjectTooLarge);
}

/// Returns a document that consists of the bytes of an element.
fn document(element: &[u8]) -> Vec<u8> {
    let mut bytes = ((element.len() + 5) as i32).to_le_bytes().to_vec();
    bytes.extend(element);
    bytes.push(0);
    bytes
}

#[test]
fn every_type_is_accepted() {
    for element in [
        &b"\x01a\0\0\0\0\0\0\0\0\0"[..],
        b"\x02a\0\x02\0\0\0x\0",
        b"\x02a\0\x03\0\0\0x\0\0",
        b"\x03a\0\x05\0\0\0\0",
        b"\x04a\0\x05\0\0\0\0",
        b"\x05a\0\x01\0\0\0\x00x",
        b"\x05a\0\x05\0\0\0\x02\x01\0\0\0x",
        b"\x06a\0",
        b"\x07a\0abcdefghijkl",
        b"\x08a\0\x01",
        b"\x09a\0\0\0\0\0\0\0\0\0",
        b"\x0aa\0",
        b"\x0ba\0x\0i\0",
        b"\x0ca\0\x02\0\0\0x\0abcdefghijkl",
        b"\x0da\0\x02\0\0\0x\0",
        b"\x0ea\0\x02\0\0\0x\0",
        b"\x0fa\0\x0f\0\0\0\x02\0\0\0x\0\x05\0\0\0\0",
        b"\x10a\0\0\0\0\0",
        b"\x11a\0\0\0\0\0\0\0\0\0",
        b"\x12a\0\0\0\0\0\0\0\0\0",
        b"\x13a\0abcdefghijklmnop",
        b"\x7fa\0",
        b"\xffa\0",
    ] {
        let bytes = document(element);
        assert_eq!(check(&bytes, Limits::default()), Ok(()), "{element:?}");
        // With one byte less or more it is malformed.
        if element.len() > 3 {
            assert!(check(&document(&element[..element.len() - 1]), Limits::default()).is_err(), "{element:?}");
        }
        assert!(check(&document(&[element, b"x"].concat()), Limits::default()).is_err(), "{element:?}");
    }
}

#[test]
fn malformed_input_is_refused() {
    for (element, why) in [
        (&b"\x02a\0\x02\0\0\0xy"[..], "string that does not end in NUL"),
        (b"\x02a\0\0\0\0\0", "string that does not end in NUL"),
        (b"\x02a\0\xff\xff\xff\xff\0", "negative length"),
        (b"\x02a\0\xff\xff\xff\x7f\0", "value that runs past its document"),
        (b"\x02a\0\x02\0\0\0\xff\0", "string that is not UTF-8"),
        (b"\x0a\xff\0", "name or pattern that is not UTF-8"),
        (b"\x0aa", "value that runs past its document"),
        (b"\x08a\0\x02", "boolean that is neither 0 nor 1"),
        (b"\x14a\0", "unknown type"),
        (b"\x03a\0\x04\0\0\0", "document whose length does not fit"),
        (b"\x03a\0\x06\0\0\0\0\0", "document ends before its length"),
        (b"\x03a\0\x05\0\0\0x", "document that does not end in NUL"),
        (b"\x05a\0\x05\0\0\0\x02\x02\0\0\0x", "old binary value whose inner length differs"),
        (b"\x05a\0\x01\0\0\0\x02x", "value that runs past its document"),
        (b"\x0fa\0\x10\0\0\0\x02\0\0\0x\0\x05\0\0\0\0\0", "scope that ends before its code with scope"),
        (b"\x0fa\0\x0e\0\0\0\x02\0\0\0x\0\x05\0\0\0\0", "document whose length does not fit"),
    ] {
        let error = check(&document(element), Limits::default()).unwrap_err();
        assert_eq!(error.code(), Code::InvalidBSON);
        // A name without end finds the document's own NUL instead.
        assert!(error.message().contains(why) || element == b"\x0aa", "{element:?}: {error}");
    }
    for bytes in
        [&b""[..], b"\x05", b"\x05\0\0\0", b"\x06\0\0\0\0\0", b"\x05\0\0\0\x01", b"\x04\0\0\0\0", b"\x06\0\0\0\0"]
    {
        assert!(check(bytes, Limits::default()).is_err(), "{bytes:?}");
    }
}

/// Reads everything that `bson` offers to read: no part of a document that passed the check may fail,
/// let alone panic.
fn read(document: &bson::RawDocument) {
    for element in document.iter_elements() {
        match element.expect("passed the check").value().expect("passed the check") {
            bson::RawBsonRef::Document(inner) => read(inner),
            bson::RawBsonRef::Array(inner) => inner.into_iter().for_each(|value| {
                value.expect("passed the check");
            }),
            bson::RawBsonRef::JavaScriptCodeWithScope(code) => read(code.scope),
            _ => {}
        }
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = check(&bytes, Limits::default());
        let bytes = document(&bytes);
        if check(&bytes, Limits::default()).is_ok() {
            read(bson::RawDocument::from_bytes(&bytes).unwrap());
        }
    }

    /// Changes a few bytes of a well-formed document, so that some results pass the check.
    #[test]
    fn mutations_do_not_panic(changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4)) {
        let code = bson::RawJavaScriptCodeWithScope { code: "f".into(), scope: rawdoc! { "x": 1 } };
        let mut bytes = rawdoc! {
            "a": [1, "x", { "b": true }], "c": 1.5, "d": bson::oid::ObjectId::from_bytes([1; 12]), "e": bson::RawBson::Null,
            "f": bson::Binary { subtype: bson::spec::BinarySubtype::BinaryOld, bytes: vec![1, 2] }, "g": code, "h": true,
        }.into_bytes();
        for (index, byte) in changes {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        if check(&bytes, Limits::default()).is_ok() {
            read(bson::RawDocument::from_bytes(&bytes).unwrap());
        }
    }
}
