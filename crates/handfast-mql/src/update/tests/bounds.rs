//! What an update makes is bounded before it is made: a few bytes must not ask for terabytes.

use super::*;
use crate::depth::DOCUMENT_BYTES_MAX;
use crate::filter::Filter;

/// A thousand times the same element.
fn thousand(element: impl Into<Bson>) -> Document {
    doc! { "a": vec![element.into(); 1000] }
}

/// 15 MB of text.
fn large() -> String {
    "x".repeat(15_000_000)
}

#[track_caller]
fn too_large(document: Document, update: Document) {
    let filter = Filter::compile(&raw(&document), &CompileOptions::default()).unwrap();
    let refused = PLAIN.run(&document, &update).expect_err("it is too large");
    assert_eq!(refused.code(), Code(17419));
    assert_eq!(refused.message(), "Resulting document after update is larger than 16777216");
    let update = Update::compile(UpdateSource::Document(&raw(&update)), &UpdateOptions::default()).unwrap();
    let refused = update.upsert(&filter, &context()).expect_err("it is too large");
    assert_eq!(refused.code(), Code(17420));
    assert_eq!(refused.message(), "Document to upsert is larger than 16777216");
}

#[test]
fn a_document_may_be_as_large_as_can_be_stored() {
    let overhead = raw(&doc! { "a": "", "b": "" }).as_bytes().len();
    let document = doc! { "a": "x".repeat(DOCUMENT_BYTES_MAX - overhead - 100) };
    let largest = PLAIN.run(&document, &doc! { "$set": { "b": "x".repeat(100) } }).unwrap();
    assert_eq!(largest.document.as_bytes().len(), DOCUMENT_BYTES_MAX);
    too_large(document, doc! { "$set": { "b": "x".repeat(101) } });
}

#[test]
fn arrays_are_not_padded_in_every_element() {
    too_large(thousand(Bson::Array(Vec::new())), doc! { "$set": { "a.$[].1500000": 1 } });
    // What fits is padded.
    let padded = PLAIN.run(&thousand(Bson::Array(Vec::new())), &doc! { "$set": { "a.$[].9": 1 } }).unwrap();
    assert_eq!(
        padded.document,
        raw(&thousand({
            let mut row = vec![Bson::Null; 9];
            row.push(Bson::Int32(1));
            Bson::Array(row)
        }))
    );
}

#[test]
fn an_operand_is_not_copied_into_every_element() {
    too_large(thousand(0), doc! { "$set": { "a.$[]": large() } });
    too_large(thousand(0), doc! { "$max": { "a.$[]": large() } });
    too_large(thousand(doc! { "b": 1 }), doc! { "$set": { "a.$[].b": large() } });
    too_large(thousand(doc! {}), doc! { "$set": { "a.$[].b": large() } });
    too_large(thousand(Bson::Array(Vec::new())), doc! { "$push": { "a.$[]": large() } });
    too_large(thousand(Bson::Array(Vec::new())), doc! { "$addToSet": { "a.$[]": large() } });
}

#[test]
fn many_values_are_not_put_into_every_array() {
    let values: Vec<String> = (0..1000).map(|number| format!("{number:015000}")).collect();
    let each = || doc! { "$each": values.clone() };
    too_large(thousand(Bson::Array(Vec::new())), doc! { "$push": { "a.$[]": each() } });
    too_large(thousand(Bson::Array(Vec::new())), doc! { "$addToSet": { "a.$[]": each() } });
    too_large(thousand(doc! {}), doc! { "$push": { "a.$[].b": each() } });
    too_large(thousand(doc! {}), doc! { "$addToSet": { "a.$[].b": each() } });
}

#[test]
fn what_is_cut_off_again_takes_no_room() {
    let values: Vec<String> = (0..30).map(|number| format!("{number:01000}")).collect();
    let cut = |slice: i32| doc! { "$push": { "a.$[]": { "$each": values.clone(), "$slice": slice } } };
    let empty = thousand(Bson::Array(Vec::new()));
    PLAIN.check(empty.clone(), cut(2), thousand(Bson::from(values[..2].to_vec())));
    PLAIN.check(empty, cut(-1), thousand(Bson::from(values[29..].to_vec())));
}

#[test]
fn documents_are_not_nested_in_every_element() {
    let rows = doc! { "a": vec![Bson::Document(doc! {}); 10_000] };
    let path = format!("a.$[].{}", vec!["b".repeat(1000); 90].join("."));
    too_large(rows, doc! { "$set": { path: 1 } });
}
