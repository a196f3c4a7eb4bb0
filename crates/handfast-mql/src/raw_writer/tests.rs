use bson::{RawDocumentBuf, rawdoc};

use super::*;
use crate::element::{elements, find, tests::every_type};

#[test]
fn copied_elements_give_the_same_document() {
    let document = every_type();
    let mut bytes = Vec::new();
    let mut writer = RawWriter::new(&mut bytes);
    for element in elements(&document) {
        writer.copy(element.unwrap());
    }
    assert_eq!(writer.document_bytes(), document.as_bytes().len());
    writer.finish().unwrap();
    assert_eq!(bytes, document.as_bytes());
}

#[test]
fn appended_values_have_the_bytes_of_the_library() {
    let document = every_type();
    let mut bytes = Vec::new();
    let mut writer = RawWriter::new(&mut bytes);
    for field in document.iter() {
        let (name, value) = field.unwrap();
        writer.append(name.as_str(), value);
    }
    writer.finish().unwrap();
    assert_eq!(bytes, document.as_bytes());
}

#[test]
fn nested_documents_get_their_lengths() {
    let source = rawdoc! { "x": 1 };
    let element = find(&source, "x").unwrap().unwrap();
    let mut bytes = Vec::new();
    let mut writer = RawWriter::new(&mut bytes);
    let mut inner = writer.nested(ElementType::Array, "list");
    let mut name = IndexName::new();
    inner.copy_as(name.text(0), element);
    inner.copy_as(name.text(1), element);
    inner.finish().unwrap();
    writer.copy(element);
    writer.finish().unwrap();
    assert_eq!(RawDocumentBuf::from_bytes(bytes).unwrap(), rawdoc! { "list": [1, 1], "x": 1 });
}

#[test]
fn index_names_are_decimal_numbers() {
    let mut name = IndexName::new();
    for index in [0, 9, 10, 1_499_999, usize::MAX] {
        assert_eq!(name.text(index), index.to_string());
    }
}
