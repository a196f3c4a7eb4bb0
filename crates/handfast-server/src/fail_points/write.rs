//! `onPrimaryTransactionalWrite`: retryable writes that are not committed, or whose reply is lost.

use std::collections::BTreeSet;

use bson::raw::RawDocument;
use handfast_mql::Code;
use handfast_store::{Error, WriteError};

use crate::arguments::Arguments;
use crate::commands::Call;
use crate::error::{CommandError, CommandResult};

/// The failure of a retryable write.
#[derive(Debug)]
pub(crate) struct FailWrite {
    /// Whether the connection is closed without a reply.
    close: bool,
    /// The error of the write, which is not applied.
    before_commit: Option<Code>,
}

impl Default for FailWrite {
    fn default() -> Self {
        FailWrite { close: true, before_commit: None }
    }
}

impl FailWrite {
    pub(super) const NAME: &str = "onPrimaryTransactionalWrite";

    /// Reads the fail point's `data`.
    pub(super) fn read(data: &RawDocument) -> CommandResult<Self> {
        let mut arguments = Arguments::of_document("configureFailPoint.data", data)?;
        let close = arguments.flag("closeConnection")?.unwrap_or(true);
        let code = arguments.integer("failBeforeCommitExceptionCode")?;
        arguments.finish()?;
        let before_commit = code.map(|code| i32::try_from(code).map(Code)).transpose().map_err(|_| {
            let text = "BSON field 'configureFailPoint.data.failBeforeCommitExceptionCode' is out of range";
            CommandError::new(Code::BadValue, text)
        })?;
        Ok(FailWrite { close, before_commit })
    }
}

/// Enters the fail point for a retryable write of one statement. Returns the error if the write must not be applied.
pub(crate) fn fail_statement(call: &Call<'_>) -> Option<Error> {
    let points = call.shared.fail_points.as_ref()?;
    let ticket = call.ticket()?;
    let data = points.write.enter(|_| true)?;
    if data.close {
        call.client.hang_up();
    }
    let text = format!("Failing write of number {} due to failpoint. The write must not be reflected.", ticket.number);
    data.before_commit.map(|code| Error::command(code, text))
}

/// Enters the fail point for each statement of a retryable write that was not applied before. If one must not be applied, it and
/// those behind it are removed, and its error is returned.
pub(crate) fn fail_statements<T>(
    call: &Call<'_>,
    done: &BTreeSet<usize>,
    statements: &mut Vec<T>,
) -> Option<WriteError> {
    let mut fresh = (0..statements.len()).filter(|position| !done.contains(position));
    let (index, error) = fresh.find_map(|position| fail_statement(call).map(|error| (position, error)))?;
    statements.truncate(index);
    Some(WriteError { index, error })
}
