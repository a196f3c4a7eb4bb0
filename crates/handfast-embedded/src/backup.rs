//! A consistent copy of the store while others write.
//!
//! A snapshot is copied record by record into a new store, and every checksum is verified: a damaged record fails the backup.
//! The copy is made beside its final name, and renamed when it is complete and synced, so there is never an incomplete store
//! under that name. It is opened like any other store.

use std::fs;
use std::ops::Bound;
use std::path::{Component, Path, PathBuf};

use handfast_store::CommitTimestamp;

use crate::Options;
use crate::chain::Chain;
use crate::committer::Snapshot;
use crate::directory::{self, sync_directory};
use crate::engine::{Direction, Engine, Keyspace, Readiness, View, Write};
use crate::error::{Error, Result};
use crate::format::{MetadataKey, StoredDocument, Verify, open_index_entry, open_metadata};

const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// The numbers of copied records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backup {
    /// Documents.
    pub documents: u64,
    /// Entries of indexes.
    pub entries: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
}

/// Refuses to write a backup or a dump of a store into the store's own directory, or below it.
///
/// # Errors
/// [`Error::WithinStore`]; [`Error::Io`] for a path that cannot be resolved.
pub fn must_be_outside(directory: &Path, target: &Path) -> Result<()> {
    match resolved(target)?.starts_with(resolved(directory)?) {
        true => Err(Error::WithinStore { directory: directory.to_owned(), target: target.to_owned() }),
        false => Ok(()),
    }
}

/// Resolves the links of a path, as far as it exists.
fn resolved(path: &Path) -> Result<PathBuf> {
    let failed = |error| Error::io(format!("resolving {}", path.display()), error);
    let path = std::path::absolute(path).map_err(failed)?;
    for existing in path.ancestors() {
        match existing.canonicalize() {
            Ok(resolved) => {
                let rest = path.strip_prefix(existing).unwrap_or(Path::new(""));
                let whole = rest.components().fold(resolved, |path, part| match part {
                    // The missing components will be directories, not links, so this one leads to the parent.
                    Component::ParentDir => path.parent().map_or(path.clone(), Path::to_owned),
                    part => path.join(part),
                });
                let leads_back = rest.components().any(|part| part == Component::ParentDir);
                // The parent may have links again.
                return if leads_back { self::resolved(&whole) } else { Ok(whole) };
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(path)
}

/// Copies a snapshot into a directory that does not exist or is empty.
pub(crate) fn copy(snapshot: &Snapshot, destination: &Path, options: &Options) -> handfast_store::Result<Backup> {
    let failed = |what: &str, error| Error::io(format!("{what} {}", destination.display()), error);
    let is_taken = match fs::read_dir(destination) {
        Ok(mut entries) => entries.next().is_some(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
        Err(error) => return Err(failed("reading", error).into()),
    };
    if is_taken {
        return Err(Error::NotAStore { directory: destination.to_owned() }.into());
    }
    let unfinished = unfinished(destination);
    if unfinished.exists() {
        // Locking fails if another backup is writing it, or if it is no store.
        drop(directory::lock(&unfinished)?);
        fs::remove_dir_all(&unfinished).map_err(|error| failed("removing an unfinished copy beside", error))?;
    }
    let locked = directory::lock(&unfinished)?;
    let incomplete = Incomplete(&unfinished);
    let mut opened = directory::open(&locked, options)?;
    let timestamp = snapshot.timestamp();
    let mut copy = BackupCopy { engine: &opened.engine, chain: opened.chain, timestamp, done: Backup::default() };
    // A copy is another store from now on: it begins a log of its own, and refuses the tokens of this one.
    for keyspace in [Keyspace::Documents, Keyspace::Indexes, Keyspace::Metadata] {
        copy.keyspace(snapshot, keyspace)?;
    }
    let BackupCopy { chain, done, .. } = copy;
    opened.engine.sync()?;
    opened.witness.record(chain.numbers())?;
    opened.witness.sync()?;
    drop(opened);
    drop(locked);
    let rename = || {
        fs::rename(&unfinished, destination)?;
        sync_directory(parent(destination))
    };
    rename().map_err(|error| failed("renaming the copy to", error))?;
    std::mem::forget(incomplete);
    Ok(done)
}

/// Removes a copy that is not completed, so that a disk that it has filled does not stay full.
struct Incomplete<'p>(&'p Path);

impl Drop for Incomplete<'_> {
    fn drop(&mut self) {
        // The caller gets the error of the copy; the next backup of this name removes the files that remain.
        let _ = fs::remove_dir_all(self.0);
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn unfinished(destination: &Path) -> PathBuf {
    let mut name = destination.file_name().unwrap_or_default().to_owned();
    name.push(".unfinished");
    destination.with_file_name(name)
}

struct BackupCopy<'e> {
    engine: &'e dyn Engine,
    chain: Chain,
    /// The timestamp of the snapshot.
    timestamp: CommitTimestamp,
    done: Backup,
}

impl BackupCopy<'_> {
    fn keyspace(&mut self, snapshot: &Snapshot, keyspace: Keyspace) -> handfast_store::Result<()> {
        let mut start = Bound::Unbounded;
        loop {
            // A view for each batch: a snapshot can be ended in between.
            let batch = self.next_batch(&*snapshot.view()?, keyspace, start)?;
            let Some(last) = batch.last() else {
                return Ok(());
            };
            start = Bound::Excluded(last.key.clone());
            self.apply(batch)?;
        }
    }

    fn next_batch(&mut self, view: &dyn View, keyspace: Keyspace, start: Bound<Vec<u8>>) -> Result<Vec<Write>> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        for row in view.range(keyspace, (start, Bound::Unbounded), Direction::Forward) {
            let (key, value) = row?;
            let own = [MetadataKey::LastBatch.encode(), MetadataKey::ChangeLog.encode()];
            if keyspace == Keyspace::Metadata && own.iter().any(|own| **own == *key) {
                continue;
            }
            match keyspace {
                Keyspace::Documents => {
                    StoredDocument::open(&key, value.clone(), Verify::Checksums)?;
                    self.done.documents += 1;
                }
                Keyspace::Indexes => {
                    open_index_entry(&key, &value, Verify::Checksums)?;
                    self.done.entries += 1;
                }
                Keyspace::Metadata | Keyspace::Changes => {
                    open_metadata(&key, &value)?;
                }
            }
            bytes += key.len() + value.len();
            self.done.bytes += (key.len() + value.len()) as u64;
            batch.push(Write { keyspace, key: key.to_vec(), value: Some(value.to_vec()) });
            if bytes >= BATCH_BYTES {
                break;
            }
        }
        Ok(batch)
    }

    fn apply(&mut self, batch: Vec<Write>) -> Result<()> {
        while self.engine.readiness()? == Readiness::Busy {
            std::thread::park_timeout(crate::committer::BUSY_PAUSE);
        }
        self.chain.apply(self.engine, self.timestamp, batch)
    }
}

#[cfg(test)]
mod tests {
    use super::resolved;

    #[test]
    fn a_path_is_resolved_as_far_as_it_exists() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("data")).unwrap();
        std::os::unix::fs::symlink(root.join("data"), root.join("link")).unwrap();
        for (path, expected) in [
            ("data", "data"),
            ("link", "data"),
            ("link/backups/new", "data/backups/new"),
            ("data/../backups", "backups"),
            ("made/on/the/way/../../../../data/new", "data/new"),
            ("made/../link/new", "data/new"),
            ("other/backups", "other/backups"),
        ] {
            assert_eq!(resolved(&root.join(path)).unwrap(), root.join(expected), "{path}");
        }
    }
}
