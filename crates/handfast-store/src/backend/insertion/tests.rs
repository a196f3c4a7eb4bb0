use bson::raw::cstr;
use bson::{Bson, RawBson, RawDocumentBuf, Regex, rawdoc};
use handfast_mql::Code;

use super::{DOCUMENT_BYTES_MAX, prepare};
use crate::CountingIds;

fn prepared(document: RawDocumentBuf) -> crate::Result<RawDocumentBuf> {
    prepare(document, &CountingIds::new())
}

fn refused(document: RawDocumentBuf, code: Code) {
    let shown = format!("{document:?}");
    match prepared(document) {
        Err(error) => assert_eq!(error.code(), code, "{shown}"),
        Ok(_) => panic!("{shown} was accepted"),
    }
}

#[test]
fn a_document_with_its_id_first_stays_as_it_is() {
    let document = rawdoc! { "_id": 1, "a": 1 };
    assert_eq!(prepared(document.clone()).expect("ok"), document);
}

#[test]
fn an_id_is_generated_or_moved_to_the_front() {
    let made = prepared(rawdoc! { "a": 1 }).expect("ok");
    let names: Vec<_> = made.iter().map(|element| element.expect("BSON").0.as_str().to_owned()).collect();
    assert_eq!(names, ["_id", "a"]);
    assert_eq!(made.get_object_id("_id").expect("an id").to_hex(), "000000000000000000000001");

    let moved = prepared(rawdoc! { "a": 1, "_id": "x", "b": 2 }).expect("ok");
    assert_eq!(moved, rawdoc! { "_id": "x", "a": 1, "b": 2 });
}

#[test]
fn values_that_cannot_be_an_id_are_refused() {
    refused(rawdoc! { "_id": [1] }, Code::InvalidIdField);
    refused(rawdoc! { "_id": RawBson::RegularExpression(regex()) }, Code::InvalidIdField);
    refused(rawdoc! { "_id": RawBson::try_from(Bson::Undefined).expect("valid") }, Code::InvalidIdField);
    refused(rawdoc! { "_id": { "$a": 1 } }, Code::DollarPrefixedFieldName);
    refused(rawdoc! { "_id": 1, "b": 1, "_id": 2 }, Code::BadValue);
    for accepted in [rawdoc! { "_id": null }, rawdoc! { "_id": { "a": [1] } }, rawdoc! { "_id": 1.5 }] {
        prepared(accepted).expect("accepted");
    }
}

#[test]
fn documents_over_sixteen_mebibytes_are_refused() {
    let overhead = rawdoc! { "_id": 1, "a": "" }.as_bytes().len();
    let fits = rawdoc! { "_id": 1, "a": "x".repeat(DOCUMENT_BYTES_MAX - overhead) };
    assert_eq!(fits.as_bytes().len(), DOCUMENT_BYTES_MAX);
    prepared(fits).expect("fits");
    refused(rawdoc! { "_id": 1, "a": "x".repeat(DOCUMENT_BYTES_MAX - overhead + 1) }, Code::BSONObjectTooLarge);
}

#[test]
fn documents_over_a_hundred_levels_are_refused() {
    let nested = |levels| (1..levels).fold(rawdoc! {}, |inner, _| rawdoc! { "a": inner });
    prepared(nested(100)).expect("100 levels");
    assert!(prepared(nested(102)).is_err());
}

fn regex() -> Regex {
    Regex { pattern: cstr!("a").into(), options: cstr!("").into() }
}
