use bson::rawdoc;
use handfast_store::{CollectionInfo, CollectionOptions, IndexInfo, IndexSpec};

use super::arguments::DumpFormat;
use super::layout::{Metadata, collection_file_name, decode_name, file_name};

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
fn no_documents_look_like_metadata() {
    let check = |name: &str, format: DumpFormat, expected: &str| {
        let file = collection_file_name(name, 7, format);
        assert_eq!(file, expected);
        assert_eq!(decode_name(&file).unwrap(), name);
    };
    check("con.metadata", DumpFormat::Json, "con%2Emetadata");
    check("con.metadata", DumpFormat::Bson, "con.metadata");
    check("con.metadata.json", DumpFormat::Json, "con.metadata.json");
    check("metadata", DumpFormat::Json, "metadata");
    check("con.Metadata", DumpFormat::Json, "con.Metadata");
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
    let expected =
        Metadata { collection: Some("a/b".to_owned()), indexes: vec![spec, partial], options: info.options.clone() };
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
    check(r#"{"type":"timeseries"}"#, "a timeseries cannot be restored");
    check(r#"{"type":"view"}"#, "the options are not those of a view");
    check(r#"{"type":"view","options":{"viewOn":1,"pipeline":[]}}"#, "the collection option 'viewOn' is invalid");
    check(r#"{"options":{"capped":true}}"#, "the collection option 'capped' is not supported");
    check(r#"{"indexes":[1]}"#, "an index is an object");
    check(r#"{"indexes":[{"key":{"a":"text"},"name":"x","weights":{}}]}"#, "weights");
}
