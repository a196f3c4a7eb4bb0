use std::ops::Bound::{Excluded, Included, Unbounded};

use super::*;

fn key(key: u8) -> Vec<u8> {
    vec![key]
}

fn hole(from: u8, to: u8, cause: &str) -> Hole {
    Hole::new((Excluded(key(from)), Excluded(key(to))), cause.to_owned())
}

#[test]
fn damaged_blocks_lie_between_the_rows_around_them() {
    let mut gathering = Gathering::new((Included(key(1)), Included(key(9))));
    assert_eq!(gathering.row(&[1]), None);
    gathering.failure("one".to_owned());
    gathering.failure("the next one".to_owned());
    assert_eq!(gathering.row(&[5]), Some(hole(1, 5, "one")));
    assert_eq!(gathering.row(&[6]), None);
    gathering.failure("the last".to_owned());
    let end = Hole::new((Excluded(key(6)), Included(key(9))), "the last".to_owned());
    assert_eq!(gathering.end(), Some(end));

    let mut gathering = Gathering::new((Included(key(1)), Included(key(9))));
    gathering.failure("the first".to_owned());
    let first = Hole::new((Included(key(1)), Excluded(key(2))), "the first".to_owned());
    assert_eq!(gathering.row(&[2]), Some(first));
    assert_eq!(gathering.end(), None);
}

#[test]
fn holes_of_several_files_are_put_together_where_they_overlap() {
    let holes = vec![hole(7, 9, "c"), hole(1, 4, "a"), hole(3, 6, "b"), hole(2, 3, "a")];
    assert_eq!(merged(holes), [hole(1, 6, "a, b"), hole(7, 9, "c")]);
    // Between them is a row that can be read.
    let beside = vec![hole(1, 4, "a"), Hole::new((Included(key(4)), Included(key(5))), "b".to_owned())];
    assert_eq!(merged(beside.clone()), beside);
}

#[test]
fn what_ranges_have_in_common() {
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
fn nothing_of_ours_is_between_a_key_and_the_last_before_it() {
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
fn a_key_is_in_a_hole_or_not() {
    let holes = [hole(2, 4, "a"), Hole::new((Included(key(6)), Included(key(7))), "b".to_owned()), hole(9, 11, "c")];
    let within: Vec<u8> = (0..13).filter(|&at| has(&holes, &key(at))).collect();
    assert_eq!(within, [3, 6, 7, 10]);
    assert!(has(&[Hole::new((Unbounded, Unbounded), String::new())], &key(0)));
}
