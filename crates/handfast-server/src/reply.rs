//! Replies to commands, as documents.

use bson::{RawDocument, RawDocumentBuf};
use handfast_mql::Code;

use crate::cluster_time::ClusterTime;
use crate::error::CommandError;
use crate::memory_budget::MemoryReservation;
use crate::transactions::labels;
use crate::writer::Writer;

/// The reply of a command, without `ok`.
pub(crate) struct Answer {
    pub(crate) writer: Writer,
    /// The command has further replies: for a client that takes several replies it is run again.
    pub(crate) more: bool,
    /// Room for the answer, until it is sent.
    pub(crate) reserved: Option<MemoryReservation>,
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
pub(crate) fn success(mut writer: Writer, time: Option<&ClusterTime>) -> RawDocumentBuf {
    writer.put("ok", 1.0);
    timed(writer, time)
}

/// The reply to a message that is refused before it is a command.
pub(crate) fn failure(error: &CommandError) -> RawDocumentBuf {
    labelled_failure(error, &labels::of_outcome(error)).finish()
}

/// The reply to a command that failed, with its error labels.
pub(crate) fn labelled_failure(error: &CommandError, labels: &[&str]) -> Writer {
    let mut writer = Writer::new();
    writer.put("ok", 0.0);
    put_error(&mut writer, error);
    put_labels(&mut writer, labels);
    writer
}

/// The reply, with the time that a replica set puts into each.
pub(crate) fn timed(mut writer: Writer, time: Option<&ClusterTime>) -> RawDocumentBuf {
    if let Some(time) = time {
        time.put(&mut writer);
    }
    writer.finish()
}

/// Writes that what a command wrote is not on as many members as the client asks for.
pub(crate) fn put_unsatisfied(writer: &mut Writer, code: Code, concern: &RawDocument) {
    writer.begin_document("writeConcernError").put("code", code.0).put("codeName", &*code.name());
    match concern.get_str("w") {
        Ok(mode) => {
            writer.put("errmsg", format!("No write concern mode named '{mode}' found in replica set configuration"))
        }
        Err(_) => writer.put("errmsg", "Not enough data-bearing nodes"),
    };
    writer.begin_document("errInfo").put("writeConcern", concern).end().end();
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
