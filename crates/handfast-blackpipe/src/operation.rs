//! The names of operations and faults, as people write them: `find:3`, `lose-reply`, `find:3/lose-reply`.
//!
//! An operation is named by its command and its number among the operations of that command, counted from 1 over all connections. A
//! program that sends the same commands in every run gets the same names in every run, whatever connections its driver uses.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use crate::{Error, Result};

/// An operation of the application: the command, and its number among the operations of that command.
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

/// A fault of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// The connection is closed before the request reaches the server.
    LoseRequest,
    /// The connection is closed after the server has answered, and the reply is not sent.
    LoseReply,
}

impl Fault {
    /// All faults.
    pub const ALL: [Fault; 2] = [Fault::LoseRequest, Fault::LoseReply];

    /// Returns the name that people write.
    pub fn name(self) -> &'static str {
        match self {
            Fault::LoseRequest => "lose-request",
            Fault::LoseReply => "lose-reply",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Fault {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Fault::ALL.into_iter().find(|fault| fault.name() == text).ok_or_else(|| Error::Fault(text.to_owned()))
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
    use super::{Fault, OperationNumber, Pair};

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
    fn every_fault_has_a_name_of_its_own() {
        for fault in Fault::ALL {
            assert_eq!(fault.to_string().parse::<Fault>().unwrap(), fault);
        }
    }

    #[test]
    fn operations_of_a_command_are_ordered_by_their_numbers() {
        let of = |text: &str| text.parse::<OperationNumber>().unwrap();
        assert!(of("find:2") < of("find:10"));
    }
}
