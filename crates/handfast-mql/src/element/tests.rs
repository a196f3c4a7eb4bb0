use bson::{Bson, RawDocumentBuf, doc, rawdoc};

use super::*;

pub(crate) fn every_type() -> RawDocumentBuf {
    let document = doc! {
        "double": 1.5,
        "string": "x",
        "document": { "a": 1 },
        "array": [1, "two"],
        "binary": bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![1, 2] },
        "old binary": bson::Binary { subtype: bson::spec::BinarySubtype::BinaryOld, bytes: vec![1, 2] },
        "undefined": Bson::Undefined,
        "id": bson::oid::ObjectId::from_bytes([7; 12]),
        "bool": true,
        "date": bson::DateTime::from_millis(12),
        "null": Bson::Null,
        "regex": bson::Regex { pattern: "a".try_into().unwrap(), options: "i".try_into().unwrap() },
        "code": Bson::JavaScriptCode("f".into()),
        "symbol": Bson::Symbol("s".into()),
        "scoped": bson::JavaScriptCodeWithScope { code: "f".into(), scope: doc! { "a": 1 } },
        "int": 1,
        "timestamp": bson::Timestamp { time: 1, increment: 2 },
        "long": 1_i64,
        "decimal": "1.5".parse::<bson::Decimal128>().unwrap(),
        "min": Bson::MinKey,
        "max": Bson::MaxKey,
    };
    RawDocumentBuf::try_from(&document).unwrap()
}

#[test]
fn an_element_reads_what_the_library_reads() {
    let document = every_type();
    let mut count = 0;
    for (element, expected) in elements(&document).zip(document.iter()) {
        let (element, (name, value)) = (element.unwrap(), expected.unwrap());
        assert_eq!(element.name(), name.as_str());
        assert_eq!(element.value().unwrap(), value);
        assert_eq!(OwnedElement::new(value).element().value().unwrap(), value);
        assert!(identical(OwnedElement::new(value).element(), element), "{name}");
        count += 1;
    }
    assert_eq!(count, 21);
}

#[test]
fn the_null_element_is_null() {
    assert!(identical(Element::null().unwrap(), OwnedElement::new(RawBsonRef::Null).element()));
}

#[test]
fn malformed_bytes_are_refused() {
    // The length of this string exceeds the document.
    let mut bytes = rawdoc! { "a": "text" }.into_bytes();
    bytes[7] = 200;
    let document = RawDocumentBuf::from_bytes(bytes).unwrap();
    assert!(elements(&document).any(|element| element.is_err()));
}

proptest::proptest! {
    /// For any bytes, the elements lie in the document, one after the other, and reading them does not panic.
    #[test]
    fn no_bytes_panic(mut bytes in proptest::collection::vec(proptest::num::u8::ANY, 5..80)) {
        let length = bytes.len();
        bytes[..4].copy_from_slice(&(length as i32).to_le_bytes());
        bytes[length - 1] = 0;
        let document = RawDocument::from_bytes(&bytes).unwrap();
        let mut end = 4;
        for element in elements(document).flatten() {
            assert_eq!(element.start, end);
            end = element.end;
            assert!((end as usize) < length);
            let _ = (element.name(), element.value());
        }
    }
}
