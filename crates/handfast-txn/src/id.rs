//! The name of a transaction, by which its outcome can be asked for.

use std::fmt;
use std::str::FromStr;

use handfast_mql::Code;
use handfast_store::{CommitTimestamp, Error as StoreError, RequestedDocument, Ticket};

/// Names a transaction: a session and the number of a request in it. Written `0f9c..e1:12`.
///
/// A session that the library makes is a UUID of version 8 with the snapshot of its first transaction in it. A transaction whose name is
/// asked for has a session of its own.
///
/// ```text
/// 3fa1 62c0 77d2 8b10 8000 0000 0000 04d2
/// chance         |    |  commit 1234
///                version and variant of the UUID
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TransactionId {
    /// The session, a UUID.
    pub session: [u8; 16],
    /// The number of the request, which ascends within the session.
    pub number: i64,
}

/// The bits of the version and of the variant in the halves of a UUID, and their values in names that the library makes.
const VERSION_BITS: u64 = 0xf000;
const VERSION: u64 = 0x8000;
const VARIANT_BITS: u64 = 0xc000_0000_0000_0000;
const VARIANT: u64 = 0x8000_0000_0000_0000;

impl TransactionId {
    /// Makes a name for a transaction with this snapshot from a random number.
    #[must_use]
    pub fn made(chance: u64, snapshot: CommitTimestamp) -> TransactionId {
        let upper = chance & !VERSION_BITS | VERSION;
        let lower = snapshot.0 & !VARIANT_BITS | VARIANT;
        let mut session = [0; 16];
        session[..8].copy_from_slice(&upper.to_be_bytes());
        session[8..].copy_from_slice(&lower.to_be_bytes());
        TransactionId { session, number: 1 }
    }

    /// Returns the snapshot that the session was made with, if the library made it. A commit of the transaction is later.
    pub fn snapshot(self) -> Option<CommitTimestamp> {
        let (upper, lower) = self.session.split_at(8);
        let half = |bytes: &[u8]| bytes.iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
        let (upper, lower): (u64, u64) = (half(upper), half(lower));
        let is_made = upper & VERSION_BITS == VERSION && lower & VARIANT_BITS == VARIANT;
        is_made.then_some(CommitTimestamp(lower & !VARIANT_BITS))
    }

    /// Returns the name of a transaction that leaves no record because its name was not asked for before it ended: only the process that ran it
    /// knows its outcome. Its number is negative.
    #[must_use]
    pub fn unnamed(self) -> TransactionId {
        TransactionId { number: -1 - self.number.max(0), ..self }
    }

    /// Returns whether there may be a record of the outcome.
    pub fn is_named(self) -> bool {
        self.number >= 0
    }

    /// Returns the ticket that the transaction's commit carries.
    pub fn ticket(self) -> Ticket {
        Ticket { session: self.session, number: self.number, statement: 0, requested: RequestedDocument::Nothing }
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

/// The outcome of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is applied.
    Committed(CommitTimestamp),
    /// It is not applied, and never will be unless it is run again under the same name.
    RolledBack,
    /// It is unknown for good: if it committed, the record was forgotten ([`Database::forget_outcomes`](crate::Database::forget_outcomes)).
    Forgotten,
}

#[cfg(test)]
mod tests {
    use handfast_store::CommitTimestamp;

    use super::TransactionId;

    #[test]
    fn a_name_says_what_its_transaction_read() {
        for snapshot in [0, 1, 1234, 1 << 40, (1 << 62) - 1] {
            for chance in [0, 1, u64::MAX] {
                let id = TransactionId::made(chance, CommitTimestamp(snapshot));
                assert_eq!(id.snapshot(), Some(CommitTimestamp(snapshot)));
                assert_eq!(id.to_string().parse::<TransactionId>().unwrap(), id);
            }
        }
        let id = TransactionId::made(0x3fa1_62c0_77d2_0b10, CommitTimestamp(1234));
        assert_eq!(id.to_string(), "3fa162c077d28b1080000000000004d2:1");
        // A driver's id is random.
        let of_a_driver: TransactionId = "00112233445546778899aabbccddeeff:7".parse().unwrap();
        assert_eq!(of_a_driver.snapshot(), None);
    }
}
