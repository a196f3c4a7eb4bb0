use bson::oid::ObjectId;
use bson::{DateTime, RawDocumentBuf, Timestamp, rawdoc};

fn check(document: RawDocumentBuf, expected: &str) {
    assert_eq!(super::document(&document), expected);
}

#[test]
fn documents_are_formatted_as_in_mongodbs_messages() {
    check(rawdoc! {}, "{}");
    check(rawdoc! { "a": 1 }, "{ a: 1 }");
    check(rawdoc! { "a": 1.0, "b": 1.5, "c": 7_i64 }, "{ a: 1.0, b: 1.5, c: 7 }");
    check(rawdoc! { "a": f64::NAN, "b": f64::NEG_INFINITY }, "{ a: nan.0, b: -inf.0 }");
    check(rawdoc! { "a": "x", "b.c": null }, "{ a: \"x\", b.c: null }");
    check(rawdoc! { "_id": { "x": [1, true, []] } }, "{ _id: { x: [ 1, true, [] ] } }");
    check(
        rawdoc! { "_id": ObjectId::from_bytes([1; 12]), "t": DateTime::from_millis(5) },
        "{ _id: ObjectId('010101010101010101010101'), t: new Date(5) }",
    );
    check(rawdoc! { "t": Timestamp { time: 1, increment: 2 } }, "{ t: Timestamp(1, 2) }");
    let bytes = bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![0xab, 1] };
    check(rawdoc! { "b": bytes }, "{ b: BinData(0, AB01) }");
}

#[test]
fn long_strings_are_cut_between_characters() {
    let text = super::document(&rawdoc! { "a": "ä".repeat(200) });
    assert_eq!(text, format!("{{ a: \"{}...\" }}", "ä".repeat(150)));
}

#[test]
fn deep_documents_are_cut() {
    let mut deep = rawdoc! {};
    for _ in 0..50 {
        deep = rawdoc! { "a": deep };
    }
    let text = super::document(&deep);
    assert!(text.contains("..."), "{text}");
    assert!(text.len() < 200, "{text}");
}
