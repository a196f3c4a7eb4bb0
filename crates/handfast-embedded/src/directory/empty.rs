//! The files of an empty engine, as the engine created them once.
//!
//! The engine can create them itself, but creates each map in small steps, each durable before the next: about seventy syncs,
//! one after the other, before a new store can answer. These steps are not needed: a crash before the directory is renamed
//! leaves an incomplete one that is removed ([`super::open`]). So the files are written here, each file (all at once) and each
//! directory is synced once, and the engine opens them as its own.
//!
//! A test lets the engine create the files again and compares: only the time in the table of maps may differ. When it fails
//! with a new version of the engine, `UPDATE_EXPECT=1 cargo test -p handfast-embedded empty` writes them again; files with new
//! names must be added to the table below by hand.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::thread;

use super::sync_directory;

/// All files. Those with content need a sync, the others are durable with their directory.
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

/// Directories with content, each after its parent.
const DIRECTORIES: [&str; 7] =
    ["", "keyspaces", "keyspaces/0", "keyspaces/0/tables", "keyspaces/1", "keyspaces/2", "keyspaces/3"];

/// Directories without content, durable with their parent.
const EMPTY_DIRECTORIES: [&str; 3] = ["keyspaces/1/tables", "keyspaces/2/tables", "keyspaces/3/tables"];

/// Writes the files into a directory that does not exist yet. The caller syncs its parent.
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

/// Syncs all files at once. A file system with a journal writes one entry for concurrent syncs; one after the other, each waits
/// for its own entry.
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
