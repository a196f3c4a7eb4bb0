//! What a command answers, as documents.

use bson::RawDocumentBuf;
use handfast_store::Applied;

use crate::error::CommandError;
use crate::reserve::Reserved;
use crate::writer::Writer;

/// What a command answers, without `ok`.
pub(crate) struct Answer {
    pub(crate) writer: Writer,
    /// The same command has more to say: to a client that takes several replies it is run again.
    pub(crate) more: bool,
    /// Room for the answer, until it is sent.
    pub(crate) reserved: Option<Reserved>,
}

impl From<Writer> for Answer {
    fn from(writer: Writer) -> Self {
        Answer { writer, more: false, reserved: None }
    }
}

impl Answer {
    /// `{ok: 1}`.
    pub(crate) fn done() -> Self {
        Writer::new().into()
    }
}

/// The reply to a command that succeeded.
pub(crate) fn success(mut writer: Writer) -> RawDocumentBuf {
    writer.put("ok", 1.0);
    writer.finish()
}

/// The reply to a command that failed.
pub(crate) fn failure(error: &CommandError) -> RawDocumentBuf {
    let mut writer = Writer::new();
    writer.put("ok", 0.0);
    put_error(&mut writer, error);
    writer.finish()
}

/// The label of an error after which nobody knows whether the command has changed anything: drivers hand it on, and do
/// nothing on their own. `RetryableWriteError` would make them send the command again, which only a server that keeps
/// transaction numbers may ask for.
const OUTCOME_UNKNOWN: &str = "OutcomeUnknown";

/// Writes `errmsg`, `code`, `codeName` and what is beside them.
fn put_error(writer: &mut Writer, error: &CommandError) {
    writer.put("errmsg", &*error.text()).put("code", error.code.0).put("codeName", &*error.name());
    if error.applied == Applied::Maybe {
        writer.begin_array("errorLabels").put("0", OUTCOME_UNKNOWN).end();
    }
    if let Some(details) = &error.details {
        writer.put_all(details);
    }
}
