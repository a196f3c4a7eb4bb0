//! The errors of a directory and its engine. Each variant's documentation says what the caller can do.

use std::path::PathBuf;

use handfast_mql::Code;
use handfast_store::{Applied, ErrorClass, Namespace};

/// The result of functions on directories.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A directory that cannot be opened, read or written.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// Stop the other process, or choose another directory.
    #[error("the directory {directory} is in use{}", pid(*.holder))]
    InUse {
        /// The store's directory.
        directory: PathBuf,
        /// The process that has the directory open, if it left its number.
        holder: Option<u32>,
    },
    /// Choose another directory: this one has other content.
    #[error("the directory {directory} is not empty and holds no handfast store; nothing was written to it")]
    NotAStore {
        /// The directory.
        directory: PathBuf,
    },
    /// Name the directory of a store: this one has none, and none was created.
    #[error("the directory {directory} holds no handfast store")]
    NoStore {
        /// The directory.
        directory: PathBuf,
    },
    /// Copy the directory to a writable place: the storage engine opens its files for writing, even to read them.
    #[error(
        "the directory {directory} cannot be written to ({source}), which the storage engine needs even to read it"
    )]
    NotWritable {
        /// The store's directory.
        directory: PathBuf,
        /// The error of the operating system.
        source: std::sync::Arc<std::io::Error>,
    },
    /// Choose a directory outside of the store's own.
    #[error("{target} is within the data directory {directory}")]
    WithinStore {
        /// The store's directory.
        directory: PathBuf,
        /// The path that was to be written.
        target: PathBuf,
    },
    /// Use a newer program.
    #[error(
        "the directory {directory} has format version {found}, this program knows versions up to {known}: use a newer \
         handfast"
    )]
    NewerFormat {
        /// The store's directory.
        directory: PathBuf,
        /// The version in the directory.
        found: u32,
        /// The newest version that this program reads.
        known: u32,
    },
    /// Run the check: the stored data is not the written data.
    #[error(
        "the store in {directory} is damaged: {what}; run `handfast check --data {directory}`, and read what it \
             says before you run it with `--repair`"
    )]
    Damaged {
        /// The store's directory.
        directory: PathBuf,
        /// The damage, as text for people.
        what: String,
    },
    /// Run the check: a record has a wrong checksum, or the engine could not read it.
    #[error("damaged data: {0}")]
    Corrupt(String),
    /// Free space on the disk; then open the store again.
    #[error("no space left on the disk under {0}")]
    DiskFull(String),
    /// Open the store again: a write or a sync failed, and the state of the disk is unknown.
    #[error("the store must be reopened: {0}")]
    Stopped(String),
    /// Open the store again: it was closed.
    #[error("the store is closed")]
    Closed,
    /// Look at the operating system's error.
    #[error("{context}: {source}")]
    Io {
        /// The operation that failed, with the path.
        context: String,
        /// The error.
        source: std::sync::Arc<std::io::Error>,
    },
    /// Report the text: the key-value engine failed in another way.
    #[error("the storage engine failed: {0}")]
    Engine(String),
}

fn pid(holder: Option<u32>) -> String {
    holder.map_or_else(String::new, |pid| format!(" by process {pid}"))
}

impl Error {
    /// Returns an error of the operating system. A full disk or quota, or a file that is too large, is [`Error::DiskFull`].
    pub(crate) fn io(context: impl Into<String>, source: std::io::Error) -> Self {
        use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        if matches!(source.kind(), StorageFull | QuotaExceeded | FileTooLarge) {
            return Error::DiskFull(context.into());
        }
        Error::Io { context: context.into(), source: std::sync::Arc::new(source) }
    }

    /// Returns the error of later writes, after this error has stopped all writes.
    pub(crate) fn after_stop(&self) -> Error {
        match self {
            Error::DiskFull(what) => {
                Error::DiskFull(format!("{what}: when there is room again, the store must be reopened"))
            }
            other => Error::Stopped(other.to_string()),
        }
    }

    /// Returns the text without the words "damaged data".
    pub(crate) fn description(&self) -> String {
        match self {
            Error::Corrupt(what) => what.clone(),
            other => other.to_string(),
        }
    }

    /// Adds the collection to an error about damaged records.
    pub(crate) fn in_collection(self, namespace: &Namespace) -> Self {
        match self {
            Error::Corrupt(what) => Error::Corrupt(format!("{namespace}: {what}")),
            other => other,
        }
    }

    fn code(&self) -> Code {
        match self {
            Error::Corrupt(_) | Error::Damaged { .. } => Code::DataCorruptionDetected,
            Error::DiskFull(_) => Code::OutOfDiskSpace,
            Error::NewerFormat { .. } | Error::NotAStore { .. } | Error::NoStore { .. } => Code::UnsupportedFormat,
            Error::Closed => Code::InterruptedAtShutdown,
            Error::InUse { .. } | Error::WithinStore { .. } => Code::IllegalOperation,
            Error::Stopped(_) | Error::Io { .. } | Error::NotWritable { .. } | Error::Engine(_) => Code::InternalError,
        }
    }

    /// Returns the error of the store contract for a write.
    pub(crate) fn into_store(self, applied: Applied) -> handfast_store::Error {
        handfast_store::Error::new(ErrorClass::Command, applied, self.code(), self.to_string()).with_source(self)
    }
}

impl From<Error> for handfast_store::Error {
    fn from(error: Error) -> Self {
        error.into_store(Applied::No)
    }
}
