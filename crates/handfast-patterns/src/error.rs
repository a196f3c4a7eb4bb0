//! The error type of the crate. Its kinds are named after what the caller does next.

use handfast_mql::Code;
use handfast_store::{Applied, Error as StoreError, ErrorClass};

use crate::SettingsDifference;

/// The result type of the functions of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure: the request was not carried out, or may have been ([`Error::applied`]).
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The store failed, also at the second attempt of a step that may be repeated. Every function that uses the store
    /// can fail with this error. If [`Error::applied`] is [`Applied::Maybe`], repeat the request with the same token
    /// or the same id, which has no second effect, or leave it to the pattern's recovery.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An argument or an option is invalid: nothing was changed.
    #[error("{what}")]
    Invalid {
        /// Describes what is wrong, and what would be right.
        what: String,
    },
    /// The store has a record of this pattern with other settings. Nothing was done. Open the pattern with the
    /// recorded settings, or change the record by an explicit call.
    #[error(
        "{record} records other settings: {}; open it with the recorded ones, or change the record first",
        shown(differences)
    )]
    OtherSettings {
        /// The collection of the record.
        record: String,
        /// The settings that differ.
        differences: Vec<SettingsDifference>,
    },
    /// Other processes were faster at each of many attempts. Nothing was done. Try again later.
    #[error("{what}, at each of {attempts} attempts")]
    Contended {
        /// Describes what others did.
        what: String,
        /// The number of attempts.
        attempts: u32,
    },
    /// The version that was being read has been pruned. Read a newer one.
    #[error("{what} is gone: it was pruned")]
    Gone {
        /// Names the version.
        what: String,
    },
    /// The requested item does not exist, and nothing shows that it ever did.
    #[error("there is no {what}")]
    Missing {
        /// Names the item.
        what: String,
    },
    /// A document is not as the pattern writes it, because another program has changed it. The pattern left it
    /// unchanged.
    #[error("document {id} of {namespace} is not what this pattern writes: {what}")]
    Damaged {
        /// The collection.
        namespace: String,
        /// The `_id` of the document.
        id: String,
        /// Describes the error.
        what: String,
    },
}

impl Error {
    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        Error::Invalid { what: what.into() }
    }

    /// Returns whether the request may have been carried out all the same.
    pub fn applied(&self) -> Applied {
        match self {
            Error::Store(error) => error.applied(),
            Error::Invalid { .. }
            | Error::OtherSettings { .. }
            | Error::Contended { .. }
            | Error::Gone { .. }
            | Error::Missing { .. }
            | Error::Damaged { .. } => Applied::No,
        }
    }

    /// Returns the class of the error, which says what the caller can do about it.
    pub fn class(&self) -> ErrorClass {
        match self {
            Error::Store(error) => error.class(),
            Error::Invalid { .. }
            | Error::OtherSettings { .. }
            | Error::Contended { .. }
            | Error::Gone { .. }
            | Error::Missing { .. }
            | Error::Damaged { .. } => ErrorClass::Command,
        }
    }

    /// Returns MongoDB's code for the error.
    pub fn code(&self) -> Code {
        match self {
            Error::Store(error) => error.code(),
            Error::Invalid { .. } | Error::OtherSettings { .. } => Code::BadValue,
            Error::Contended { .. } => Code::WriteConflict,
            Error::Gone { .. } => Code::SnapshotTooOld,
            Error::Missing { .. } => Code::NoSuchKey,
            Error::Damaged { .. } => Code::TypeMismatch,
        }
    }
}

fn shown(differences: &[SettingsDifference]) -> String {
    differences.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Converts the error for closures of transactions, whose errors are those of the store.
impl From<Error> for StoreError {
    fn from(error: Error) -> Self {
        match error {
            Error::Store(error) => error,
            other => StoreError::command(other.code(), other.to_string()),
        }
    }
}

/// Converts the error for closures whose errors are those of a transaction.
impl From<Error> for handfast_txn::Error {
    fn from(error: Error) -> Self {
        StoreError::from(error).into()
    }
}

/// Converts the error of a transaction that a program runs beside a pattern.
impl From<handfast_txn::Error> for Error {
    fn from(error: handfast_txn::Error) -> Self {
        Error::Store(error.into())
    }
}
