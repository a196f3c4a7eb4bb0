//! What can go wrong with a directory and its engine, named by what the caller does next.

use std::path::PathBuf;

use handfast_mql::Code;
use handfast_store::{Applied, ErrorClass, Namespace};

/// What the functions about directories return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A directory that cannot be opened, read or written.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// Stop the other process, or choose another directory.
    #[error("the directory {directory} is in use{}", pid(*.holder))]
    InUse {
        /// The store's directory.
        directory: PathBuf,
        /// The process that has it, if it left its number.
        holder: Option<u32>,
    },
    /// Choose another directory: this one holds something else.
    #[error("the directory {directory} is not empty and holds no handfast store; nothing was written to it")]
    NotAStore {
        /// The directory.
        directory: PathBuf,
    },
    /// Name the directory of a store: there is none in this one, and none was made.
    #[error("the directory {directory} holds no handfast store")]
    NoStore {
        /// The directory.
        directory: PathBuf,
    },
    /// Copy the directory to where it may be written to: the storage engine opens its files for writing, also those that
    /// it only reads.
    #[error(
        "the directory {directory} cannot be written to ({source}), which the storage engine needs even to read it"
    )]
    NotWritable {
        /// The store's directory.
        directory: PathBuf,
        /// The error of the operating system.
        source: std::sync::Arc<std::io::Error>,
    },
    /// Choose a directory outside of the store's own, which holds nothing else.
    #[error("{target} is within the data directory {directory}")]
    WithinStore {
        /// The store's directory.
        directory: PathBuf,
        /// What was to be written there.
        target: PathBuf,
    },
    /// Take a newer program.
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
    /// Run the check: what is stored is not what was written.
    #[error(
        "the store in {directory} is damaged: {what}; run `handfast check --data {directory}`, and read what it \
             says before you run it with `--repair`"
    )]
    Damaged {
        /// The store's directory.
        directory: PathBuf,
        /// What was found.
        what: String,
    },
    /// A record is not what was written: its checksum says so, or the engine could not read it.
    #[error("damaged data: {0}")]
    Corrupt(String),
    /// Make room on the disk; then open the store again.
    #[error("no space left on the disk under {0}")]
    DiskFull(String),
    /// Open the store again: a write or a sync failed, and nobody can tell what is on the disk.
    #[error("the store must be reopened: {0}")]
    Stopped(String),
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
    /// Look at the operating system's error.
    #[error("{context}: {source}")]
    Io {
        /// What was tried, with the path.
        context: String,
        /// The error.
        source: std::sync::Arc<std::io::Error>,
    },
    /// The key-value engine failed in another way.
    #[error("the storage engine failed: {0}")]
    Engine(String),
}

fn pid(holder: Option<u32>) -> String {
    holder.map_or_else(String::new, |pid| format!(" by process {pid}"))
}

impl Error {
    /// An error of the operating system; a full disk is told apart, and what is one for this user or file.
    pub(crate) fn io(context: impl Into<String>, source: std::io::Error) -> Self {
        use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        if matches!(source.kind(), StorageFull | QuotaExceeded | FileTooLarge) {
            return Error::DiskFull(context.into());
        }
        Error::Io { context: context.into(), source: std::sync::Arc::new(source) }
    }

    /// What a write is refused with after this one, by which the store has stopped writing.
    pub(crate) fn afterwards(&self) -> Error {
        match self {
            Error::DiskFull(what) => {
                Error::DiskFull(format!("{what}: when there is room again, the store must be reopened"))
            }
            other => Error::Stopped(other.to_string()),
        }
    }

    /// What is wrong, without saying that it is damage.
    pub(crate) fn words(&self) -> String {
        match self {
            Error::Corrupt(what) => what.clone(),
            other => other.to_string(),
        }
    }

    /// Says whose records are damaged.
    pub(crate) fn of(self, namespace: &Namespace) -> Self {
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

    /// As an error of the store that a failed write is reported with.
    pub(crate) fn into_store(self, applied: Applied) -> handfast_store::Error {
        handfast_store::Error::new(ErrorClass::Command, applied, self.code(), self.to_string()).with_source(self)
    }
}

impl From<Error> for handfast_store::Error {
    fn from(error: Error) -> Self {
        error.into_store(Applied::No)
    }
}
