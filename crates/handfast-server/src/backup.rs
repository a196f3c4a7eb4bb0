//! Backups: copies of all data, made while the server runs.
//!
//! The server knows neither the backend nor its files. The program that starts it can pass a [`Backup`], which knows both. A client
//! then requests a backup with `{handfastBackup: "monday"}` and chooses only its name. The command is Handfast's own: MongoDB leaves
//! backups to other programs.

use std::fmt::{self, Debug};

use async_trait::async_trait;
use handfast_mql::Code;
use handfast_store::{Error, Result};

#[cfg(test)]
mod tests;

/// The largest name of a backup in bytes. File systems allow 255, and a backup that is not complete has a suffix.
pub const BACKUP_NAME_BYTES_MAX: usize = 200;
/// The suffix that `EmbeddedStore::backup` adds to the name of a backup that is not complete.
const UNFINISHED: &str = ".unfinished";

/// Copies all data that a server serves.
#[async_trait]
pub trait Backup: Debug + Send + Sync {
    /// Copies all data as they are at one moment. Everything that was acknowledged before the call is in the copy.
    ///
    /// # Errors
    /// `NamespaceExists` (48) if something of that name exists; `ConflictingOperationInProgress` (117) during another backup; the
    /// error of the store or of the file system if the copy fails.
    ///
    /// # Cancellation
    /// A backup that has begun is completed.
    async fn back_up(&self, name: &BackupName) -> Result<BackedUp>;
}

/// The result of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackedUp {
    /// The path of the backup on the server.
    pub path: String,
    /// Documents, including those of the server itself, such as users.
    pub documents: u64,
    /// Entries of indexes.
    pub entries: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
}

/// The name of a backup: a plain file name, which cannot lead to another directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupName(String);

impl BackupName {
    /// Checks a name: letters and digits of any script, `-`, `_` and `.`, beginning with a letter or a digit.
    ///
    /// # Errors
    /// `BadValue` (2) for other characters, for a name that is too long, and for one with the suffix of an incomplete backup.
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

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BackupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
