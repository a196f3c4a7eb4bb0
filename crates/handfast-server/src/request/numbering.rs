//! The number of a request in its session: `txnNumber`, `autocommit` and `startTransaction`.
//!
//! ```text
//! txnNumber  autocommit  startTransaction
//! -          -           -                  an ordinary request
//! 7          -           -                  a retryable write, which is applied once, however often it is sent
//! 7          false       true               the first request of a transaction
//! 7          false       -                  a further request of it, its commit or its abort
//! ```
//!
//! All other combinations are refused.

use bson::raw::RawBsonRef;
use handfast_mql::Code;

use super::{boolean, mismatch};
use crate::error::{CommandError, CommandResult};

/// The number of a request in its session, if the client numbers it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Numbering {
    /// The request has no number.
    #[default]
    None,
    /// A retryable write of this number.
    RetryableWrite(i64),
    /// A request of a transaction.
    Transaction {
        /// The transaction's number.
        number: i64,
        /// Whether it is the transaction's first request.
        starts: bool,
    },
}

impl Numbering {
    /// Returns the number, if there is one.
    pub(crate) fn number(self) -> Option<i64> {
        match self {
            Numbering::None => None,
            Numbering::RetryableWrite(number) | Numbering::Transaction { number, .. } => Some(number),
        }
    }

    /// Returns whether the request is part of a transaction.
    pub(crate) fn is_in_transaction(self) -> bool {
        matches!(self, Numbering::Transaction { .. })
    }
}

/// The three fields as received.
#[derive(Default)]
pub(super) struct Fields {
    number: Option<i64>,
    autocommit: Option<bool>,
    starts: Option<bool>,
}

impl Fields {
    pub(super) fn read_number(&mut self, value: RawBsonRef<'_>) -> CommandResult<()> {
        let RawBsonRef::Int64(number) = value else { return Err(mismatch("txnNumber", value, "type 'long'")) };
        self.number = Some(number);
        Ok(())
    }

    pub(super) fn read_autocommit(&mut self, value: RawBsonRef<'_>) -> CommandResult<()> {
        self.autocommit = Some(boolean("autocommit", value)?);
        Ok(())
    }

    pub(super) fn read_start(&mut self, value: RawBsonRef<'_>) -> CommandResult<()> {
        self.starts = Some(boolean("startTransaction", value)?);
        Ok(())
    }

    /// Checks the fields against each other.
    pub(super) fn validate(self, has_session: bool) -> CommandResult<Numbering> {
        let refused = |text: &str| Err(CommandError::new(Code::InvalidOptions, text));
        match self {
            Fields { number: Some(_), .. } if !has_session => {
                refused("Transaction number requires a session ID to also be specified")
            }
            Fields { number: Some(number), .. } if number < 0 => refused("Transaction number cannot be negative"),
            Fields { number: None, autocommit: Some(_), .. } => {
                refused("'autocommit' field requires a transaction number to also be specified")
            }
            Fields { number: None, starts: Some(_), .. } => {
                refused("'startTransaction' field requires a transaction number to also be specified")
            }
            Fields { autocommit: None, starts: Some(_), .. } => {
                refused("'startTransaction' field requires 'autocommit' field to also be specified")
            }
            Fields { autocommit: Some(true), .. } => refused("Specifying autocommit=true is not allowed."),
            Fields { starts: Some(false), .. } => refused("Specifying startTransaction=false is not allowed."),
            Fields { number: None, .. } => Ok(Numbering::None),
            Fields { number: Some(number), autocommit: None, .. } => Ok(Numbering::RetryableWrite(number)),
            Fields { number: Some(number), autocommit: Some(false), starts } => {
                Ok(Numbering::Transaction { number, starts: starts.is_some() })
            }
        }
    }
}
