use std::sync::Arc;

use handfast_mql::Code;
use handfast_mql::spill::SpillSpace as _;

use super::{FILES_MAX, SpillDirectory};

#[test]
fn a_file_has_the_bytes_that_were_written_and_no_name() {
    let directory = tempfile::tempdir().unwrap();
    let space = SpillDirectory::new(directory.path().to_owned(), 100);
    let mut file = space.create().unwrap();
    file.append(b"hello ").unwrap();
    file.append(b"world").unwrap();
    let mut read = [0; 5];
    file.read(4, &mut read).unwrap();
    assert_eq!(&read, b"o wor");
    // Reads and writes may alternate.
    file.append(b"!").unwrap();
    let mut read = [0; 6];
    file.read(6, &mut read).unwrap();
    assert_eq!(&read, b"world!");
    assert!(file.read(7, &mut read).is_err(), "beyond the end");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is left after a kill");
    assert_eq!((space.used(), space.written()), (12, 12));
    drop(file);
    assert_eq!((space.used(), space.written()), (0, 12));
}

#[test]
fn all_files_have_a_limit_together() {
    let directory = tempfile::tempdir().unwrap();
    let space = SpillDirectory::new(directory.path().to_owned(), 10);
    let (mut first, mut second) = (space.create().unwrap(), space.create().unwrap());
    first.append(&[0; 6]).unwrap();
    let error = second.append(&[0; 6]).unwrap_err();
    assert_eq!(error.code(), Code::OutOfDiskSpace);
    assert!(error.message().contains("spill-bytes"), "{error}");
    drop(first);
    second.append(&[0; 6]).unwrap();
    assert_eq!(space.used(), 6);
}

#[test]
fn some_of_the_disk_stays_free() {
    let directory = tempfile::tempdir().unwrap();
    let space = SpillDirectory::new(directory.path().to_owned(), u64::MAX);
    let mut space = Arc::into_inner(space.0).unwrap();
    space.free_bytes_min = u64::MAX;
    let error = SpillDirectory(Arc::new(space)).create().unwrap().append(&[0]).unwrap_err();
    assert_eq!(error.code(), Code::OutOfDiskSpace);
    assert!(error.message().contains("spill-directory"), "{error}");
}

#[test]
fn there_are_only_so_many_files() {
    let directory = tempfile::tempdir().unwrap();
    let space = SpillDirectory::new(directory.path().to_owned(), 100);
    let mut files: Vec<_> = (0..FILES_MAX).map(|_| space.create().unwrap()).collect();
    assert_eq!(space.create().unwrap_err().code(), Code::QueryExceededMemoryLimitNoDiskUseAllowed);
    files.pop();
    space.create().unwrap();
}

#[test]
fn a_directory_that_is_missing_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing");
    let error = SpillDirectory::new(missing.clone(), 10).create().unwrap_err();
    assert!(error.message().contains(&missing.display().to_string()), "{error}");
}
