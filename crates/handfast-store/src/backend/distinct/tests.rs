use bson::{RawBson, RawDocumentBuf, rawdoc};

use super::{DISTINCT_TOO_BIG, DistinctValues};

fn check(path: &str, documents: &[RawDocumentBuf], expected: &[RawBson]) {
    let mut values = DistinctValues::new(path);
    for document in documents {
        values.add(document).expect("small");
    }
    assert_eq!(values.finish(), expected, "{path}");
}

#[test]
fn values_are_returned_once_and_in_order() {
    let documents = [rawdoc! { "a": "x" }, rawdoc! { "a": 2 }, rawdoc! { "a": 1.0 }, rawdoc! { "a": 1 }, rawdoc! {}];
    check("a", &documents, &[1.0.into(), 2.into(), "x".into()]);
    check("a", &[rawdoc! { "a": null }, rawdoc! {}], &[RawBson::Null]);
}

#[test]
fn arrays_stand_for_their_elements() {
    check("a", &[rawdoc! { "a": [2, 1, 2] }, rawdoc! { "a": [] }], &[1.into(), 2.into()]);
    check("a", &[rawdoc! { "a": [[1, 2]] }], &[bson::rawbson!([1, 2])]);
    check("a.b", &[rawdoc! { "a": [{ "b": 1 }, { "b": [3, 2] }, 7] }], &[1.into(), 2.into(), 3.into()]);
    check("a.0", &[rawdoc! { "a": [5, 6] }], &[5.into()]);
}

#[test]
fn more_than_a_reply_holds_is_refused() {
    let mut values = DistinctValues::new("a");
    let mut refused = None;
    for n in 0..20 {
        if let Err(error) = values.add(&rawdoc! { "a": n.to_string() + &"x".repeat(1 << 20) }) {
            refused = Some(error.code());
            break;
        }
    }
    assert_eq!(refused, Some(DISTINCT_TOO_BIG));
}
