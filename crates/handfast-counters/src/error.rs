//! The errors of the counters, by what the caller does next.

use std::time::Duration;

use handfast_store::{Applied, Error as StoreError};
use handfast_txn::Error as TransactionError;

use crate::COUNTED_TOTAL_MAX;

/// The result of the functions of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A request that was not carried out, or may have been ([`Error::applied`]).
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// An argument is invalid: nothing was changed.
    #[error("{what}")]
    Invalid {
        /// Describes what is wrong, and what would be right.
        what: String,
    },
    /// The queue holds as many events as it may: nothing was counted. Try again when some were saved.
    #[error("the queue is full, as it holds {events} requests at most: try again when some are saved")]
    Full {
        /// The maximum number of events in the queue: one for each request that adds views, or that deletes an item.
        events: u64,
    },
    /// The item would have more views than are counted: nothing was counted.
    #[error("the item has {views} views, and no more are counted than {COUNTED_TOTAL_MAX} in all")]
    TotalTooLarge {
        /// The total of the item.
        views: u64,
    },
    /// As many idempotency keys are remembered as may be: a request with a new one was not counted. None is forgotten before its time, as
    /// a request that is sent again with it would be counted twice.
    #[error(
        "{keys} idempotency keys are remembered, the limit: a request with a new key is refused until the oldest ones are over"
    )]
    KeysFull {
        /// The maximum number of keys.
        keys: u64,
        /// The time until the oldest one is over.
        wait: Duration,
    },
    /// The cache and the queue cannot be reached. A view may have been counted if [`Error::applied`] says so; with an
    /// idempotency key it can be sent again.
    #[error("the cache and the queue are unavailable: {what}")]
    Buffer {
        /// Describes the failure.
        what: String,
        /// Whether the request may have been applied.
        applied: Applied,
    },
    /// Redis has the queue of another store, or the store has its queue in another Redis: nothing was counted or saved.
    #[error("{what}")]
    WrongQueue {
        /// Describes which two they are, and what to do.
        what: String,
    },
    /// A document of the counters is not what they write: another program has changed it.
    #[error("a document of the counters cannot be read: {what}")]
    Damaged {
        /// Describes what is wrong, and where.
        what: String,
    },
    /// The persistent store failed.
    #[error("the store is unavailable: {0}")]
    Store(#[source] StoreError),
}

impl Error {
    /// Creates the error of an invalid argument.
    pub fn invalid(what: impl Into<String>) -> Self {
        Error::Invalid { what: what.into() }
    }

    /// Creates the error of a document that cannot be read.
    pub(crate) fn damaged(what: impl Into<String>) -> Self {
        Error::Damaged { what: what.into() }
    }

    /// Returns whether the request may have been applied.
    pub fn applied(&self) -> Applied {
        match self {
            Error::Invalid { .. }
            | Error::Full { .. }
            | Error::TotalTooLarge { .. }
            | Error::KeysFull { .. }
            | Error::WrongQueue { .. }
            | Error::Damaged { .. } => Applied::No,
            Error::Buffer { applied, .. } => *applied,
            Error::Store(error) => error.applied(),
        }
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        Error::Store(error)
    }
}

impl From<TransactionError> for Error {
    fn from(error: TransactionError) -> Self {
        match error {
            TransactionError::CommitUnknown { source, .. } => Error::Store(source.in_doubt()),
            TransactionError::Conflict(source) | TransactionError::Store(source) => Error::Store(source),
        }
    }
}
