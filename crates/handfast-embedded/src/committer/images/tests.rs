//! Every change that a snapshot has not seen is known, or it is known that it is not.

use handfast_store::CommitTimestamp;

use super::{IMAGE_OVERHEAD_BYTES, Images};
use crate::format::CollectionId;

const C: CollectionId = CollectionId(1);

fn at(timestamp: u64) -> CommitTimestamp {
    CommitTimestamp(timestamp)
}

/// A log of at most so many images of one byte, which has commits 11, 12, ..
fn log(images_max: usize, commits: std::ops::Range<u8>) -> Images {
    let mut images = Images::new(images_max * (1 + IMAGE_OVERHEAD_BYTES));
    images.want(at(10));
    for commit in commits {
        images.note(at(commit.into()), C, &[commit]);
    }
    images
}

fn since(images: &Images, snapshot: u64, wanted: u8) -> Option<bool> {
    images.since(at(snapshot), C, |document| Ok(document == [wanted])).unwrap()
}

#[test]
fn nothing_is_kept_until_somebody_asks() {
    let mut images = Images::new(1 << 20);
    images.note(at(9), C, b"x");
    assert_eq!(since(&images, 10, b'x'), None);
    images.want(at(10));
    assert_eq!(since(&images, 9, b'x'), None, "older than the log");
    assert_eq!(since(&images, 10, b'x'), Some(false));
    images.note(at(11), C, b"x");
    assert_eq!(since(&images, 10, b'x'), Some(true));
    assert_eq!(since(&images, 11, b'x'), Some(false));
    images.want(at(11));
    assert_eq!(since(&images, 10, b'x'), Some(true), "once asked for, it is kept from the first time on");
}

#[test]
fn other_collections_and_earlier_commits_do_not_count() {
    let mut images = log(10, 11..14);
    images.note(at(14), CollectionId(2), &[99]);
    assert_eq!(since(&images, 10, 99), Some(false));
    assert_eq!(since(&images, 11, 11), Some(false));
    assert_eq!(since(&images, 11, 12), Some(true));
}

#[test]
fn beyond_its_bound_the_log_knows_what_it_does_not_know() {
    let images = log(3, 11..16);
    assert_eq!((images.kept.len(), images.bytes), (3, images.bytes_max));
    assert_eq!(since(&images, 11, 12), None, "commit 12 is forgotten");
    assert_eq!(since(&images, 12, 13), Some(true));
    assert_eq!(since(&images, 12, 12), Some(false));
    // An image that is too large by itself.
    let mut images = log(3, 11..12);
    images.note(at(12), C, &[0; 1000]);
    assert_eq!((images.kept.len(), images.bytes), (0, 0));
    assert_eq!((since(&images, 11, 0), since(&images, 12, 0)), (None, Some(false)));
}

#[test]
fn what_no_snapshot_needs_is_forgotten() {
    let mut images = log(10, 11..16);
    images.forget_before(at(13));
    assert_eq!(images.kept.len(), 2);
    assert_eq!((since(&images, 12, 15), since(&images, 13, 15)), (None, Some(true)));
}

#[test]
fn an_operation_that_is_taken_back_takes_its_images_and_no_other() {
    let mut images = log(10, 11..14);
    images.note(at(14), C, &[1]);
    images.note(at(14), C, &[2]);
    images.take_back(at(13));
    assert_eq!((since(&images, 10, 1), since(&images, 10, 13)), (Some(false), Some(true)));
    // Its timestamp goes to the next one.
    images.note(at(14), C, &[3]);
    assert_eq!(since(&images, 13, 3), Some(true));
    // One that pushed others out of the log leaves the gap behind.
    let mut images = log(3, 11..14);
    for _ in 0..5 {
        images.note(at(14), C, &[1]);
    }
    images.take_back(at(13));
    assert_eq!((images.kept.len(), images.bytes), (0, 0));
    assert_eq!((since(&images, 10, 11), since(&images, 13, 1)), (None, None));
    images.note(at(14), C, &[3]);
    images.note(at(15), C, &[4]);
    assert_eq!((since(&images, 13, 3), since(&images, 14, 4)), (None, Some(true)));
}
