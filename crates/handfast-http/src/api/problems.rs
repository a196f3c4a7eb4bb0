//! The errors of commands as problems.

use bson::{Bson, Document};
use serde_json::Value;

use crate::id::extended_json;
use crate::problem::{Problem, ProblemKind};

/// The label of an error after which something may have been changed.
const OUTCOME_UNKNOWN: &str = "OutcomeUnknown";

/// Returns whether a command has succeeded.
pub(super) fn is_success(reply: &Document) -> bool {
    reply.get_f64("ok").is_ok_and(|ok| ok == 1.0)
}

/// Returns the problem of a reply with an error, which has its code and the details of its own.
pub(super) fn of_reply(reply: &Document) -> Problem {
    let code = code(reply);
    let kind = match kind(code) {
        _ if has_label(reply, OUTCOME_UNKNOWN) => ProblemKind::OutcomeUnknown,
        // The request is based on what is not there any more, as `errInfo` says: it would fail again.
        ProblemKind::Contended if reply.contains_key("errInfo") => ProblemKind::Conflict,
        kind => kind,
    };
    let mut problem = Problem::new(kind, reply.get_str("errmsg").unwrap_or("the command has failed"));
    let mut put = |name: &str, value: Value| _ = problem.members.insert(name.to_owned(), value);
    put("code", code.into());
    if let Ok(name) = reply.get_str("codeName") {
        put("codeName", name.into());
    }
    if let Some(info) = reply.get("errInfo") {
        put("errInfo", extended_json(info));
    }
    problem
}

/// Returns whether a reply has this error label.
pub(super) fn has_label(reply: &Document, label: &str) -> bool {
    let labels = reply.get_array("errorLabels").map(Vec::as_slice).unwrap_or_default();
    labels.iter().filter_map(Bson::as_str).any(|found| found == label)
}

/// Returns the code of a reply with an error.
pub(super) fn code(reply: &Document) -> i32 {
    reply.get_i32("code").unwrap_or(1)
}

/// Returns the kind of an error: what the client can do about it.
fn kind(code: i32) -> ProblemKind {
    match code {
        // Unauthorized.
        13 => ProblemKind::Forbidden,
        // NoSuchKey.
        4 => ProblemKind::Missing,
        // DocumentValidationFailure.
        121 => ProblemKind::Refused,
        // IllegalOperation, ConflictingOperationInProgress, TransactionCommitted, DuplicateKey, IndexOptionsConflict, IndexKeySpecsConflict.
        20 | 117 | 256 | 11_000 | 85 | 86 => ProblemKind::Conflict,
        // WriteConflict, LockTimeout, transactions that are gone or too old, and those of snapshots.
        112 | 24 | 206 | 225 | 239 | 246 | 251 | 267 => ProblemKind::Contended,
        // Members that are away or stop, interrupted commands, time limits, memory and disks that are full.
        6 | 7 | 50 | 89 | 91 | 134 | 146 | 189 | 261 | 262 | 292 | 9_001 | 10_107 | 11_600 | 11_601 | 11_602
        | 13_435 | 13_436 | 14_031 => ProblemKind::Unavailable,
        // InternalError, UnknownError, and data that cannot be read.
        1 | 8 | 22 | 354 => ProblemKind::Failed,
        _ => ProblemKind::InvalidRequest,
    }
}

#[cfg(test)]
mod tests;
