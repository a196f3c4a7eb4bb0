use std::ops::Bound::{Excluded, Included, Unbounded};

use super::{DamagedRange, FileScan, Range, contains, intersection, last_before, merged};

fn key(key: u8) -> Vec<u8> {
    vec![key]
}

fn damaged(from: u8, to: u8, cause: &str) -> DamagedRange {
    DamagedRange::new((Excluded(key(from)), Excluded(key(to))), cause.to_owned())
}

#[test]
fn damaged_blocks_lie_between_the_rows_around_them() {
    let mut scan = FileScan::new((Included(key(1)), Included(key(9))));
    assert_eq!(scan.row(&[1]), None);
    scan.failure("one".to_owned());
    scan.failure("the next one".to_owned());
    assert_eq!(scan.row(&[5]), Some(damaged(1, 5, "one")));
    assert_eq!(scan.row(&[6]), None);
    scan.failure("the last".to_owned());
    let end = DamagedRange::new((Excluded(key(6)), Included(key(9))), "the last".to_owned());
    assert_eq!(scan.end(), Some(end));

    let mut scan = FileScan::new((Included(key(1)), Included(key(9))));
    scan.failure("the first".to_owned());
    let first = DamagedRange::new((Included(key(1)), Excluded(key(2))), "the first".to_owned());
    assert_eq!(scan.row(&[2]), Some(first));
    assert_eq!(scan.end(), None);
}

#[test]
fn ranges_of_several_files_are_merged_where_they_overlap() {
    let ranges = vec![damaged(7, 9, "c"), damaged(1, 4, "a"), damaged(3, 6, "b"), damaged(2, 3, "a")];
    assert_eq!(merged(ranges), [damaged(1, 6, "a, b"), damaged(7, 9, "c")]);
    // Between them is a row that can be read.
    let neighbours = vec![damaged(1, 4, "a"), DamagedRange::new((Included(key(4)), Included(key(5))), "b".to_owned())];
    assert_eq!(merged(neighbours.clone()), neighbours);
}

#[test]
fn two_ranges_intersect() {
    let file = (Included(key(3)), Included(key(6)));
    let check = |range: Range, expected: Option<Range>| assert_eq!(intersection(&range, &file), expected);
    check((Unbounded, Unbounded), Some(file.clone()));
    check((Excluded(key(3)), Excluded(key(6))), Some((Excluded(key(3)), Excluded(key(6)))));
    check((Included(key(5)), Unbounded), Some((Included(key(5)), Included(key(6)))));
    check((Excluded(key(6)), Unbounded), None);
    check((Unbounded, Excluded(key(3))), None);
    check((Unbounded, Included(key(3))), Some((Included(key(3)), Included(key(3)))));
}

#[test]
fn no_stored_key_is_between_a_key_and_the_last_before_it() {
    let check = |key: &[u8], below: &[u8]| {
        let before = last_before(key);
        assert!(below < &before[..] && &before[..] < key, "{before:?}");
    };
    check(&[1, 2, 3], &[1, 2, 2, 0xff, 0xff]);
    check(&[1, 2, 0], &[1, 1, 0xff]);
    assert_eq!(last_before(&[1, 0, 0]), [1, 0]);
    check(&[1, 1], &[1, 0, 0xff]);
}

#[test]
fn a_key_is_in_a_damaged_range_or_not() {
    let ranges = [
        damaged(2, 4, "a"),
        DamagedRange::new((Included(key(6)), Included(key(7))), "b".to_owned()),
        damaged(9, 11, "c"),
    ];
    let within: Vec<u8> = (0..13).filter(|&at| contains(&ranges, &key(at))).collect();
    assert_eq!(within, [3, 6, 7, 10]);
    assert!(contains(&[DamagedRange::new((Unbounded, Unbounded), String::new())], &key(0)));
}
