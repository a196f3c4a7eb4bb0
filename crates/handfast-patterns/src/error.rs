//! Why a pattern did not do what it was asked, by what the caller does next.

use handfast_mql::Code;
use handfast_store::{Applied, Error as StoreError, ErrorClass};

use crate::SettingsDifference;

/// What the functions of this crate return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why it did not happen, or is not known to have.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The store failed, also at the second attempt of a step that may be repeated. If [`Error::applied`] is
    /// [`Applied::Maybe`], ask again in the same words (the same token, the same id): that does nothing twice. Or leave
    /// it to the pattern's recovery.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What was asked for, or a setting, makes no sense: nothing was sent to the store.
    #[error("{what}")]
    Invalid {
        /// What is wrong, and what would be right.
        what: String,
    },
    /// The pattern is recorded in this store with other settings: nothing was done. Open it with the recorded ones, or change the
    /// record by an explicit call.
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
    /// Others were faster at each of many attempts: nothing was done. Try again later.
    #[error("{what}, at each of {attempts} attempts")]
    Contended {
        /// What others did.
        what: String,
        /// How often it was tried.
        attempts: u32,
    },
    /// What was being read is not kept any more: look for what is there now.
    #[error("{what} is gone: it was pruned")]
    Gone {
        /// What it was.
        what: String,
    },
    /// There is no such thing, and nothing says that there ever was.
    #[error("there is no {what}")]
    Missing {
        /// What was asked for.
        what: String,
    },
    /// A document is not what the pattern writes: somebody else has changed it. Nothing was done to it.
    #[error("document {id} of {namespace} is not what this pattern writes: {what}")]
    Damaged {
        /// Where it is.
        namespace: String,
        /// Its `_id`.
        id: String,
        /// What is wrong with it.
        what: String,
    },
}

impl Error {
    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        Error::Invalid { what: what.into() }
    }

    /// Whether it may have happened all the same.
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

    /// What to do about it.
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

    /// MongoDB's code.
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

/// For closures of transactions, whose errors are those of the store.
impl From<Error> for StoreError {
    fn from(error: Error) -> Self {
        match error {
            Error::Store(error) => error,
            other => StoreError::command(other.code(), other.to_string()),
        }
    }
}
