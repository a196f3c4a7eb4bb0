//! The written files are those that this version of the engine creates.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::{FILES, Path, fs, write};
use crate::Options;
use crate::fjall_engine::FjallEngine;

/// The length of the table of maps before its creation time: it has the names and settings of the maps.
const TABLE_TIMELESS: usize = 3_200;

/// Returns all files below a directory.
fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut left: Vec<PathBuf> = vec![directory.to_owned()];
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            let name = path.strip_prefix(directory).unwrap().to_str().unwrap().to_owned();
            files.insert(name, fs::read(&path).unwrap());
        }
    }
    files
}

/// Returns the files that the engine creates. A second opening lets it remove the files that it does not need.
fn made_by_the_engine() -> BTreeMap<String, Vec<u8>> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("engine");
    for _ in 0..2 {
        drop(FjallEngine::open(&path, &Options::small(), None).unwrap());
    }
    let mut made = files(&path);
    // The journal is allocated long before it is full.
    assert!(made.insert("0.jnl".to_owned(), Vec::new()).unwrap().iter().all(|&byte| byte == 0));
    made
}

#[test]
fn the_files_are_those_that_the_engine_creates() {
    let made = made_by_the_engine();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/directory/empty");
        for (name, file) in [
            ("keyspaces/0/current", "maps.current"),
            ("keyspaces/0/v5", "maps.list"),
            ("keyspaces/0/tables/3", "maps.table"),
            ("keyspaces/1/current", "map.current"),
            ("keyspaces/1/v0", "map.list"),
        ] {
            fs::write(kept.join(file), &made[name]).unwrap();
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("engine");
    write(&path).unwrap();
    let written = files(&path);
    assert!(written.keys().eq(made.keys()), "{:?} {:?}", written.keys(), made.keys());
    for (name, bytes) in &made {
        let ours = &written[name];
        match name.as_str() {
            "keyspaces/0/tables/3" => {
                assert_eq!(ours.len(), bytes.len(), "{name}");
                assert!(ours[..TABLE_TIMELESS] == bytes[..TABLE_TIMELESS], "{name}");
            }
            // These files contain the checksum of the table, or of the list.
            "keyspaces/0/current" | "keyspaces/0/v5" => assert_eq!(ours.len(), bytes.len(), "{name}"),
            _ => assert!(ours == bytes, "{name}"),
        }
    }
}

#[test]
fn the_engine_opens_the_files_and_removes_none() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("engine");
    write(&path).unwrap();
    drop(FjallEngine::open(&path, &Options::small(), None).unwrap());
    let opened = files(&path);
    assert_eq!(opened.len(), FILES.len());
    for (name, content) in FILES {
        assert!(opened[name] == content, "{name}");
    }
}
