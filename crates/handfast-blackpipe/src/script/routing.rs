//! The members of a replica set that execute a request.

use bson::RawBsonRef;

use super::ReceivedRequest;
use crate::ErrorReply;
use crate::request::DRIVER_COMMANDS;

/// Commands that write, which the primary alone executes, whatever read preference they have.
const WRITES: [&str; 15] = [
    "insert",
    "update",
    "delete",
    "findAndModify",
    "findandmodify",
    "bulkWrite",
    "commitTransaction",
    "abortTransaction",
    "create",
    "createIndexes",
    "collMod",
    "drop",
    "dropDatabase",
    "dropIndexes",
    "renameCollection",
];

/// Commands that every member executes, whatever read preference they have, beside those that drivers send by themselves.
const ANYWHERE: [&str; 2] = ["ping", "getMore"];

/// Returns whether the primary alone executes a request: a write, or a read without a read preference.
pub(super) fn needs_primary(request: &ReceivedRequest) -> bool {
    let command = request.command();
    let mode = request.get("$readPreference.mode").and_then(RawBsonRef::as_str).unwrap_or("primary");
    let is_anywhere = ANYWHERE.contains(&command) || DRIVER_COMMANDS.contains(&command);
    !is_anywhere && (WRITES.contains(&command) || mode == "primary")
}

/// Returns the answer of a member that is not the primary to a request that needs it.
pub(super) fn refusal(request: &ReceivedRequest) -> ErrorReply {
    let refusal = match WRITES.contains(&request.command()) {
        true => ErrorReply::default(),
        false => ErrorReply {
            code: 13435,
            name: Some("NotPrimaryNoSecondaryOk".to_owned()),
            message: "not primary and secondaryOk=false".to_owned(),
            ..ErrorReply::default()
        },
    };
    // A server adds the label if the client can repeat the write with the same number.
    let is_retryable = request.get("txnNumber").is_some();
    ErrorReply { labels: refusal.labels.into_iter().filter(|_| is_retryable).collect(), ..refusal }
}

#[cfg(test)]
mod tests {
    use bson::{RawDocumentBuf, rawdoc};

    use super::{needs_primary, refusal};
    use crate::script::ReceivedRequest;

    #[test]
    fn writes_and_reads_without_a_preference_need_the_primary() {
        let check = |body: RawDocumentBuf, expected: bool| {
            assert_eq!(needs_primary(&ReceivedRequest::new(body.clone())), expected, "{body:?}");
        };
        check(rawdoc! { "insert": "a" }, true);
        check(rawdoc! { "insert": "a", "$readPreference": { "mode": "primaryPreferred" } }, true);
        check(rawdoc! { "find": "a" }, true);
        check(rawdoc! { "find": "a", "$readPreference": { "mode": "primary" } }, true);
        check(rawdoc! { "find": "a", "$readPreference": { "mode": "secondary" } }, false);
        check(rawdoc! { "getMore": 7_i64 }, false);
        check(rawdoc! { "endSessions": [] }, false);
        check(rawdoc! { "ping": 1 }, false);
    }

    #[test]
    fn a_write_that_can_be_repeated_is_refused_with_the_label() {
        let check = |body: RawDocumentBuf, code: i32, labels: &[&str]| {
            let refusal = refusal(&ReceivedRequest::new(body));
            assert_eq!(
                (refusal.code, refusal.labels),
                (code, labels.iter().map(|label| (*label).to_owned()).collect())
            );
        };
        check(rawdoc! { "insert": "a", "txnNumber": 1_i64 }, 10107, &["RetryableWriteError"]);
        check(rawdoc! { "insert": "a" }, 10107, &[]);
        check(rawdoc! { "find": "a" }, 13435, &[]);
    }
}
