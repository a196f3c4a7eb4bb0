//! The directory of a store: its lock, its format, and the check that it is complete.
//!
//! ```text
//! DIR/FORMAT     one line: "handfast embedded store, format 1"; a directory without it is no store
//! DIR/lock       locked by the process that has the store open, with its process number
//! DIR/witness    the last synced batch, apart from the journal; and the version of the format
//! DIR/engine/    the key-value engine's files; created as engine.new, so that an incomplete one is never used
//! ```
//!
//! A store is created in the order lock, witness, FORMAT, engine; each is durable before the next is begun.
//!
//! A store is opened in the order: inspect the directory (nothing is written to one that is no store), lock, compare the format,
//! read the witness, check the engine's files (the engine would *remove* incomplete ones), read the journal (the engine would
//! *cut* the part that it cannot read), open the engine, compare it with the witness.

mod contents;
mod empty;
pub(crate) mod format_file;
#[cfg(test)]
mod tests;
pub(crate) mod witness;

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::Options;
use crate::chain::{BatchNumbers, Chain};
use crate::engine::{Engine, Keyspace};
use crate::error::{Error, Result};
use crate::fjall_engine::FjallEngine;
use crate::format::{ChangeLogState, LastBatch, MetadataKey};
use crate::journal::{self, Journals};
use crate::lock::DirectoryLock;
use contents::Contents;
use witness::Witness;

const FORMAT_FILE: &str = "FORMAT";
const LOCK_FILE: &str = "lock";
pub(crate) const WITNESS_FILE: &str = "witness";
pub(crate) const ENGINE: &str = "engine";
const ENGINE_UNFINISHED: &str = "engine.new";
/// The maps in the engine's directory that always exist: 0 is the engine's own map of maps, then those of [`Keyspace`] in order. The map of
/// the log of changes comes after them once the log was begun.
const ENGINE_MAPS: u32 = 4;

/// A directory that this process has locked.
pub(crate) struct Directory {
    pub(crate) path: PathBuf,
    /// Held by the engine and every view of it too.
    lock: Arc<DirectoryLock>,
}

/// The parts of an opened directory.
pub(crate) struct Opened {
    pub(crate) engine: FjallEngine,
    pub(crate) witness: Witness,
    pub(crate) chain: Chain,
}

/// Locks a directory that has a store, or creates a store if the directory is empty or does not exist.
pub(crate) fn lock(path: &Path) -> Result<Directory> {
    match contents::look(path)? {
        Contents::Absent => create_directory(path).map_err(|error| writing(path, error))?,
        Contents::Unfinished => {}
        Contents::Store => return lock_existing(path),
        Contents::Other => return Err(Error::NotAStore { directory: path.to_owned() }),
    }
    let directory = take(path)?;
    // Another process may have created the store before this one got the lock.
    if contents::look(path)? != Contents::Store {
        begin(path)?;
    }
    format_file::require(path)?;
    Ok(directory)
}

fn take(path: &Path) -> Result<Directory> {
    Ok(Directory { path: path.to_owned(), lock: Arc::new(DirectoryLock::take(path, &path.join(LOCK_FILE))?) })
}

/// Creates a store without an engine. The file FORMAT comes last: a directory with FORMAT must have a witness.
fn begin(path: &Path) -> Result<()> {
    Witness::create(&path.join(WITNESS_FILE))?;
    sync_directory(path).map_err(|error| writing(path, error))?;
    format_file::write(path)
}

/// Creates a directory and its parents durably: the name of each is in its parent. Only the owner may read the new directories,
/// which hold documents and the keys of users.
fn create_directory(path: &Path) -> std::io::Result<()> {
    let above = parents_to_sync(path);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    above.iter().try_for_each(|directory| sync_directory(directory))
}

/// Returns the directories that get a new entry when this one is created: its parents up to the first that exists.
fn parents_to_sync(path: &Path) -> Vec<PathBuf> {
    let mut holders = Vec::new();
    for holder in path.ancestors().skip(1) {
        // The parent of a relative path of one name is the current directory.
        let holder = if holder.as_os_str().is_empty() { Path::new(".") } else { holder };
        holders.push(holder.to_owned());
        if holder.exists() {
            break;
        }
    }
    holders
}

/// Locks a directory that has a store, and creates none.
pub(crate) fn lock_existing(path: &Path) -> Result<Directory> {
    let directory = lock_to_check(path)?;
    format_file::require(path)?;
    Ok(directory)
}

/// Locks a directory that has a store, even if its file FORMAT is damaged.
pub(crate) fn lock_to_check(path: &Path) -> Result<Directory> {
    match contents::look(path)? {
        Contents::Absent | Contents::Unfinished => Err(Error::NoStore { directory: path.to_owned() }),
        Contents::Other => Err(Error::NotAStore { directory: path.to_owned() }),
        Contents::Store => take(path).map_err(|error| not_writable(path, error)),
    }
}

/// Translates the error of a directory that is not writable: the engine opens its files for writing, even to read them.
fn not_writable(path: &Path, error: Error) -> Error {
    match error {
        Error::Io { source, .. }
            if matches!(source.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) =>
        {
            Error::NotWritable { directory: path.to_owned(), source }
        }
        other => other,
    }
}

/// Writes a file atomically and durably.
pub(crate) fn write_atomically(path: &Path, content: &[u8]) -> Result<()> {
    let temporary = path.with_extension("new");
    let write = || -> std::io::Result<()> {
        let mut file = fs::File::create(&temporary)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        sync_directory(path.parent().unwrap_or(Path::new(".")))
    };
    write().map_err(|error| writing(path, error))
}

/// Makes the entries of a directory durable.
pub(crate) fn sync_directory(path: &Path) -> std::io::Result<()> {
    fs::File::open(path)?.sync_all()
}

/// Opens the engine in a locked directory. Fails if synced data is missing.
pub(crate) fn open(directory: &Directory, options: &Options) -> Result<Opened> {
    let path = &directory.path;
    let witness = Witness::open(&path.join(WITNESS_FILE)).map_err(|error| as_damage(path, error))?;
    let (engine, chain) = open_engine(directory, options, witness.synced())?;
    Ok(Opened { engine, witness, chain })
}

/// Opens the engine. Fails if data up to the batch `synced` is missing.
pub(crate) fn open_engine(
    directory: &Directory,
    options: &Options,
    synced: BatchNumbers,
) -> Result<(FjallEngine, Chain)> {
    let path = &directory.path;
    let engine_path = path.join(ENGINE);
    if !exists(&engine_path)? {
        if synced.number > 0 {
            let text = format!("the directory {ENGINE} is missing, and {} batches were written", synced.number);
            return Err(damaged(path, text));
        }
        create_engine(path)?;
    }
    check_maps(path)?;
    let journals = journal::read(&engine_path, synced).map_err(|error| as_damage(path, error))?;
    journals.check_no_synced_loss(synced.number).map_err(|what| damaged(path, what))?;
    journals.cut_torn_end()?;
    let engine = FjallEngine::open(&engine_path, options, Some(directory.lock.clone()))
        .map_err(|error| as_damage(path, error))?;
    let chain = end_of_chain(&engine, &journals).map_err(|error| as_damage(path, error))?;
    if !engine.has_changes() && ChangeLogState::read(&*engine.view()).map_err(|error| as_damage(path, error))?.is_some()
    {
        return Err(damaged(path, "the map of the log of changes is missing"));
    }
    let last = chain.last.number;
    if last < synced.number {
        return Err(damaged(
            path,
            format!(
                "batch {} was synced, the last that is there is {last}: {} are missing from the end",
                synced.number,
                synced.number - last
            ),
        ));
    }
    Ok((engine, chain))
}

fn create_engine(path: &Path) -> Result<()> {
    let unfinished = path.join(ENGINE_UNFINISHED);
    if exists(&unfinished)? {
        fs::remove_dir_all(&unfinished).map_err(|error| writing(&unfinished, error))?;
    }
    let create = || {
        empty::write(&unfinished)?;
        fs::rename(&unfinished, path.join(ENGINE))?;
        sync_directory(path)
    };
    create().map_err(|error| writing(&unfinished, error))
}

/// Checks the lists of data files before the engine opens them: the engine removes a map that has lost its `current` file, and all
/// maps if its map of maps has; and it does not verify the checksum of the list that `current` names.
fn check_maps(path: &Path) -> Result<()> {
    let engine = path.join(ENGINE);
    let mut needed = vec![engine.join("version"), engine.join("lock")];
    needed.extend((0..ENGINE_MAPS).map(|map| engine.join("keyspaces").join(map.to_string()).join("current")));
    for file in needed {
        if !exists(&file)? {
            return Err(damaged(path, format!("the file {} is missing", file.display())));
        }
    }
    let maps = engine.join("keyspaces");
    for entry in fs::read_dir(&maps).map_err(|error| reading(&maps, error))? {
        let map = entry.map_err(|error| reading(&maps, error))?.path();
        // A map whose creation was interrupted has no list; the engine removes it.
        if exists(&map.join("current"))? {
            check_file_list(path, &map)?;
        }
    }
    Ok(())
}

/// Checks the list of a map. `current` is the number of the valid list (u64), the XXH3 of its file `vN` (u128), and the kind of that
/// checksum (0).
///
/// Source: lsm-tree 3.1, `version/persist.rs`.
fn check_file_list(path: &Path, map: &Path) -> Result<()> {
    let current_path = map.join("current");
    let current = fs::read(&current_path).map_err(|error| reading(&current_path, error))?;
    let wrong = || damaged(path, format!("the file {} is not what was written", current_path.display()));
    let (number, rest) = current.split_first_chunk::<8>().ok_or_else(wrong)?;
    let (sum, kind) = rest.split_first_chunk::<16>().ok_or_else(wrong)?;
    if kind != [0] {
        return Err(wrong());
    }
    let list_path = map.join(format!("v{}", u64::from_le_bytes(*number)));
    let list = match fs::read(&list_path) {
        Ok(list) => list,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(damaged(path, format!("the file {} is missing", list_path.display())));
        }
        Err(error) => return Err(reading(&list_path, error)),
    };
    if xxhash_rust::xxh3::xxh3_128(&list) != u128::from_le_bytes(*sum) {
        return Err(damaged(path, format!("the file {} is not what was written", list_path.display())));
    }
    Ok(())
}

/// Returns the last batch of the engine, with its sequence number if the journal has it.
fn end_of_chain(engine: &dyn Engine, journals: &Journals) -> Result<Chain> {
    let last = match engine.view().get(Keyspace::Metadata, &MetadataKey::LastBatch.encode())? {
        Some(value) => LastBatch::decode(&value)?,
        None => LastBatch::default(),
    };
    let in_journal = journals.last().filter(|batch| batch.last == last);
    Ok(in_journal.unwrap_or(Chain { last, sequence: 0 }))
}

/// Opens the engine to find the end of the chain.
pub(crate) fn find_end_of_chain(path: &Path, journals: &Journals) -> Result<Chain> {
    check_maps(path)?;
    end_of_chain(&FjallEngine::open(&path.join(ENGINE), &Options::small(), None)?, journals)
}

/// Returns the error of a damaged directory.
pub(crate) fn damaged(path: &Path, what: impl Into<String>) -> Error {
    Error::Damaged { directory: path.to_owned(), what: what.into() }
}

fn as_damage(path: &Path, error: Error) -> Error {
    match error {
        Error::Corrupt(what) => damaged(path, what),
        other => other,
    }
}

pub(crate) fn exists(path: &Path) -> Result<bool> {
    path.try_exists().map_err(|error| reading(path, error))
}

fn reading(path: &Path, error: std::io::Error) -> Error {
    Error::io(format!("reading {}", path.display()), error)
}

fn writing(path: &Path, error: std::io::Error) -> Error {
    Error::io(format!("writing {}", path.display()), error)
}
