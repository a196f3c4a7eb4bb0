//! `pauseBeforeCommit`: a delay between the beginning of a commit and its request to the store. MongoDB has no such fail point. Tests
//! use it to end the session during a commit.

use std::time::Duration;

use bson::raw::RawDocument;

use super::FailPoints;
use crate::arguments::Arguments;
use crate::error::CommandResult;

/// A pause before each commit.
#[derive(Debug, Default)]
pub(crate) struct PauseBeforeCommit {
    pause: Duration,
}

impl PauseBeforeCommit {
    pub(super) const NAME: &str = "pauseBeforeCommit";

    /// Reads the fail point's `data`.
    pub(super) fn read(data: &RawDocument) -> CommandResult<Self> {
        let mut arguments = Arguments::of_document("configureFailPoint.data", data)?;
        let millis = arguments.unsigned("blockTimeMS")?.unwrap_or(0);
        arguments.finish()?;
        Ok(PauseBeforeCommit { pause: Duration::from_millis(millis) })
    }
}

/// Returns the pause of a commit, if the fail point is entered.
pub(crate) fn pause(points: Option<&FailPoints>) -> Option<Duration> {
    points.and_then(|points| points.commit.enter(|_| true)).map(|data| data.pause)
}
