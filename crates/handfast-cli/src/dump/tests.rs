use std::io::Cursor as Bytes;

use bson::{Bson, Document, RawDocumentBuf, oid::ObjectId, rawdoc};
use handfast_store::{CollectionInfo, CollectionOptions, IndexInfo, IndexSpec};

use super::layout::{Metadata, decode_name, file_name};
use super::read::Reader;

#[test]
fn names_of_files() {
    let check = |name: &str, expected: &str| {
        let file = file_name(name, 7);
        assert_eq!(file, expected);
        assert_eq!(decode_name(&file).unwrap(), name);
    };
    check("orders", "orders");
    check("fs.files-2_a", "fs.files-2_a");
    check("a/b", "a%2Fb");
    check("a%2Fb", "a%252Fb");
    check("öl", "%C3%B6l");
    check("a\\b:c*\"", "a%5Cb%3Ac%2A%22");
    check(" ", "%20");
}

#[test]
fn long_names_are_cut_and_kept_apart() {
    for name in ["x".repeat(255), "é".repeat(127), format!("{}é", "x".repeat(199))] {
        let (one, other) = (file_name(&name, 1), file_name(&name, 2));
        assert_ne!(one, other);
        assert!(one.len() <= 210, "{one}");
        assert!(decode_name(&one).is_ok() || name.contains('é'), "an escape is never cut: {one}");
        assert!(one.ends_with("%241"));
    }
}

#[test]
fn names_that_are_no_encoding() {
    for file in ["%", "a%2", "%zz", "%FF", "%é"] {
        assert!(decode_name(file).is_err(), "{file}");
    }
}

#[test]
fn metadata_keeps_the_indexes_in_their_order() {
    let spec = IndexSpec {
        unique: true,
        sparse: true,
        expire_after_seconds: Some(60),
        ..IndexSpec::new(rawdoc! { "z": 1, "a": -1 })
    };
    let partial =
        IndexSpec { partial_filter: Some(rawdoc! { "b": { "$gt": 5 } }), ..IndexSpec::new(rawdoc! { "b": 1 }) };
    let info = CollectionInfo { name: "a/b".to_owned(), options: CollectionOptions::default(), uuid: [7; 16] };
    let all: Vec<IndexInfo> =
        [IndexSpec::id(), spec.clone(), partial.clone()].into_iter().map(|spec| IndexInfo { spec }).collect();
    let text = Metadata::write(&info, &all).unwrap();
    let expected = Metadata { collection: Some("a/b".to_owned()), indexes: vec![spec, partial] };
    assert_eq!(Metadata::read(&text).unwrap(), expected);
}

#[test]
fn metadata_of_mongodump_is_read() {
    let text = r#"{"indexes":[{"v":{"$numberInt":"2"},"key":{"_id":{"$numberInt":"1"}},"name":"_id_"},
        {"v":{"$numberInt":"2"},"key":{"a":{"$numberDouble":"1.0"}},"name":"a_1","ns":"db.c"}],
        "uuid":"5c0f4a0e5c0f4a0e5c0f4a0e5c0f4a0e","collectionName":"c","type":"collection"}"#;
    let metadata = Metadata::read(text).unwrap();
    assert_eq!(metadata.indexes.iter().map(|spec| spec.name.as_str()).collect::<Vec<_>>(), ["a_1"]);
}

#[test]
fn metadata_that_cannot_be_honoured_is_refused() {
    let check = |text: &str, expected: &str| {
        let error = format!("{:#}", Metadata::read(text).unwrap_err());
        assert!(error.contains(expected), "{error}");
    };
    check("", "EOF");
    check("[]", "an object is expected");
    check(r#"{"type":"view"}"#, "a view cannot be restored");
    check(r#"{"options":{"capped":true}}"#, "the collection option 'capped' is not supported");
    check(r#"{"indexes":[1]}"#, "an index is an object");
    check(r#"{"indexes":[{"key":{"a":"text"},"name":"x","weights":{}}]}"#, "weights");
}

#[test]
fn documents_come_back_as_they_were() {
    let documents = [
        rawdoc! { "_id": ObjectId::from_bytes([1; 12]), "a": 1_i32, "b": 1_i64, "c": 1.0, "z": "x", "y": [1, { "n": null }] },
        rawdoc! { "_id": 2, "nan": f64::NAN, "inf": f64::INFINITY, "date": bson::DateTime::from_millis(-1) },
        rawdoc! {},
    ];
    let bytes: Vec<u8> = documents.iter().flat_map(|document| document.as_bytes().to_vec()).collect();
    assert_eq!(read(Reader::bson(Bytes::new(bytes))).unwrap(), documents);

    let mut lines = String::new();
    for document in &documents {
        let value = Bson::Document(Document::try_from(document.clone()).unwrap()).into_canonical_extjson();
        lines.push_str(&format!("{value}\n\n"));
    }
    assert_eq!(read(Reader::json(Bytes::new(lines.into_bytes()))).unwrap(), documents);
}

#[test]
fn files_that_are_no_documents_are_refused() {
    let whole = rawdoc! { "a": "text" }.into_bytes();
    for end in 1..whole.len() {
        assert!(read(Reader::bson(Bytes::new(whole[..end].to_vec()))).is_err(), "cut after {end} bytes");
    }
    let check = |bytes: &[u8], expected: &str| {
        let error = format!("{:#}", read(Reader::bson(Bytes::new(bytes.to_vec()))).unwrap_err());
        assert!(error.contains(expected), "{error}");
    };
    check(&[0xff; 16], "this is no BSON");
    check(&[0x00, 0x00, 0x00, 0x7f, 0], "this is no BSON, or too long");
    check(&[4, 0, 0, 0], "this is no BSON");
    let check = |text: &str, expected: &str| {
        let error = format!("{:#}", read(Reader::json(Bytes::new(text.as_bytes().to_vec()))).unwrap_err());
        assert!(error.contains(expected), "{error}");
    };
    check("{", "EOF");
    check("[]", "no object");
    check("{\"a\": 1} {\"b\": 2}", "trailing characters");
    check(&"{\"a\":".repeat(10_000), "recursion limit");
}

fn read<F: std::io::BufRead>(mut reader: Reader<F>) -> anyhow::Result<Vec<RawDocumentBuf>> {
    let mut documents = Vec::new();
    loop {
        let batch = reader.batch()?;
        if batch.is_empty() {
            return Ok(documents);
        }
        documents.extend(batch);
    }
}
