//! The kind of a directory, by the names in it: nothing is written to one that is no store.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use super::{ENGINE, FORMAT_FILE, LOCK_FILE, WITNESS_FILE, exists, reading, witness};
use crate::error::Result;

/// The kind of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contents {
    /// The directory does not exist.
    Absent,
    /// The directory is empty, or a process was killed in it while it created a store.
    Unfinished,
    /// The directory has a store, perhaps without its file FORMAT.
    Store,
    /// The directory has other content.
    Other,
}

pub(super) fn look(path: &Path) -> Result<Contents> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Contents::Absent),
        Err(error) => return Err(reading(path, error)),
    };
    let mut is_unfinished = true;
    for entry in entries {
        let name = entry.map_err(|error| reading(path, error))?.file_name();
        if name == FORMAT_FILE {
            return Ok(Contents::Store);
        }
        is_unfinished &= name == format!("{FORMAT_FILE}.new").as_str() || name == LOCK_FILE || name == WITNESS_FILE;
    }
    if has_batches(path)? {
        return Ok(Contents::Store);
    }
    Ok(if is_unfinished { Contents::Unfinished } else { Contents::Other })
}

/// Returns whether there are files that a store has only after its file FORMAT was written.
fn has_batches(path: &Path) -> Result<bool> {
    if exists(&path.join(ENGINE).join("keyspaces"))? {
        return Ok(true);
    }
    let witness = witness::look(&path.join(WITNESS_FILE))?;
    Ok(witness.is_some_and(|slot| slot.synced.number > 0))
}
