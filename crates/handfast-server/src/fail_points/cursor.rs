//! `failGetMoreAfterCursorCheckout`: a `getMore` that fails when it has its cursor, which is closed.

use bson::raw::RawDocument;
use handfast_mql::Code;

use super::FailPoints;
use crate::arguments::Arguments;
use crate::error::{CommandError, CommandResult};

/// The error of a `getMore`.
#[derive(Debug)]
pub(crate) struct FailGetMore {
    code: Code,
}

impl Default for FailGetMore {
    fn default() -> Self {
        FailGetMore { code: Code::InternalError }
    }
}

impl FailGetMore {
    pub(super) const NAME: &str = "failGetMoreAfterCursorCheckout";

    /// Reads the fail point's `data`.
    pub(super) fn read(data: &RawDocument) -> CommandResult<Self> {
        let mut arguments = Arguments::of_document("configureFailPoint.data", data)?;
        let code = arguments.integer("errorCode")?;
        arguments.unsupported(&["closeConnection"])?;
        arguments.finish()?;
        let code = code.and_then(|code| i32::try_from(code).ok()).map(Code);
        Ok(FailGetMore { code: code.unwrap_or(Code::InternalError) })
    }
}

/// Returns the error of a `getMore`, if the fail point is entered.
pub(crate) fn fail_get_more(points: Option<&FailPoints>) -> Option<CommandError> {
    let data = points?.cursor.enter(|_| true)?;
    Some(CommandError::new(data.code, format!("Hit a '{}' failpoint", FailGetMore::NAME)))
}
