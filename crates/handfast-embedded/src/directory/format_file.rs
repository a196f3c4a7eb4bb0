//! The file FORMAT, which marks a directory as a store and has the version of its format.
//!
//! The file is one line for people, without a checksum. The witness has the version too, with a checksum: so a line with a
//! flipped bit is not taken for a newer version, and a lost file can be written again without guessing.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::Path;

use super::{FORMAT_FILE, WITNESS_FILE, damaged, reading, witness, write_atomically};
use crate::error::{Error, Result};
use crate::format::FORMAT_VERSION;

const LINE: &str = "handfast embedded store, format ";
/// More than the line has: a longer file is damaged.
const LINE_BYTES_MAX: u64 = 128;

/// The state of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FormatFile {
    /// The file has a version that this program knows.
    Known,
    /// The file has a newer version than this program knows.
    Newer(u32),
    Damaged {
        /// The damage, as text for people.
        what: String,
        /// Whether the witness has a version that this program knows.
        is_known: bool,
    },
}

/// Reads the file of a store.
pub(crate) fn look(directory: &Path) -> Result<FormatFile> {
    let witness = witness::look(&directory.join(WITNESS_FILE))?.map(|slot| slot.format);
    let damaged = |what: String| match witness {
        Some(version) if version > FORMAT_VERSION => FormatFile::Newer(version),
        witness => FormatFile::Damaged { what, is_known: witness == Some(FORMAT_VERSION) },
    };
    let Some(text) = read(&directory.join(FORMAT_FILE))? else {
        return Ok(damaged(format!("the file {FORMAT_FILE} is missing")));
    };
    let version = text.trim_end().strip_prefix(LINE).and_then(|version| version.parse::<u32>().ok());
    Ok(match (version, witness) {
        (None | Some(0), _) => damaged(format!("the file {FORMAT_FILE} is not readable: {text:?}")),
        (Some(version), Some(witness)) if version != witness => {
            damaged(format!("the file {FORMAT_FILE} says version {version}, it was {witness}"))
        }
        (Some(version), _) if version > FORMAT_VERSION => FormatFile::Newer(version),
        (Some(_), _) => FormatFile::Known,
    })
}

/// Fails unless the store has a version that this program knows.
pub(super) fn require(directory: &Path) -> Result<()> {
    match look(directory)? {
        FormatFile::Known => Ok(()),
        FormatFile::Newer(found) => Err(newer(directory, found)),
        FormatFile::Damaged { what, .. } => Err(damaged(directory, what)),
    }
}

pub(crate) fn newer(directory: &Path, found: u32) -> Error {
    Error::NewerFormat { directory: directory.to_owned(), found, known: FORMAT_VERSION }
}

/// Writes the file: the directory is a store from now on.
pub(crate) fn write(directory: &Path) -> Result<()> {
    write_atomically(&directory.join(FORMAT_FILE), format!("{LINE}{FORMAT_VERSION}\n").as_bytes())
}

/// Returns the text with replacements for damaged bytes; `None` if there is no file.
fn read(path: &Path) -> Result<Option<String>> {
    let mut bytes = Vec::new();
    match File::open(path).and_then(|file| file.take(LINE_BYTES_MAX).read_to_end(&mut bytes)) {
        Ok(_) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(reading(path, error)),
    }
}
