//! The errors of the proxy and of the texts that name operations and faults.

use std::net::SocketAddr;

use crate::Fault;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why a text names nothing, or why a proxy cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text is not an operation.
    #[error("'{0}' is not an operation: write a command and its number, such as find:3")]
    Operation(String),
    /// The text is not a fault.
    #[error("'{0}' is not a fault: the faults are {all}", all = Fault::ALL.map(Fault::name).join(", "))]
    Fault(String),
    /// The text is not a pair.
    #[error("'{0}' is not an operation with a fault: write both, such as find:3/lose-reply")]
    Pair(String),
    /// The number is no probability.
    #[error("{0} is not a probability: write a number between 0 and 1")]
    Probability(f64),
    /// A rules file has a mistake.
    #[error("line {line}: {reason}")]
    RulesFile {
        /// The line, from 1.
        line: usize,
        /// The mistake, and what to write.
        reason: String,
    },
    /// A rules file is no TOML.
    #[error("line {line}, column {column}: the file is no TOML: {reason}")]
    RulesSyntax {
        /// The line, from 1.
        line: usize,
        /// The character of the line, from 1.
        column: usize,
        /// The mistake, the line itself, and what to write.
        reason: String,
    },
    /// A recording has a line that is none.
    #[error("line {line}: {reason}: record the program again with `handfast blackpipe proxy --record`")]
    Recording {
        /// The line, from 1.
        line: usize,
        /// The mistake.
        reason: String,
    },
    /// A document cannot be recorded or compared.
    #[error("a document cannot be read: {0}")]
    Document(String),
    /// A request was not expected by a script, or did not arrive.
    #[error("the script was not followed; {report}")]
    Script {
        /// The script and the requests, a line each.
        report: String,
    },
    /// A script or a call names a member that a replica set does not have.
    #[error("the replica set has no member {member}: it has {count} members, and the first one is 0")]
    Member {
        /// The number of the member.
        member: usize,
        /// The number of members.
        count: usize,
    },
    /// An answer of a script is an exhaust cursor without batches.
    #[error(
        "the answer Exhaust has no answers in it, and the client would wait for ever: give it at least one, or use Silence"
    )]
    EmptyExhaust,
    /// The script of a server alone names members or elections.
    #[error("a server alone has no members and no elections: start a ScriptedReplicaSet with this script")]
    NoReplicaSet,
    /// A scenario that is explored is wrong without any fault.
    #[error("the scenario fails without any fault: {0}")]
    WithoutFault(String),
    /// A scenario is not right after some faults.
    #[error("{wrong} of {all} pairs are not right:\n{report}")]
    Explored {
        /// The number of pairs that are not right.
        wrong: usize,
        /// The number of all pairs.
        all: usize,
        /// A line for each pair that is not right.
        report: String,
    },
    /// The address is in use or not allowed.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        source: std::io::Error,
    },
}
