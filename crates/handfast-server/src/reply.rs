//! What a command answers, as documents.

use bson::RawDocumentBuf;

use crate::error::CommandError;
use crate::reserve::Reserved;
use crate::transactions::labels;
use crate::writer::Writer;

/// What a command answers, without `ok`.
pub(crate) struct Answer {
    pub(crate) writer: Writer,
    /// The same command has more to say: to a client that takes several replies it is run again.
    pub(crate) more: bool,
    /// Room for the answer, until it is sent.
    pub(crate) reserved: Option<Reserved>,
    /// A statement was refused: the reply says which, and a transaction ends by it.
    pub(crate) refused: bool,
}

impl From<Writer> for Answer {
    fn from(writer: Writer) -> Self {
        Answer { writer, more: false, reserved: None, refused: false }
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
    labelled_failure(error, &labels::of_outcome(error))
}

/// The reply to a command that failed, with what the driver is to do about it.
pub(crate) fn labelled_failure(error: &CommandError, labels: &[&str]) -> RawDocumentBuf {
    let mut writer = Writer::new();
    writer.put("ok", 0.0);
    put_error(&mut writer, error);
    put_labels(&mut writer, labels);
    writer.finish()
}

/// Writes `errorLabels`, if there are any.
pub(crate) fn put_labels(writer: &mut Writer, labels: &[&str]) {
    if !labels.is_empty() {
        writer.array("errorLabels", labels.iter().copied());
    }
}

/// Writes `errmsg`, `code`, `codeName` and what is beside them.
fn put_error(writer: &mut Writer, error: &CommandError) {
    writer.put("errmsg", &*error.text()).put("code", error.code.0).put("codeName", &*error.name());
    if let Some(details) = &error.details {
        writer.put_all(details);
    }
}
