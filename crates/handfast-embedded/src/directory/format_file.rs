//! The file FORMAT: that a directory is a store, and in which version.
//!
//! It is one line for people and has no checksum. The witness holds the version too, under one: so a line in which a bit
//! has flipped is not taken for a newer version, and a file that is lost can be written again without guessing.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::Path;

use super::{FORMAT_FILE, WITNESS_FILE, damaged, reading, witness, write_whole};
use crate::error::{Error, Result};
use crate::format::FORMAT_VERSION;

const LINE: &str = "handfast embedded store, format ";
/// More than a line has; what is longer is none.
const LINE_BYTES_MAX: u64 = 128;

/// What the file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FormatFile {
    /// It says a version that this program knows.
    Known,
    /// It says a version that this program does not know yet.
    Newer(u32),
    /// It is not what was written.
    Damaged {
        /// What is wrong, for people.
        what: String,
        /// Whether this program knows the version all the same, by the witness.
        is_known: bool,
    },
}

/// Looks at the file of a directory that is a store.
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

/// Refuses a store of a version that this program does not know.
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

/// Writes it: the directory is a store from now on.
pub(crate) fn write(directory: &Path) -> Result<()> {
    write_whole(&directory.join(FORMAT_FILE), format!("{LINE}{FORMAT_VERSION}\n").as_bytes())
}

/// The text, damaged bytes too; `None` if there is no file.
fn read(path: &Path) -> Result<Option<String>> {
    let mut bytes = Vec::new();
    match File::open(path).and_then(|file| file.take(LINE_BYTES_MAX).read_to_end(&mut bytes)) {
        Ok(_) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(reading(path, error)),
    }
}
