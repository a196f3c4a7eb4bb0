//! Copies of all that a server serves, made while it serves.
//!
//! The server knows no backend and no files. Whoever starts it may give it a [`Backup`], which knows both; a client then says
//! `{handfastBackup: "monday"}` and chooses nothing but the name. The command is Handfast's own: MongoDB copies files, and
//! leaves it to tools.

use std::fmt::{self, Debug};

use async_trait::async_trait;
use handfast_mql::Code;
use handfast_store::{Error, Result};

#[cfg(test)]
mod tests;

/// Bytes of a backup's name: a name in a file system has 255, and a copy that is being made has a longer one.
pub const BACKUP_NAME_BYTES_MAX: usize = 200;
/// The suffix of a copy that is not complete, as `EmbeddedStore::backup` names it.
const UNFINISHED: &str = ".unfinished";

/// Copies all data that a server serves.
#[async_trait]
pub trait Backup: Debug + Send + Sync {
    /// Makes a copy of this name of how everything is at one moment. What was acknowledged before the call is in it.
    ///
    /// # Errors
    /// `NamespaceExists` (48): there is something of that name; `ConflictingOperationInProgress` (117): another copy is
    /// being made; those of the copy itself.
    ///
    /// # Cancellation
    /// A copy that has begun is finished.
    async fn back_up(&self, name: &BackupName) -> Result<BackedUp>;
}

/// The result of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackedUp {
    /// The path of the copy on the server.
    pub path: String,
    /// Documents, those that the server keeps for itself included.
    pub documents: u64,
    /// Entries of indexes.
    pub entries: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
}

/// The name of a copy: one plain name, which leads nowhere else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupName(String);

impl BackupName {
    /// Letters and digits of any script, `-`, `_` and `.`, beginning with a letter or a digit.
    ///
    /// # Errors
    /// `BadValue` (2): it is something else, too long, or ends as the names of copies end that are not whole yet.
    pub fn new(name: &str) -> Result<Self> {
        let refused = |why: &str| Err(Error::command(Code::BadValue, format!("the name of a backup {why}: '{name}'")));
        if name.len() > BACKUP_NAME_BYTES_MAX {
            let why = format!("must not be longer than {BACKUP_NAME_BYTES_MAX} bytes, and this one has {}", name.len());
            return Err(Error::command(Code::BadValue, format!("the name of a backup {why}")));
        }
        if !name.starts_with(char::is_alphanumeric) {
            return refused("must begin with a letter or a digit");
        }
        if name.contains(|character: char| !character.is_alphanumeric() && !"-_.".contains(character)) {
            return refused("must be of letters, digits, '-', '_' and '.' alone, without a path");
        }
        if name.to_lowercase().ends_with(UNFINISHED) {
            return refused("must not end in '.unfinished', as copies do that are not whole");
        }
        Ok(BackupName(name.to_owned()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BackupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
