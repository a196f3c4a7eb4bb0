//! Records are read as they were written, or fail.

use bson::rawdoc;
use handfast_store::CommitTimestamp;

use super::{
    CollectionId, IndexId, MetadataKey, StoredDocument, Verify, document_key, document_value, index_key, index_value,
    open_index_entry,
};

#[test]
fn every_flipped_bit_of_a_record_is_found() {
    let document = rawdoc! { "_id": 1, "text": "something" };
    let key = document_key(CollectionId(3), b"key").unwrap();
    let value = document_value(&key, CommitTimestamp(77), document.as_bytes());
    let stored = StoredDocument::open(&key, value.clone().into(), Verify::Checksums).unwrap();
    assert_eq!((stored.timestamp, stored.document().unwrap()), (CommitTimestamp(77), &*document));
    for bit in 0..value.len() * 8 {
        let mut flipped = value.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(StoredDocument::open(&key, flipped.into(), Verify::Checksums).is_err(), "bit {bit}");
    }
    for bit in 0..key.len() * 8 {
        let mut flipped = key.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let moved = StoredDocument::open(&flipped, value.clone().into(), Verify::Checksums);
        assert!(moved.is_err(), "bit {bit} of the key");
    }
}

#[test]
fn a_reader_that_does_not_verify_finds_no_flipped_bit() {
    let key = document_key(CollectionId(3), b"key").unwrap();
    let mut value = document_value(&key, CommitTimestamp(1), rawdoc! { "a": "x" }.as_bytes());
    let place = value.iter().rposition(|&byte| byte == b'x').unwrap();
    value[place] = b'y';
    let stored = StoredDocument::open(&key, value.clone().into(), Verify::Nothing).unwrap();
    assert_eq!(stored.document().unwrap(), &*rawdoc! { "a": "y" });
    assert!(StoredDocument::open(&key, value.into(), Verify::Checksums).is_err());
}

#[test]
fn an_index_entry_is_decoded_into_its_parts() {
    let key = index_key(CollectionId(1), IndexId(2), b"encoded", b"id").unwrap();
    let value = index_value(&key, b"encoded");
    assert_eq!(open_index_entry(&key, &value, Verify::Checksums).unwrap(), (&b"encoded"[..], &b"id"[..]));
    for bit in 0..value.len() * 8 {
        let mut flipped = value.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(open_index_entry(&key, &flipped, Verify::Checksums).is_err(), "bit {bit}");
    }
}

#[test]
fn keys_sort_by_collection_then_value() {
    let key = |collection, id: &[u8]| document_key(CollectionId(collection), id).unwrap();
    assert!(key(1, b"zzz") < key(2, b"a"));
    assert!(key(255, b"z") < key(256, b"a"));
    assert!(document_key(CollectionId(1), &vec![0; 70_000]).is_none());
}

#[test]
fn keys_of_dropped_collections_and_indexes_are_decoded() {
    for dropped in [MetadataKey::Dropped(CollectionId(9)), MetadataKey::DroppedIndex(CollectionId(9), IndexId(4))] {
        assert_eq!(MetadataKey::decode_dropped(&dropped.encode()), Some(dropped));
    }
    assert_eq!(MetadataKey::decode_dropped(b"dxx"), None);
}
