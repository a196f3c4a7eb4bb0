//! Replies to commands, as documents.

use std::time::Duration;

use bson::{RawDocument, RawDocumentBuf, Timestamp};
use handfast_mql::Code;

use crate::cluster_time::ClusterTime;
use crate::error::CommandError;
use crate::memory_budget::MemoryReservation;
use crate::transactions::labels;
use crate::writer::Writer;

/// The reply of a command, without `ok`.
pub(crate) struct Answer {
    pub(crate) writer: Writer,
    /// Whether the command has further replies. For a client that accepts several replies it is run again.
    pub(crate) more: bool,
    /// The memory reservation, which is held until the reply is sent.
    pub(crate) reserved: Option<MemoryReservation>,
    /// Whether a statement was refused. The reply says which one, and the transaction ends.
    pub(crate) refused: bool,
    /// The time in which the command waited for something to happen.
    pub(crate) waited: Duration,
    /// Whether a command that may write has changed nothing.
    pub(crate) unchanged: bool,
}

impl From<Writer> for Answer {
    fn from(writer: Writer) -> Self {
        Answer { writer, more: false, reserved: None, refused: false, waited: Duration::ZERO, unchanged: false }
    }
}

impl Answer {
    /// Returns `{ok: 1}`.
    pub(crate) fn done() -> Self {
        Writer::new().into()
    }
}

/// Returns the reply to a command that succeeded. `read_at` is when a read began.
pub(crate) fn success(mut writer: Writer, time: Option<&ClusterTime>, read_at: Option<Timestamp>) -> RawDocumentBuf {
    writer.put("ok", 1.0);
    timed(writer, time, read_at)
}

/// Returns the reply to a message that cannot be read as a command.
pub(crate) fn failure(error: &CommandError) -> RawDocumentBuf {
    labelled_failure(error, &labels::of_outcome(error)).finish()
}

/// Returns the reply to a command that failed, with its error labels.
pub(crate) fn labelled_failure(error: &CommandError, labels: &[&str]) -> Writer {
    let mut writer = Writer::new();
    writer.put("ok", 0.0);
    put_error(&mut writer, error);
    put_labels(&mut writer, labels);
    writer
}

/// Adds the cluster time of a replica set, and returns the finished reply. `read_at` is when a read began.
pub(crate) fn timed(mut writer: Writer, time: Option<&ClusterTime>, read_at: Option<Timestamp>) -> RawDocumentBuf {
    if let Some(time) = time {
        time.put(&mut writer, read_at);
    }
    writer.finish()
}

/// Writes the error of a write that was applied, but not on as many members as its write concern asks for.
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

/// Writes `errmsg`, `code`, `codeName` and the details.
fn put_error(writer: &mut Writer, error: &CommandError) {
    writer.put("errmsg", &*error.text()).put("code", error.code.0).put("codeName", &*error.name());
    if let Some(details) = &error.details {
        writer.put_all(details);
    }
}
