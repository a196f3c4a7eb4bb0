//! Checks any bytes as a document: recursive code can read an accepted one. The key of each of its values is decoded to the same
//! value, and keys are ordered as the values are.
#![no_main]

use bson::RawDocument;
use handfast_mql::key::{Direction, TypeBits, decode, encode_typed};
use handfast_mql::{depth, order};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if depth::check(bytes, depth::Limits::default()).is_err() {
        return;
    }
    let document = RawDocument::from_bytes(bytes).expect("checked");
    assert!(order::compare_documents(document, document).is_eq());
    let mut before: Option<(bson::RawBsonRef<'_>, Vec<u8>)> = None;
    for element in document.iter() {
        let (_, value) = element.expect("checked");
        let (mut key, mut bits) = (Vec::new(), TypeBits::default());
        encode_typed(value, Direction::Ascending, &mut key, &mut bits);
        let again = decode(&key, &bits, &[Direction::Ascending]).expect("what we wrote we can read");
        assert!(order::compare(value, again[0].as_raw_bson_ref()).is_eq());
        if let Some((other, other_key)) = &before {
            assert_eq!(order::compare(*other, value), other_key.cmp(&key));
        }
        before = Some((value, key));
    }
});
