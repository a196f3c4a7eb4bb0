//! A file with its final name is complete, whatever was there before.

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::Result;

use super::{Paths, UnfinishedFile};

#[test]
fn a_file_has_its_name_once_it_is_whole() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (target, left) = (directory.path().join("out"), directory.path().join("out.unfinished"));
    let mut file = UnfinishedFile::create_new(&target)?;
    file.write_all(b"a long first half")?;
    file.flush()?;
    assert!(!target.exists() && left.exists());
    assert!(UnfinishedFile::create_new(&target).is_err_and(|error| error.to_string().contains("another process")));
    // The process is killed: its lock is released, and nothing is removed.
    let Paths { unfinished, .. } = &mut file.paths;
    *unfinished = None;
    drop(file);
    assert!(!target.exists() && left.exists());

    let mut file = UnfinishedFile::create_new(&target)?;
    file.write_all(b"all")?;
    file.finish()?;
    assert_eq!(fs::read(&target)?, b"all");
    assert!(!left.exists());
    assert!(UnfinishedFile::create_new(&target).is_err());
    Ok(())
}

#[test]
fn a_file_that_is_replaced_is_there_until_the_new_one_is_whole() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (target, link) = (directory.path().join("out"), directory.path().join("link"));
    fs::write(&target, b"before")?;
    std::os::unix::fs::symlink(&target, &link)?;
    let mut file = UnfinishedFile::replace(&link)?;
    file.write_all(b"half")?;
    file.flush()?;
    assert_eq!(fs::read(&target)?, b"before");
    drop(file);
    assert_eq!((fs::read(&target)?, fs::read_dir(directory.path())?.count()), (b"before".to_vec(), 2));
    let mut file = UnfinishedFile::replace(&link)?;
    file.write_all(b"after")?;
    file.finish()?;
    assert_eq!(fs::read(&target)?, b"after");
    assert!(link.is_symlink());
    Ok(())
}

#[test]
fn a_device_is_written_to_as_it_is() -> Result<()> {
    let mut file = UnfinishedFile::replace(Path::new("/dev/null"))?;
    file.write_all(b"rows")?;
    file.finish()?;
    assert!(!Path::new("/dev/null.unfinished").exists());
    Ok(())
}
