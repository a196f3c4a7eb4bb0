//! The old versions that are kept with a document depend on their bytes and on the snapshots that are read.

use bson::{RawDocumentBuf, rawdoc};

use super::super::{
    Body, HistoryNeeds, Lock, ReadResult, Row, Step, Timestamp, VERSION_BYTES_MAX, VERSIONS_MAX, commit, prewrite,
    read_at,
};
use super::{NOTHING, ReadFrom, missing, put};

/// Returns the row after commits of these versions at 11, 21, .., none of which is read.
fn after_versions(row: Row, bodies: impl IntoIterator<Item = Body>) -> Row {
    after_versions_read(row, bodies, &NOTHING)
}

fn after_versions_read(mut row: Row, bodies: impl IntoIterator<Item = Body>, needs: &dyn HistoryNeeds) -> Row {
    for (start, body) in (10..).step_by(10).zip(bodies) {
        let lock = Lock { body, ..put(start, 0) };
        let Ok(Step::Change(locked)) = prewrite(&row, &lock) else { panic!() };
        let Ok(Step::Change(next)) = commit(&locked, Timestamp(start), Timestamp(start + 1), needs) else { panic!() };
        row = next;
    }
    row
}

fn document_of(body: &Body) -> RawDocumentBuf {
    match body {
        Body::Document(document) => document.clone(),
        Body::Deleted | Body::Cut => panic!("there is none"),
    }
}

#[test]
fn old_documents_are_bounded_by_their_bytes() {
    // Small versions are limited by their number; others by their total bytes, without the last one before the
    // newest.
    let cases = [
        (100, VERSIONS_MAX),
        (1_000, 3),
        (10_000, 2),
        (VERSION_BYTES_MAX / 2 + 1, 1),
        (VERSION_BYTES_MAX - 1_000, 1),
        (VERSION_BYTES_MAX, 0),
    ];
    for (bytes, kept) in cases {
        let body = Body::Document(rawdoc! { "_id": "Bob", "text": "x".repeat(bytes) });
        let row = after_versions(missing(), (0..20).map(|_| body.clone()));
        assert_eq!(row.old.iter().filter(|version| version.body != Body::Cut).count(), kept, "of {bytes} bytes");
        assert_eq!(read_at(&row, Timestamp(25)), ReadResult::TooOld);
    }
}

#[test]
fn versions_that_are_read_are_kept() {
    let body = Body::Document(rawdoc! { "_id": "Bob", "text": "x".repeat(10_000) });
    let read = |from| after_versions_read(missing(), (0..20).map(|_| body.clone()), &ReadFrom(Timestamp(from)));
    // A snapshot at 155 reads the version of 151, and there are five after it.
    let row = read(155);
    assert_eq!(row.old.len(), 5);
    assert!(matches!(read_at(&row, Timestamp(155)), ReadResult::Document(_)));
    assert_eq!(read_at(&row, Timestamp(150)), ReadResult::TooOld);
    // The number of kept versions is the limit for small ones.
    assert_eq!(read(11).old.len(), VERSIONS_MAX);
}

#[test]
fn the_version_before_the_newest_is_kept_though_it_is_larger() {
    let of_bytes = |bytes| Body::Document(rawdoc! { "_id": "Bob", "text": "x".repeat(bytes) });
    let row = after_versions(missing(), [100_000, 200_000, 10].map(of_bytes));
    assert_eq!(row.old.len(), 1);
    assert_eq!(read_at(&row, Timestamp(21)), ReadResult::Document(&document_of(&of_bytes(200_000))));
}
