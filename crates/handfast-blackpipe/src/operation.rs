//! The names of operations and of their faults, as people write them: `find:3`, `find:3/lose-reply`.
//!
//! An operation is named by its command and its number among the operations of that command, counted from 1 over all connections. A
//! program that sends the same commands in every run gets the same names in every run, whatever connections its driver uses.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use crate::{Error, Fault, Result};

/// An operation of the application as it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation<'a> {
    /// The name of its command, such as `find`.
    pub command: &'a str,
    /// Its collection with the database, such as `bank.accounts`, if it names one.
    pub collection: Option<&'a str>,
    /// Whether the client waits for a reply. It does not for an unacknowledged write.
    pub has_reply: bool,
}

impl<'a> Operation<'a> {
    /// Returns an operation that names no collection and has a reply.
    pub fn of(command: &'a str) -> Self {
        Operation { command, collection: None, has_reply: true }
    }

    /// Returns whether it is on this collection, which may be written with or without its database.
    pub(crate) fn is_on(&self, collection: &str) -> bool {
        self.collection.is_some_and(|found| {
            found == collection || found.split_once('.').is_some_and(|(_, name)| name == collection)
        })
    }
}

/// An operation by its name: the command, and its number among the operations of that command.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationNumber {
    /// The name of the command, such as `find`.
    pub command: String,
    /// The number, which begins with 1.
    pub number: NonZeroU32,
}

impl fmt::Display for OperationNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.command, self.number)
    }
}

impl FromStr for OperationNumber {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || Error::Operation(text.to_owned());
        let (command, number) = text.split_once(':').ok_or_else(wrong)?;
        if command.is_empty() || !command.chars().all(|character| character.is_ascii_alphanumeric()) {
            return Err(wrong());
        }
        Ok(OperationNumber { command: command.to_owned(), number: number.parse().map_err(|_| wrong())? })
    }
}

/// An operation and the fault that it meets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pair {
    /// The operation.
    pub operation: OperationNumber,
    /// The fault.
    pub fault: Fault,
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.operation, self.fault)
    }
}

impl FromStr for Pair {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (operation, fault) = text.split_once('/').ok_or_else(|| Error::Pair(text.to_owned()))?;
        Ok(Pair { operation: operation.parse()?, fault: fault.parse()? })
    }
}

#[cfg(test)]
mod tests {
    use super::{Operation, OperationNumber, Pair};

    #[test]
    fn a_pair_is_read_as_it_is_written() {
        for text in ["find:3/lose-reply", "findAndModify:1/lose-request"] {
            assert_eq!(text.parse::<Pair>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn an_error_says_what_to_write() {
        let check = |text: &str, expected: &str| {
            let error = text.parse::<Pair>().unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains(" such as find:3") != error.contains("the faults are"));
        };
        check("find:3", "'find:3' is not an operation with a fault");
        check("find/lose-reply", "'find' is not an operation:");
        check("find:0/lose-reply", "'find:0' is not an operation:");
        check(":1/lose-reply", "':1' is not an operation:");
        check("find:3/lose", "'lose' is not a fault");
    }

    #[test]
    fn a_collection_is_known_with_and_without_its_database() {
        let operation = Operation { collection: Some("bank.accounts.old"), ..Operation::of("find") };
        assert!(operation.is_on("bank.accounts.old") && operation.is_on("accounts.old"));
        assert!(!operation.is_on("old") && !operation.is_on("accounts") && !Operation::of("ping").is_on("accounts"));
    }

    #[test]
    fn operations_of_a_command_are_ordered_by_their_numbers() {
        let of = |text: &str| text.parse::<OperationNumber>().unwrap();
        assert!(of("find:2") < of("find:10"));
    }
}
