//! How a command ends, for the shell.

use std::process::ExitCode;

use crate::configuration::Mistake;

/// The exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It did what it was asked for.
    Good = 0,
    /// The operation failed.
    Failed = 1,
    /// It was asked wrongly. The parser of the command line uses the same code.
    Usage = 2,
    /// A guarantee did not hold: damage was found.
    GuaranteeBroken = 3,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// An error that is the caller's mistake.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Usage(pub(crate) String);

/// An error that means a guarantee did not hold.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Broken(pub(crate) String);

impl Exit {
    /// The code that an error stands for, wherever in its chain the reason is.
    pub(crate) fn of(error: &anyhow::Error) -> Self {
        let mut chain = error.chain();
        chain
            .find_map(|cause| {
                if cause.is::<Usage>() || cause.is::<Mistake>() {
                    Some(Exit::Usage)
                } else if cause.is::<Broken>() {
                    Some(Exit::GuaranteeBroken)
                } else {
                    None
                }
            })
            .unwrap_or(Exit::Failed)
    }
}
