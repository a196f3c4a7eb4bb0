//! The errors that each operation may return.
//!
//! Errors of the network and of the machine may come from any operation; those of the machine have a cause. A refusal must be one
//! that the operation documents, and is certainly not applied. The language has many codes (each operator has its own), so
//! operations that evaluate expressions may return any code that is not reserved for other operations.

use handfast_mql::Code;

use super::{CheckResult, require};
use crate::decorator::Operation;
use crate::{Applied, Error, ErrorClass};

/// Codes that only certain operations may return.
const RESERVED: [(Code, &[Operation]); 11] = {
    use Operation as O;
    [
        (Code::DuplicateKey, &[O::Insert, O::Update, O::FindAndModify, O::Aggregate, O::CreateIndexes, O::Commit]),
        (Code::WriteConflict, &[O::Insert, O::Update, O::FindAndModify, O::Delete, O::Aggregate, O::Commit]),
        (
            Code::NamespaceNotFound,
            &[
                O::ListIndexes,
                O::DropIndexes,
                O::ModifyCollection,
                O::RenameCollection,
                O::Aggregate,
                O::CreateIndexes,
                O::CheckCollection,
            ],
        ),
        (
            Code::CommandNotSupportedOnView,
            &[
                O::Insert,
                O::Update,
                O::FindAndModify,
                O::Delete,
                O::Aggregate,
                O::CreateIndexes,
                O::DropIndexes,
                O::ListIndexes,
                O::ModifyCollection,
                O::RenameCollection,
                O::CheckCollection,
                O::Watch,
                O::Commit,
            ],
        ),
        (Code::NamespaceExists, &[O::CreateCollection, O::RenameCollection, O::Aggregate]),
        (Code::IndexBuildAborted, &[O::CreateIndexes]),
        (Code::CannotCreateIndex, &[O::CreateIndexes, O::ModifyCollection]),
        (Code::IndexOptionsConflict, &[O::CreateIndexes]),
        (Code::IndexKeySpecsConflict, &[O::CreateIndexes]),
        (Code::ImmutableField, &[O::Update, O::FindAndModify, O::Aggregate]),
        (
            crate::index::CANNOT_INDEX_PARALLEL_ARRAYS,
            &[O::Insert, O::Update, O::FindAndModify, O::Aggregate, O::CreateIndexes, O::Commit],
        ),
    ]
};

/// Operations that evaluate no expressions, so that few codes are possible.
const PLAIN: [Operation; 9] = [
    Operation::ListIndexes,
    Operation::DropCollection,
    Operation::ListCollections,
    Operation::ListDatabases,
    Operation::DropDatabase,
    Operation::CollectionStats,
    Operation::Flush,
    Operation::Snapshot,
    Operation::SnapshotGet,
];

/// Codes that any operation may return: those of a damaged, full, closing or busy store.
const ANYWHERE: [Code; 12] = [
    Code::DataCorruptionDetected,
    Code::OutOfDiskSpace,
    Code::ShutdownInProgress,
    Code::InterruptedAtShutdown,
    Code::Interrupted,
    Code::MaxTimeMSExpired,
    Code::ExceededMemoryLimit,
    Code::ExceededTimeLimit,
    Code::InvalidBSON,
    Code::InvalidNamespace,
    Code::CommandNotSupported,
    Code::Unauthorized,
];

/// Checks that an operation may return this error.
pub(super) fn error(operation: Operation, error: &Error) -> CheckResult {
    require!(!error.message().is_empty(), "an error without a message");
    if error.class() != ErrorClass::Command {
        return Ok(());
    }
    let code = error.code();
    if ANYWHERE.contains(&code) {
        return Ok(());
    }
    require!(
        error.applied() == Applied::No || operation.is_write(),
        "{code:?} is said to have been applied perhaps, by an operation that changes nothing"
    );
    // An error of the machine has a cause; an error without one is a mistake in the store.
    let has_cause = std::error::Error::source(error).is_some();
    require!(code != Code::InternalError || has_cause, "an internal error: {error}");
    if code == Code::InternalError {
        return Ok(());
    }
    if let Some((_, operations)) = RESERVED.iter().find(|(reserved, _)| *reserved == code) {
        require!(operations.contains(&operation), "{code:?} does not belong to it: {error}");
        require!(error.applied() == Applied::No, "{code:?} is a refusal, but is said to have been applied perhaps");
    } else {
        require!(!PLAIN.contains(&operation), "{code:?} does not belong to it: {error}");
    }
    if code == Code::DuplicateKey {
        let details = error.details().ok_or("a duplicate key error without keyPattern and keyValue")?;
        let both = ["keyPattern", "keyValue"].iter().all(|field| details.get_document(field).is_ok());
        require!(both, "a duplicate key error needs keyPattern and keyValue, found {details:?}");
        require!(error.message().starts_with("E11000 duplicate key error collection: "), "found the text '{error}'");
    }
    Ok(())
}
