//! The files of an engine that holds nothing, as the engine made them once.
//!
//! The engine can make them itself, but makes each map in small steps of which each is durable before the next: about
//! seventy syncs, one after the other, before a new store can answer. Nothing needs these steps: until the directory gets
//! its name, a crash in the middle leaves a half-made one that is removed ([`super::open`]). So the files are written
//! here, each of them (all at once) and each directory is synced once, and the engine opens what it takes for its own.
//!
//! A test has the engine make them again and compares: only the time in the table of maps may differ. When it does not
//! pass with a new version of the engine, `UPDATE_EXPECT=1 cargo test -p handfast-embedded empty` writes them anew; what is
//! in files of other names is to be put into the table below by hand.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::thread;

use super::sync_directory;

/// All files: those with content first need a sync, the others are there with their directory.
const FILES: [(&str, &[u8]); 12] = [
    ("lock", b""),
    ("version", b"FJL\x03"),
    ("0.jnl", b""),
    ("keyspaces/0/current", include_bytes!("empty/maps.current")),
    ("keyspaces/0/v5", include_bytes!("empty/maps.list")),
    ("keyspaces/0/tables/3", include_bytes!("empty/maps.table")),
    ("keyspaces/1/current", include_bytes!("empty/map.current")),
    ("keyspaces/1/v0", include_bytes!("empty/map.list")),
    ("keyspaces/2/current", include_bytes!("empty/map.current")),
    ("keyspaces/2/v0", include_bytes!("empty/map.list")),
    ("keyspaces/3/current", include_bytes!("empty/map.current")),
    ("keyspaces/3/v0", include_bytes!("empty/map.list")),
];

/// Directories in which there is something, each after the one that holds it.
const DIRECTORIES: [&str; 7] =
    ["", "keyspaces", "keyspaces/0", "keyspaces/0/tables", "keyspaces/1", "keyspaces/2", "keyspaces/3"];

/// Directories without content: there with the one that holds them.
const EMPTY_DIRECTORIES: [&str; 3] = ["keyspaces/1/tables", "keyspaces/2/tables", "keyspaces/3/tables"];

/// Writes them into a directory that is not there yet; its own name is the caller's to sync.
pub(super) fn write(engine: &Path) -> io::Result<()> {
    for directory in DIRECTORIES.iter().chain(&EMPTY_DIRECTORIES) {
        fs::create_dir(engine.join(directory))?;
    }
    let mut files = Vec::with_capacity(FILES.len());
    for (name, content) in FILES {
        let mut file = File::create_new(engine.join(name))?;
        if !content.is_empty() {
            file.write_all(content)?;
            files.push(file);
        }
    }
    sync_together(&files)?;
    DIRECTORIES.iter().rev().try_for_each(|directory| sync_directory(&engine.join(directory)))
}

/// Syncs all files at once. A file system with a journal makes one entry of syncs that come together; one after the
/// other, each waits for an entry of its own.
fn sync_together(files: &[File]) -> io::Result<()> {
    thread::scope(|scope| {
        let sync = |file| thread::Builder::new().spawn_scoped(scope, move || File::sync_all(file));
        let syncs = files.iter().map(sync).collect::<io::Result<Vec<_>>>()?;
        let ended = |_| Err(io::Error::other("a thread that synced a file ended early"));
        syncs.into_iter().try_for_each(|sync| sync.join().unwrap_or_else(ended))
    })
}

#[cfg(test)]
mod tests;
