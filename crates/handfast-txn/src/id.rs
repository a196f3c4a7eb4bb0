//! The name of a transaction, to ask for its outcome with.

use std::fmt;
use std::str::FromStr;

use handfast_mql::Code;
use handfast_store::{CommitTimestamp, Error as StoreError, Ticket};

/// Names a transaction: a session and the number of a request in it. Written `0f9c..e1:12`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TransactionId {
    /// Whose; a UUID.
    pub session: [u8; 16],
    /// Counts up within the session.
    pub number: i64,
}

impl TransactionId {
    /// What a transaction of this name goes by if nobody has asked for the name before it ended, and its engine leaves no
    /// record of such: only the process that ran it can tell its outcome. Numbers of names are not negative.
    #[must_use]
    pub fn unnamed(self) -> TransactionId {
        TransactionId { number: -1 - self.number.max(0), ..self }
    }

    /// Whether there may be a record of the outcome.
    pub fn is_named(self) -> bool {
        self.number >= 0
    }

    /// The ticket that the transaction's commit carries.
    pub fn ticket(self) -> Ticket {
        Ticket { session: self.session, number: self.number, statement: 0 }
    }
}

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.session {
            write!(f, "{byte:02x}")?;
        }
        write!(f, ":{}", self.number)
    }
}

impl FromStr for TransactionId {
    type Err = StoreError;

    /// Reads what [`Display`](fmt::Display) writes.
    fn from_str(text: &str) -> Result<Self, StoreError> {
        let refused = || {
            let why = format!("'{text}' is no transaction id: 32 hexadecimal digits, a colon and a number are");
            StoreError::command(Code::BadValue, why)
        };
        let (session, number) = text.split_once(':').ok_or_else(refused)?;
        let number = number.parse().map_err(|_| refused())?;
        if session.len() != 32 || !session.is_ascii() {
            return Err(refused());
        }
        let mut bytes = [0; 16];
        for (place, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&session[2 * place..2 * place + 2], 16).map_err(|_| refused())?;
        }
        Ok(TransactionId { session: bytes, number })
    }
}

/// What became of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is applied.
    Committed(CommitTimestamp),
    /// It is not applied, and never will be, unless it is run again under the same name: it was rolled back, or it is
    /// older than outcomes are kept.
    RolledBack,
}
