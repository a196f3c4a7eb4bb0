//! Errors of transactions, by what the caller does next.

use handfast_mql::Code;
use handfast_store::{Applied, Error as StoreError, ErrorClass};

use crate::TransactionId;

/// The result of functions of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A transaction that did not commit, or is not known to have committed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// Another transaction was first, or the snapshot is gone: nothing was applied. Run the whole transaction again.
    #[error("the transaction lost against another one and was rolled back: {0}")]
    Conflict(#[source] StoreError),
    /// The answer to the commit got lost. Ask with [`Database::outcome`](crate::Database::outcome) before doing anything
    /// else: to run the transaction again may do it twice.
    #[error("the outcome of transaction {id} is unknown, ask for it by this id: {source}")]
    CommitUnknown {
        /// The name to ask by.
        id: TransactionId,
        /// The error of the commit.
        source: StoreError,
    },
    /// The store or the language refused: nothing was applied, and to run it again will not help.
    #[error(transparent)]
    Store(StoreError),
}

impl Error {
    /// Classifies an error of a request or a commit that was certainly not applied.
    pub fn of_store(error: StoreError) -> Self {
        if is_transient(&error) { Error::Conflict(error) } else { Error::Store(error) }
    }

    /// Returns MongoDB's error code.
    pub fn code(&self) -> Code {
        match self {
            Error::Conflict(error) | Error::Store(error) | Error::CommitUnknown { source: error, .. } => error.code(),
        }
    }

    /// Returns whether the transaction may have been applied.
    pub fn applied(&self) -> Applied {
        match self {
            Error::CommitUnknown { .. } => Applied::Maybe,
            Error::Conflict(_) | Error::Store(_) => Applied::No,
        }
    }
}

/// Returns whether the same transaction may succeed if it is run again from its beginning.
pub fn is_transient(error: &StoreError) -> bool {
    let conflict = matches!(error.code(), Code::WriteConflict | Code::SnapshotTooOld | Code::NoSuchTransaction);
    error.applied() == Applied::No && (conflict || error.class() == ErrorClass::TransientNetwork)
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        Error::of_store(error)
    }
}

impl From<Error> for StoreError {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match error {
            Error::Conflict(error) | Error::Store(error) => error,
            Error::CommitUnknown { source, .. } => {
                StoreError::new(source.class(), Applied::Maybe, source.code(), text).with_source(source)
            }
        }
    }
}
