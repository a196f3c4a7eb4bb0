//! The labels of errors tell the driver to run the transaction again or to send the write again, and never both.

use handfast_mql::Code;
use handfast_store::Applied;

use crate::commands::InTransaction;
use crate::error::CommandError;
use crate::request::Numbering;

/// The client may run the whole transaction again.
pub(crate) const TRANSIENT: &str = "TransientTransactionError";
/// The client may send the same write again; it is applied once.
pub(crate) const RETRYABLE: &str = "RetryableWriteError";
/// The write was not applied, not even in part.
pub(crate) const NOTHING_WRITTEN: &str = "NoWritesPerformed";

/// `WriteConflict`, `LockTimeout`, `PreparedTransactionInProgress`, `SnapshotTooOld`, `SnapshotUnavailable`,
/// `StaleChunkHistory` (`SnapshotError`), `MigrationConflict`, `StaleDbVersion`.
const TRANSIENT_CODES: [i32; 8] = [112, 24, 267, 239, 246, 250, 272, 249];

/// Another member is primary, the server is shutting down, or a member could not be reached in time.
const RETRYABLE_CODES: [i32; 13] = [6, 7, 89, 91, 134, 189, 262, 9001, 10_107, 11_600, 11_602, 13_435, 13_436];

/// The outcome of the commit is unknown; the client may repeat it.
pub(crate) const COMMIT_UNKNOWN: &str = "UnknownTransactionCommitResult";

/// The server does not know whether the command has changed anything.
pub(crate) const OUTCOME_UNKNOWN: &str = "OutcomeUnknown";

/// A change stream continues after the event that it returned last.
pub(crate) const RESUMABLE_STREAM: &str = "ResumableChangeStreamError";
/// A change stream cannot continue.
pub(crate) const NOT_RESUMABLE_STREAM: &str = "NonResumableChangeStreamError";

/// Returns whether a change stream can be resumed after this error: the cursor or the member is gone, and the log of changes is not. The
/// codes are those of the drivers' specification change-streams.md.
pub(crate) fn is_resumable(code: Code) -> bool {
    matches!(
        code.0,
        6 | 7
            | 43
            | 63
            | 89
            | 91
            | 133
            | 150
            | 189
            | 234
            | 262
            | 9001
            | 10_107
            | 11_600
            | 11_602
            | 13_388
            | 13_435
            | 13_436
    )
}

/// Returns the labels of an error.
pub(crate) fn of_error(numbering: Numbering, in_transaction: InTransaction, error: &CommandError) -> Vec<&'static str> {
    let retryable = RETRYABLE_CODES.contains(&error.code.0);
    let mut labels = match numbering {
        Numbering::Transaction { .. } if in_transaction.is_end() && retryable => vec![RETRYABLE],
        Numbering::Transaction { .. } => {
            // This holds for a commit too: the store remembers what was committed, so an unknown transaction has had no effect.
            let gone = error.applied == Applied::No && error.code == Code::NoSuchTransaction;
            // A request that another member has to handle has had no effect, and its transaction expires there.
            let again = TRANSIENT_CODES.contains(&error.code.0) || retryable;
            let transient = error.applied == Applied::No && again;
            if gone || transient { vec![TRANSIENT] } else { Vec::new() }
        }
        Numbering::RetryableWrite(_) if retryable && (error.partly || error.applied == Applied::Maybe) => {
            vec![RETRYABLE]
        }
        Numbering::RetryableWrite(_) if retryable => vec![RETRYABLE, NOTHING_WRITTEN],
        Numbering::RetryableWrite(_) | Numbering::None => Vec::new(),
    };
    if in_transaction == InTransaction::Commit && error.applied == Applied::Maybe {
        labels.push(COMMIT_UNKNOWN);
    }
    labels.extend(of_outcome(error));
    match error.resumable {
        Some(true) => labels.push(RESUMABLE_STREAM),
        Some(false) => labels.push(NOT_RESUMABLE_STREAM),
        None => {}
    }
    labels
}

/// Returns the labels of a write that was applied, but not as its write concern asks.
pub(crate) fn of_write_concern(numbering: Numbering, in_transaction: InTransaction, code: Code) -> Vec<&'static str> {
    let can_be_repeated =
        matches!(numbering, Numbering::RetryableWrite(_)) || (numbering.is_in_transaction() && in_transaction.is_end());
    if can_be_repeated && RETRYABLE_CODES.contains(&code.0) { vec![RETRYABLE] } else { Vec::new() }
}

/// Returns the label for an unknown outcome, if it is unknown.
pub(crate) fn of_outcome(error: &CommandError) -> Vec<&'static str> {
    if error.applied == Applied::Maybe { vec![OUTCOME_UNKNOWN] } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use handfast_mql::Code;
    use handfast_store::Applied;

    use super::{COMMIT_UNKNOWN, NOTHING_WRITTEN, OUTCOME_UNKNOWN, RETRYABLE, TRANSIENT, of_error, of_write_concern};
    use crate::commands::InTransaction;
    use crate::error::CommandError;
    use crate::request::Numbering;

    fn in_transaction(command: &str) -> InTransaction {
        crate::commands::find(command).unwrap().properties.in_transaction
    }

    fn labels(numbering: Numbering, command: &str, code: i32, applied: Applied) -> Vec<&'static str> {
        of_error(numbering, in_transaction(command), &CommandError { applied, ..CommandError::new(Code(code), "") })
    }

    /// The codes after which drivers run the transaction again. MongoDB has them in `isTransientTransactionError` (error_labels.cpp) and
    /// as `SnapshotError` in error_codes.yml. 251 and the codes of [`REPEATED`] are added to them.
    const RUN_AGAIN: [(i32, &str); 8] = [
        (24, "LockTimeout"),
        (112, "WriteConflict"),
        (239, "SnapshotTooOld"),
        (246, "SnapshotUnavailable"),
        (249, "StaleDbVersion"),
        (250, "StaleChunkHistory"),
        (267, "PreparedTransactionInProgress"),
        (272, "MigrationConflict"),
    ];

    /// The codes after which drivers send a write again: the table "RetryableError" in the drivers' specification
    /// retryable-writes.md, and `RetriableError` in error_codes.yml.
    const REPEATED: [(i32, &str); 13] = [
        (6, "HostUnreachable"),
        (7, "HostNotFound"),
        (89, "NetworkTimeout"),
        (91, "ShutdownInProgress"),
        (134, "ReadConcernMajorityNotAvailableYet"),
        (189, "PrimarySteppedDown"),
        (262, "ExceededTimeLimit"),
        (9001, "SocketException"),
        (10_107, "NotWritablePrimary"),
        (11_600, "InterruptedAtShutdown"),
        (11_602, "InterruptedDueToReplStateChange"),
        (13_435, "NotPrimaryNoSecondaryOk"),
        (13_436, "NotPrimaryOrSecondary"),
    ];

    #[test]
    fn each_code_has_the_labels_of_the_specifications_and_no_other_code_has_any() {
        const NONE: [&str; 0] = [];
        let within = Numbering::Transaction { number: 1, starts: false };
        let is_in = |table: &[(i32, &str)], code| table.iter().any(|(listed, _)| *listed == code);
        for (code, name) in RUN_AGAIN.iter().chain(&REPEATED) {
            let known = Code(*code).name();
            // A code that only fail points and other servers send may be unknown here.
            assert!(known == *name || known.starts_with("Location"), "{code} is {known}, not {name}");
        }
        for code in 0..20_000 {
            let (again, repeated) = (is_in(&RUN_AGAIN, code), is_in(&REPEATED, code));
            let check = |numbering, command, expected: &[&str]| {
                assert_eq!(labels(numbering, command, code, Applied::No), expected, "{code} of {command}");
            };
            for command in ["insert", "find", "getMore"] {
                check(within, command, if again || repeated || code == 251 { &[TRANSIENT] } else { &NONE });
                check(Numbering::None, command, &NONE);
            }
            for command in ["commitTransaction", "abortTransaction"] {
                check(
                    within,
                    command,
                    match (repeated, again || code == 251) {
                        (true, _) => &[RETRYABLE],
                        (false, true) => &[TRANSIENT],
                        (false, false) => &NONE,
                    },
                );
            }
            check(Numbering::RetryableWrite(1), "insert", if repeated { &[RETRYABLE, NOTHING_WRITTEN] } else { &NONE });
            let of_concern = |numbering, command| of_write_concern(numbering, in_transaction(command), Code(code));
            let expected: &[&str] = if repeated { &[RETRYABLE] } else { &NONE };
            assert_eq!(of_concern(Numbering::RetryableWrite(1), "insert"), expected, "{code}");
            assert_eq!(of_concern(within, "commitTransaction"), expected, "{code}");
            assert_eq!(of_concern(within, "insert"), NONE, "{code}");
            assert_eq!(of_concern(Numbering::None, "insert"), NONE, "{code}");
        }
    }

    #[test]
    fn one_kind_of_advice_at_a_time() {
        let within = Numbering::Transaction { number: 1, starts: false };
        for numbering in [Numbering::None, Numbering::RetryableWrite(1), within] {
            for command in ["insert", "commitTransaction", "abortTransaction"] {
                for code in 0..15_000 {
                    let labels = labels(numbering, command, code, Applied::No);
                    assert!(!(labels.contains(&TRANSIENT) && labels.contains(&RETRYABLE)), "{command} {code}");
                }
            }
        }
        assert_eq!(labels(within, "insert", 112, Applied::No), [TRANSIENT]);
        assert_eq!(labels(within, "insert", 251, Applied::No), [TRANSIENT]);
        assert_eq!(labels(within, "commitTransaction", 251, Applied::No), [TRANSIENT]);
        assert_eq!(labels(within, "commitTransaction", 91, Applied::No), [RETRYABLE]);
        assert_eq!(labels(within, "commitTransaction", 1, Applied::Maybe), [COMMIT_UNKNOWN, OUTCOME_UNKNOWN]);
        assert_eq!(labels(within, "insert", 91, Applied::No), [TRANSIENT]);
        assert_eq!(labels(within, "insert", 91, Applied::Maybe), [OUTCOME_UNKNOWN]);
        assert_eq!(labels(Numbering::RetryableWrite(1), "insert", 91, Applied::No), [RETRYABLE, NOTHING_WRITTEN]);
        assert_eq!(labels(Numbering::RetryableWrite(1), "insert", 91, Applied::Maybe), [RETRYABLE, OUTCOME_UNKNOWN]);
        assert_eq!(labels(Numbering::RetryableWrite(1), "insert", 112, Applied::Maybe), [OUTCOME_UNKNOWN]);
        assert_eq!(labels(Numbering::None, "insert", 91, Applied::Maybe), [OUTCOME_UNKNOWN]);
    }
}
