//! Exit codes.

use std::process::ExitCode;

use handfast_embedded::Error as Embedded;
use handfast_mql::Code;

use crate::configuration::Mistake;

/// The exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Good = 0,
    /// The operation failed.
    Failed = 1,
    /// The arguments or settings are wrong. The parser of the command line uses the same code.
    Usage = 2,
    /// A guarantee did not hold, such as damage that was found; or the command cannot see enough to tell.
    GuaranteeBroken = 3,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// An error in the arguments or settings.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Usage(pub(crate) String);

/// The error of a command that cannot see all that it has to check or change: it names what is missing.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct CannotSee(pub(crate) String);

impl Exit {
    /// Returns the exit code of an error, wherever in its chain the reason is.
    pub(crate) fn of(error: &anyhow::Error) -> Self {
        let mut chain = error.chain();
        chain
            .find_map(|cause| {
                if cause.is::<Usage>()
                    || cause.downcast_ref::<Mistake>().is_some_and(is_usage)
                    || is_within_store(cause)
                    || contradicts_record(cause)
                    || matches!(cause.downcast_ref(), Some(handfast_counters::Error::Invalid { .. }))
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

/// Returns whether flags contradict the recorded settings.
fn contradicts_record(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause.downcast_ref().is_some_and(|error| matches!(error, handfast_patterns::Error::OtherSettings { .. }))
}

/// Returns whether the configuration is wrong; an unreadable file may be readable the next time.
fn is_usage(mistake: &Mistake) -> bool {
    !matches!(mistake, Mistake::Unreadable { .. })
}

/// Returns whether the store reports damaged data.
fn is_damage(cause: &(dyn std::error::Error + 'static)) -> bool {
    let embedded = cause.downcast_ref::<Embedded>();
    let store = cause.downcast_ref::<handfast_store::Error>().or_else(|| match cause.downcast_ref() {
        Some(handfast_patterns::Error::Store(error)) => Some(error),
        _ => None,
    });
    let counters = cause.downcast_ref::<handfast_counters::Error>();
    counters.is_some_and(|error| matches!(error, handfast_counters::Error::Damaged { .. }))
        || embedded.is_some_and(|error| matches!(error, Embedded::Damaged { .. } | Embedded::Corrupt(_)))
        || store.is_some_and(|error| error.code() == Code::DataCorruptionDetected)
}
