use super::*;
use bson::{RawDocumentBuf, rawdoc};

/// Returns the values at a path as text: `value@index`, `missing`.
fn shown(path: &str, document: &RawDocumentBuf, trailing_array: TrailingArray) -> Vec<String> {
    let mut shown = Vec::new();
    let _: ControlFlow<()> = Path::new(path).visit(document, trailing_array, &mut |visited| {
        let value = visited
            .value
            .map_or("missing".into(), |value| bson::Bson::try_from(value).unwrap().to_string().replace([' ', '"'], ""));
        shown.push(match visited.array_index {
            Some(index) => format!("{value}@{index}"),
            None => value,
        });
        ControlFlow::Continue(())
    });
    shown
}

#[test]
fn paths_visit_the_elements_of_arrays() {
    let cases: &[(&str, RawDocumentBuf, &[&str])] = &[
        ("a", rawdoc! { "a": 1 }, &["1"]),
        ("a", rawdoc! { "b": 1 }, &["missing"]),
        ("a.b", rawdoc! { "a": { "b": 1 } }, &["1"]),
        ("a.b", rawdoc! { "a": { "c": 1 } }, &["missing"]),
        ("a.b", rawdoc! { "a": 5 }, &["missing"]),
        ("a.b", rawdoc! {}, &["missing"]),
        ("a.b", rawdoc! { "a": [{ "b": 1 }, { "c": 1 }, 5] }, &["1@0", "missing@1"]),
        ("a.b", rawdoc! { "a": [] }, &[]),
        ("a.b", rawdoc! { "a": [5, [{ "b": 1 }]] }, &[]),
        ("a", rawdoc! { "a": [1, [2]] }, &["1@0", "[2]@1", "[1,[2]]"]),
        ("a.b", rawdoc! { "a": [{ "b": [1, 2] }] }, &["1@0", "2@0", "[1,2]@0"]),
        ("a.0", rawdoc! { "a": [7, 8] }, &["7@0"]),
        ("a.2", rawdoc! { "a": [7, 8] }, &[]),
        ("a.00", rawdoc! { "a": [7, 8] }, &[]),
        ("a.1", rawdoc! { "a": [5, [2, 4], 3] }, &["[2,4]@1"]),
        ("a.1", rawdoc! { "a": [5, { "1": 4 }, 3] }, &["4@1", "{1:4}@1"]),
        ("a.1.b", rawdoc! { "a": [5, { "b": 4 }, 3] }, &["missing@1", "4@1"]),
        ("a.1.b", rawdoc! { "a": [5, [{ "b": 4 }], 3] }, &["4@1"]),
        ("a.0.0", rawdoc! { "a": [[7, 8]] }, &["7@0"]),
        ("a.0.b", rawdoc! { "a": [5] }, &[]),
        ("a.0", rawdoc! { "a": { "0": 6 } }, &["6"]),
        ("", rawdoc! { "": 6 }, &["6"]),
        ("a.", rawdoc! { "a": { "": 6 } }, &["6"]),
    ];
    for (path, document, expected) in cases {
        assert_eq!(shown(path, document, TrailingArray::Elements), *expected, "{path} {document:?}");
    }
}

#[test]
fn whole_arrays_are_visited_once() {
    assert_eq!(shown("a", &rawdoc! { "a": [1, 2] }, TrailingArray::Whole), ["[1,2]"]);
    assert_eq!(shown("a.b", &rawdoc! { "a": [{ "b": [1, 2] }] }, TrailingArray::Whole), ["[1,2]@0"]);
}

#[test]
fn resolving_takes_numbers_as_indexes() {
    let document = rawdoc! { "a": [{ "b": 1 }, { "b": 2 }] };
    assert_eq!(Path::new("a.1.b").resolve(&document), Some(RawBsonRef::Int32(2)));
    assert_eq!(Path::new("a.b").resolve(&document), None);
    assert_eq!(Path::new("a.2").resolve(&document), None);
}

#[test]
fn an_index_has_no_sign_and_no_leading_zero() {
    for (name, index) in
        [("0", Some(0)), ("10", Some(10)), ("01", None), ("", None), ("-1", None), ("+1", None), ("1a", None)]
    {
        assert_eq!(array_index(name), index, "{name}");
    }
    assert_eq!(array_index("99999999999999999999999"), None);
}
