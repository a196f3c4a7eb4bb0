use std::ops::{Bound, RangeBounds};

use super::{KEY_BYTES_MAX, Range, between_keys};

/// Returns a key of `bytes` bytes `x`, followed by `end`.
fn key(bytes: usize, end: &[u8]) -> Vec<u8> {
    [&vec![b'x'; bytes], end].concat()
}

#[test]
fn a_bound_that_is_cut_to_the_length_of_a_key_bounds_the_same_keys() {
    let long = [key(KEY_BYTES_MAX + 1, b""), key(KEY_BYTES_MAX, b"a"), key(KEY_BYTES_MAX - 1, b"az"), key(70_000, b"")];
    let keys = [
        key(0, b""),
        key(0, b"y"),
        key(9, b""),
        key(KEY_BYTES_MAX - 1, b""),
        key(KEY_BYTES_MAX, b""),
        key(KEY_BYTES_MAX - 1, b"a"),
        key(KEY_BYTES_MAX - 1, b"b"),
        key(KEY_BYTES_MAX - 1, b"y"),
        key(KEY_BYTES_MAX - 2, b"y"),
    ];
    let kinds = [Bound::Included, Bound::Excluded];
    for bound in long.iter().chain(&keys) {
        for kind in kinds {
            let from: Range = (kind(bound.clone()), Bound::Unbounded);
            let to: Range = (Bound::Unbounded, kind(bound.clone()));
            for range in [from, to] {
                let cut = between_keys(range.clone());
                for bytes in [&cut.0, &cut.1] {
                    assert!(!matches!(bytes, Bound::Included(key) | Bound::Excluded(key) if key.len() > KEY_BYTES_MAX));
                }
                for key in &keys {
                    let (expected, found) = (range.contains(key), cut.contains(key));
                    assert_eq!(found, expected, "key of {} and bound of {} bytes", key.len(), bound.len());
                }
            }
        }
    }
}
