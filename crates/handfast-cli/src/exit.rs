//! How a command ends, for the shell.

use std::process::ExitCode;

use handfast_embedded::Error as Embedded;
use handfast_mql::Code;

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
    /// A guarantee did not hold: damage was found. Or nobody can say, as not everything can be seen.
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

/// A command cannot see all that it is to judge or to change: it says what it misses, instead of a verdict on the rest or a guess.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct CannotSee(pub(crate) String);

impl Exit {
    /// The code that an error stands for, wherever in its chain the reason is.
    pub(crate) fn of(error: &anyhow::Error) -> Self {
        let mut chain = error.chain();
        chain
            .find_map(|cause| {
                if cause.is::<Usage>()
                    || cause.downcast_ref::<Mistake>().is_some_and(is_usage)
                    || is_within_store(cause)
                    || contradicts_record(cause)
                {
                    Some(Exit::Usage)
                } else if cause.is::<CannotSee>() || is_damage(cause) {
                    Some(Exit::GuaranteeBroken)
                } else {
                    None
                }
            })
            .unwrap_or(Exit::Failed)
    }
}

fn is_within_store(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause.downcast_ref().is_some_and(|error| matches!(error, Embedded::WithinStore { .. }))
}

/// Whether the settings that were said are not the recorded ones.
fn contradicts_record(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause.downcast_ref().is_some_and(|error| matches!(error, handfast_patterns::Error::OtherSettings { .. }))
}

/// Whether it is what was asked for that is wrong: a file that cannot be read may be there the next time.
fn is_usage(mistake: &Mistake) -> bool {
    !matches!(mistake, Mistake::Unreadable { .. })
}

/// Whether the store says that what is stored is not what was written.
fn is_damage(cause: &(dyn std::error::Error + 'static)) -> bool {
    let embedded = cause.downcast_ref::<Embedded>();
    let store = cause.downcast_ref::<handfast_store::Error>().or_else(|| match cause.downcast_ref() {
        Some(handfast_patterns::Error::Store(error)) => Some(error),
        _ => None,
    });
    embedded.is_some_and(|error| matches!(error, Embedded::Damaged { .. } | Embedded::Corrupt(_)))
        || store.is_some_and(|error| error.code() == Code::DataCorruptionDetected)
}
