use bson::{RawBson, rawdoc};
use proptest::prelude::*;

use super::*;

#[test]
fn the_bytes_equal_those_of_the_bson_crate() {
    let inner = rawdoc! { "x": [1, 2] };
    let mut writer = Writer::new();
    writer.put("a", 1).put("b", 2_i64).put("c", 0.5).put("d", true).put("e", "text").put("f", &inner).put("g", ());
    writer.begin_document("h").array("i", ["p", "q"]).end();
    writer.put_any("j", RawBsonRef::Int32(9)).put_all(&rawdoc! { "k": 1, "l": "m" });
    let expected = rawdoc! {
        "a": 1, "b": 2_i64, "c": 0.5, "d": true, "e": "text", "f": inner, "g": RawBson::Null,
        "h": { "i": ["p", "q"] }, "j": 9, "k": 1, "l": "m",
    };
    assert_eq!(writer.finish(), expected);
}

#[test]
fn finish_closes_open_documents_and_arrays() {
    let mut writer = Writer::new();
    writer.begin_document("a").begin_array("b").put("0", 1);
    assert_eq!(writer.finish(), rawdoc! { "a": { "b": [1] } });
    let mut writer = Writer::new();
    writer.end().end().put("a", 1);
    assert_eq!(writer.finish(), rawdoc! { "a": 1 });
    assert_eq!(Writer::new().finish(), rawdoc! {});
}

#[test]
fn a_zero_byte_in_a_name_does_not_end_it() {
    let mut writer = Writer::new();
    writer.put("a\0b", 1);
    assert_eq!(writer.finish(), rawdoc! { "ab": 1 });
}

proptest! {
    #[test]
    fn decimals_equal_those_of_the_standard_library(number in any::<usize>()) {
        let mut digits = [0; 20];
        prop_assert_eq!(decimal(number, &mut digits), number.to_string());
    }
}
