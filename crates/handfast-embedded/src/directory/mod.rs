//! The directory of a store: who may open it, which format it has, and whether all of it is there.
//!
//! ```text
//! DIR/FORMAT     one line: "handfast embedded store, format 1"; a directory without it is not ours
//! DIR/lock       locked by the process that has the store open, and its number
//! DIR/witness    which batch was synced last, kept apart from the journal; the version, too
//! DIR/engine/    the key-value engine's files; made as engine.new, so that a half-made one is never taken for whole
//! ```
//!
//! The order of making one: lock, witness, FORMAT, engine; each is durable before the next is begun.
//!
//! The order of opening: look (nothing is written to a directory that is not ours), lock, compare the format, read the
//! witness, look over the engine's files (the engine would *remove* what it finds incomplete), read the journal through (the
//! engine would *cut* what it cannot read), open the engine, compare it with the witness.

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
use crate::format::{LastBatch, MetadataKey};
use crate::journal::{self, Journals};
use crate::lock::DirectoryLock;
use contents::Contents;
use witness::Witness;

const FORMAT_FILE: &str = "FORMAT";
const LOCK_FILE: &str = "lock";
pub(crate) const WITNESS_FILE: &str = "witness";
pub(crate) const ENGINE: &str = "engine";
const ENGINE_UNFINISHED: &str = "engine.new";
/// The engine's own map of maps is 0, then ours in the order of [`Keyspace`].
const ENGINE_MAPS: u32 = 4;

/// A directory that this process has locked and found whole.
pub(crate) struct Directory {
    pub(crate) path: PathBuf,
    /// Held by the engine and every view of it too.
    lock: Arc<DirectoryLock>,
}

/// What opening a directory gives.
pub(crate) struct Opened {
    pub(crate) engine: FjallEngine,
    pub(crate) witness: Witness,
    pub(crate) chain: Chain,
}

/// Locks a directory after making sure that it is ours; makes it if it is not there or empty.
pub(crate) fn lock(path: &Path) -> Result<Directory> {
    match contents::look(path)? {
        Contents::Absent => make(path).map_err(|error| writing(path, error))?,
        Contents::Unfinished => {}
        Contents::Store => return lock_existing(path),
        Contents::Other => return Err(Error::NotAStore { directory: path.to_owned() }),
    }
    let directory = take(path)?;
    // Another process may have made the store before this one got the lock.
    if contents::look(path)? != Contents::Store {
        begin(path)?;
    }
    format_file::require(path)?;
    Ok(directory)
}

fn take(path: &Path) -> Result<Directory> {
    Ok(Directory { path: path.to_owned(), lock: Arc::new(DirectoryLock::take(path, &path.join(LOCK_FILE))?) })
}

/// Makes a store without an engine. The file FORMAT comes last: where it is, a witness is missed.
fn begin(path: &Path) -> Result<()> {
    Witness::create(&path.join(WITNESS_FILE))?;
    sync_directory(path).map_err(|error| writing(path, error))?;
    format_file::write(path)
}

/// Makes a directory and those above it, durably: the name of each is in the one above. Nobody but the owner may look
/// into what is made: documents are in it, and the keys of users.
fn make(path: &Path) -> std::io::Result<()> {
    let above = holders_of_new(path);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    above.iter().try_for_each(|directory| sync_directory(directory))
}

/// The directories that get a new name when this one is made: its parents up to the first that is there.
fn holders_of_new(path: &Path) -> Vec<PathBuf> {
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

/// Locks a directory that has a store, and makes none.
pub(crate) fn lock_existing(path: &Path) -> Result<Directory> {
    let directory = lock_to_check(path)?;
    format_file::require(path)?;
    Ok(directory)
}

/// Locks a directory that has a store, whatever its file FORMAT says.
pub(crate) fn lock_to_check(path: &Path) -> Result<Directory> {
    match contents::look(path)? {
        Contents::Absent | Contents::Unfinished => Err(Error::NoStore { directory: path.to_owned() }),
        Contents::Other => Err(Error::NotAStore { directory: path.to_owned() }),
        Contents::Store => take(path).map_err(|error| not_writable(path, error)),
    }
}

/// The engine opens its files for writing, also those that it only reads.
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

/// Writes a file so that it is there with all its content or not at all.
pub(crate) fn write_whole(path: &Path, content: &[u8]) -> Result<()> {
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

/// Makes the names in a directory durable.
pub(crate) fn sync_directory(path: &Path) -> std::io::Result<()> {
    fs::File::open(path)?.sync_all()
}

/// Opens the engine in a locked directory, and refuses one from which something is missing.
pub(crate) fn open(directory: &Directory, options: &Options) -> Result<Opened> {
    let path = &directory.path;
    let witness = Witness::open(&path.join(WITNESS_FILE)).map_err(|error| as_damage(path, error))?;
    let (engine, chain) = open_engine(directory, options, witness.synced())?;
    Ok(Opened { engine, witness, chain })
}

/// Opens the engine, and refuses one from which something is missing that is known to be synced.
pub(crate) fn open_engine(
    directory: &Directory,
    options: &Options,
    synced: BatchNumbers,
) -> Result<(FjallEngine, Chain)> {
    let path = &directory.path;
    let engine_path = path.join(ENGINE);
    if !is_there(&engine_path)? {
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
    if is_there(&unfinished)? {
        fs::remove_dir_all(&unfinished).map_err(|error| writing(&unfinished, error))?;
    }
    let create = || {
        empty::write(&unfinished)?;
        fs::rename(&unfinished, path.join(ENGINE))?;
        sync_directory(path)
    };
    create().map_err(|error| writing(&unfinished, error))
}

/// The engine removes a map that has lost its `current` file, and all maps if its map of maps has; and it trusts the list
/// of data files that `current` names, although the checksum of that list is in there, too. So look first.
fn check_maps(path: &Path) -> Result<()> {
    let engine = path.join(ENGINE);
    let mut needed = vec![engine.join("version"), engine.join("lock")];
    needed.extend((0..ENGINE_MAPS).map(|map| engine.join("keyspaces").join(map.to_string()).join("current")));
    for file in needed {
        if !is_there(&file)? {
            return Err(damaged(path, format!("the file {} is missing", file.display())));
        }
    }
    for map in 0..ENGINE_MAPS {
        check_file_list(path, &engine.join("keyspaces").join(map.to_string()))?;
    }
    Ok(())
}

/// `current` is the number of the list in force (u64), the XXH3 of its file `vN` (u128), and the kind of that checksum (0).
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

/// The last batch that the engine holds, and what the journal knows of it.
fn end_of_chain(engine: &dyn Engine, journals: &Journals) -> Result<Chain> {
    let last = match engine.view().get(Keyspace::Metadata, &MetadataKey::LastBatch.encode())? {
        Some(value) => LastBatch::decode(&value)?,
        None => LastBatch::default(),
    };
    let in_journal = journals.last().filter(|batch| batch.last == last);
    Ok(in_journal.unwrap_or(Chain { last, sequence: 0 }))
}

/// The end of the chain, found by opening the engine and nothing else.
pub(crate) fn find_end_of_chain(path: &Path, journals: &Journals) -> Result<Chain> {
    check_maps(path)?;
    end_of_chain(&FjallEngine::open(&path.join(ENGINE), &Options::small(), None)?, journals)
}

/// Damage, with the directory and what to do.
pub(crate) fn damaged(path: &Path, what: impl Into<String>) -> Error {
    Error::Damaged { directory: path.to_owned(), what: what.into() }
}

fn as_damage(path: &Path, error: Error) -> Error {
    match error {
        Error::Corrupt(what) => damaged(path, what),
        other => other,
    }
}

/// Whether there is a file or directory of this name.
pub(crate) fn is_there(path: &Path) -> Result<bool> {
    path.try_exists().map_err(|error| reading(path, error))
}

fn reading(path: &Path, error: std::io::Error) -> Error {
    Error::io(format!("reading {}", path.display()), error)
}

fn writing(path: &Path, error: std::io::Error) -> Error {
    Error::io(format!("writing {}", path.display()), error)
}
