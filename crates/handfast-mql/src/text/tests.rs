use bson::{Bson, RawDocumentBuf, doc, rawdoc};

use super::*;

fn check(document: bson::Document, expected: &str) {
    let raw = RawDocumentBuf::try_from(&document).unwrap();
    assert_eq!(super::document(&raw), expected);
}

#[test]
fn values_are_formatted_as_in_mongodbs_messages() {
    check(doc! {}, "{}");
    check(doc! { "a": 1, "b": 2_i64, "c": 1.0, "d": 1.5 }, "{ a: 1, b: 2, c: 1.0, d: 1.5 }");
    check(doc! { "a": { "b": "x" }, "c": [1, []] }, "{ a: { b: \"x\" }, c: [ 1, [] ] }");
    check(doc! { "a": Bson::Null, "b": true, "c": Bson::MinKey }, "{ a: null, b: true, c: MinKey }");
    check(
        doc! { "a": bson::oid::ObjectId::from_bytes([1; 12]), "b": bson::DateTime::from_millis(5) },
        "{ a: ObjectId('010101010101010101010101'), b: new Date(5) }",
    );
    check(doc! { "a": bson::Timestamp { time: 3, increment: 4 } }, "{ a: Timestamp(3, 4) }");
    check(
        doc! { "a": f64::INFINITY, "b": 1e300, "c": -1.5e-9, "d": 0.001 },
        "{ a: inf.0, b: 1e+300, c: -1.5e-9, d: 0.001 }",
    );
}

#[test]
fn long_texts_are_cut() {
    let long = "ä".repeat(10_000);
    let text = super::document(&rawdoc! { "a": long.as_str(), "b": 1 });
    assert!(text.len() <= TEXT_BYTES_MAX + 3, "{}", text.len());
    assert!(text.ends_with("..."));
}

#[test]
fn a_field_is_formatted_with_name_and_value() {
    assert_eq!(field("_id", RawBsonRef::Int32(1)), "_id: 1");
    assert_eq!(value(RawBsonRef::String("x")), "\"x\"");
}
