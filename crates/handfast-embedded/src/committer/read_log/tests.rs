//! The log has every change after a snapshot, or reports that it may be incomplete.

use handfast_store::CommitTimestamp;

use super::{IMAGE_OVERHEAD_BYTES, ReadLog};
use crate::format::CollectionId;

const C: CollectionId = CollectionId(1);

fn at(timestamp: u64) -> CommitTimestamp {
    CommitTimestamp(timestamp)
}

/// Returns a log that has space for `images_max` documents of one byte, with commits 11, 12, ..
fn log_of(images_max: usize, commits: std::ops::Range<u8>) -> ReadLog {
    let mut log = ReadLog::new(images_max * (1 + IMAGE_OVERHEAD_BYTES));
    log.start(at(10));
    for commit in commits {
        log.record(at(commit.into()), C, &[commit]);
    }
    log
}

fn since(log: &ReadLog, snapshot: u64, wanted: u8) -> Option<bool> {
    log.any_since(at(snapshot), C, |document| Ok(document == [wanted])).unwrap()
}

#[test]
fn the_log_is_empty_until_it_is_started() {
    let mut log = ReadLog::new(1 << 20);
    log.record(at(9), C, b"x");
    assert_eq!(since(&log, 10, b'x'), None);
    log.start(at(10));
    assert_eq!(since(&log, 9, b'x'), None, "older than the log");
    assert_eq!(since(&log, 10, b'x'), Some(false));
    log.record(at(11), C, b"x");
    assert_eq!(since(&log, 10, b'x'), Some(true));
    assert_eq!(since(&log, 11, b'x'), Some(false));
    log.start(at(11));
    assert_eq!(since(&log, 10, b'x'), Some(true), "once asked for, it is kept from the first time on");
}

#[test]
fn other_collections_and_earlier_commits_do_not_count() {
    let mut log = log_of(10, 11..14);
    log.record(at(14), CollectionId(2), &[99]);
    assert_eq!(since(&log, 10, 99), Some(false));
    assert_eq!(since(&log, 11, 11), Some(false));
    assert_eq!(since(&log, 11, 12), Some(true));
}

#[test]
fn beyond_its_bound_the_log_says_that_it_is_incomplete() {
    let log = log_of(3, 11..16);
    assert_eq!((log.kept.len(), log.bytes), (3, log.bytes_max));
    assert_eq!(since(&log, 11, 12), None, "commit 12 is forgotten");
    assert_eq!(since(&log, 12, 13), Some(true));
    assert_eq!(since(&log, 12, 12), Some(false));
    // The image is larger than the whole log.
    let mut log = log_of(3, 11..12);
    log.record(at(12), C, &[0; 1000]);
    assert_eq!((log.kept.len(), log.bytes), (0, 0));
    assert_eq!((since(&log, 11, 0), since(&log, 12, 0)), (None, Some(false)));
}

#[test]
fn images_that_no_snapshot_needs_are_forgotten() {
    let mut log = log_of(10, 11..16);
    log.forget_before(at(13));
    assert_eq!(log.kept.len(), 2);
    assert_eq!((since(&log, 12, 15), since(&log, 13, 15)), (None, Some(true)));
}

#[test]
fn the_roll_back_of_an_operation_removes_its_images_and_no_others() {
    let mut log = log_of(10, 11..14);
    log.record(at(14), C, &[1]);
    log.record(at(14), C, &[2]);
    log.roll_back(at(13));
    assert_eq!((since(&log, 10, 1), since(&log, 10, 13)), (Some(false), Some(true)));
    // The next operation gets the same timestamp.
    log.record(at(14), C, &[3]);
    assert_eq!(since(&log, 13, 3), Some(true));
    // An operation that removed earlier images from the log leaves a gap when it is rolled back.
    let mut log = log_of(3, 11..14);
    for _ in 0..5 {
        log.record(at(14), C, &[1]);
    }
    log.roll_back(at(13));
    assert_eq!((log.kept.len(), log.bytes), (0, 0));
    assert_eq!((since(&log, 10, 11), since(&log, 13, 1)), (None, None));
    log.record(at(14), C, &[3]);
    log.record(at(15), C, &[4]);
    assert_eq!((since(&log, 13, 3), since(&log, 14, 4)), (None, Some(true)));
}
