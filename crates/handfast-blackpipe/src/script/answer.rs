//! The answers of a scripted server to a request.

use std::time::Duration;

use bson::raw::cstr;
use bson::{RawArrayBuf, RawDocumentBuf, rawdoc};

use crate::ErrorReply;

/// The answer to a request. An unacknowledged write gets none, but its connection may be closed.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// This document.
    Document(RawDocumentBuf),
    /// The connection is closed.
    HangUp,
    /// The connection is reset, as by a server that closes it before it has read the request.
    Reset,
    /// Half of this document; then the connection is closed.
    Cut(RawDocumentBuf),
    /// Another answer after a time.
    Delay(Duration, Box<Answer>),
    /// Another answer after this member of a [`ScriptedReplicaSet`](crate::ScriptedReplicaSet) was elected, or, without one, after its primary has stepped down.
    Election(Option<usize>, Box<Answer>),
    /// These answers, one after the other, to a request that allows it: the batches of an exhaust cursor. Each reply but the last one says that more follows.
    /// There is at least one.
    Exhaust(Vec<Answer>),
    /// Nothing, and the connection stays open.
    Silence,
    /// These bytes in the place of a message.
    Garbage(Vec<u8>),
    /// This document, as the reply to a request that was not sent.
    WrongResponseTo(RawDocumentBuf),
    /// This document, in a message whose header announces more bytes than a message may have.
    Oversized(RawDocumentBuf),
}

/// A statement of a write that failed, for [`Answer::write_errors`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedWrite {
    /// The index of the document or statement in the request, from 0.
    pub index: i32,
    /// The code of the error.
    pub code: i32,
    /// The message of the error.
    pub message: String,
}

impl Answer {
    /// Returns `{ok: 1}`.
    pub fn ok() -> Self {
        Answer::Document(rawdoc! { "ok": 1.0 })
    }

    /// Returns the reply to a write of `count` documents.
    pub fn written(count: i32) -> Self {
        Answer::Document(rawdoc! { "ok": 1.0, "n": count, "nModified": count })
    }

    /// Returns the first batch of a cursor on a collection, which is written with its database. The cursor is finished if `cursor` is 0.
    pub fn first_batch(collection: &str, cursor: i64, documents: impl IntoIterator<Item = RawDocumentBuf>) -> Self {
        let batch = rawdoc! { "id": cursor, "ns": collection, "firstBatch": array(documents) };
        Answer::Document(rawdoc! { "ok": 1.0, "cursor": batch })
    }

    /// Returns a further batch of a cursor.
    pub fn next_batch(collection: &str, cursor: i64, documents: impl IntoIterator<Item = RawDocumentBuf>) -> Self {
        let batch = rawdoc! { "id": cursor, "ns": collection, "nextBatch": array(documents) };
        Answer::Document(rawdoc! { "ok": 1.0, "cursor": batch })
    }

    /// Returns the error of a command.
    pub fn error(code: i32, message: &str, labels: &[&str]) -> Self {
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        ErrorReply { labels, message: message.to_owned(), ..ErrorReply::of_code(code) }.into()
    }

    /// Returns the reply to a write of which `count` documents were written and some failed.
    pub fn write_errors(count: i32, errors: impl IntoIterator<Item = FailedWrite>) -> Self {
        let errors = errors.into_iter().map(|FailedWrite { index, code, message }| {
            rawdoc! { "index": index, "code": code, "errmsg": message }
        });
        let mut reply = rawdoc! { "ok": 1.0, "n": count };
        reply.append(cstr!("writeErrors"), array(errors));
        Answer::Document(reply)
    }

    /// Returns this answer after a time.
    #[must_use]
    pub fn after(self, time: Duration) -> Self {
        Answer::Delay(time, Box::new(self))
    }

    /// Returns this answer after the election of a member of a [`ScriptedReplicaSet`](crate::ScriptedReplicaSet), in the middle of the operation.
    #[must_use]
    pub fn after_election(self, member: usize) -> Self {
        Answer::Election(Some(member), Box::new(self))
    }

    /// Returns this answer after the primary of a [`ScriptedReplicaSet`](crate::ScriptedReplicaSet) has stepped down, in the middle of the operation. There is no
    /// primary until an election.
    #[must_use]
    pub fn after_step_down(self) -> Self {
        Answer::Election(None, Box::new(self))
    }

    /// Returns whether the answer needs a request that allows several replies.
    pub(super) fn needs_exhaust(&self) -> bool {
        match self {
            Answer::Delay(_, later) | Answer::Election(_, later) => later.needs_exhaust(),
            Answer::Exhaust(_) => true,
            _ => false,
        }
    }

    /// Returns whether an [`Answer::Exhaust`] in it has no answers.
    pub(super) fn has_empty_exhaust(&self) -> bool {
        match self {
            Answer::Delay(_, later) | Answer::Election(_, later) => later.has_empty_exhaust(),
            Answer::Exhaust(answers) => answers.is_empty() || answers.iter().any(Answer::has_empty_exhaust),
            _ => false,
        }
    }

    /// Returns the new primaries of all elections in the answer.
    pub(super) fn elections(&self) -> Vec<Option<usize>> {
        match self {
            Answer::Delay(_, later) => later.elections(),
            Answer::Exhaust(answers) => answers.iter().flat_map(Answer::elections).collect(),
            Answer::Election(primary, later) => {
                let mut elections = later.elections();
                elections.push(*primary);
                elections
            }
            _ => Vec::new(),
        }
    }
}

impl From<RawDocumentBuf> for Answer {
    fn from(document: RawDocumentBuf) -> Self {
        Answer::Document(document)
    }
}

impl From<ErrorReply> for Answer {
    fn from(error: ErrorReply) -> Self {
        Answer::Document(error.document())
    }
}

fn array(documents: impl IntoIterator<Item = RawDocumentBuf>) -> RawArrayBuf {
    let mut array = RawArrayBuf::new();
    documents.into_iter().for_each(|document| array.push(document));
    array
}
