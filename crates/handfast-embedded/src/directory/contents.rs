//! What a directory is, by the names in it: nothing is written to one that is not ours.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use super::{ENGINE, FORMAT_FILE, LOCK_FILE, WITNESS_FILE, is_there, reading, witness};
use crate::error::Result;

/// What a directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contents {
    /// It is not there.
    Absent,
    /// Empty, or what a process leaves that died while it made a store.
    Unfinished,
    /// A store, also one that lost its file FORMAT.
    Store,
    /// Something else.
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

/// Whether there are files of ours that a store has only after the file FORMAT was there.
fn has_batches(path: &Path) -> Result<bool> {
    if is_there(&path.join(ENGINE).join("keyspaces"))? {
        return Ok(true);
    }
    let witness = witness::look(&path.join(WITNESS_FILE))?;
    Ok(witness.is_some_and(|slot| slot.synced.number > 0))
}
