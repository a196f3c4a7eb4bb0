//! The properties of a command, which the rest of the server reads instead of comparing names.

use std::pin::Pin;

use handfast_store::Explained;

use super::Call;
use crate::error::CommandResult;
use crate::request::Request;

/// The use that a request makes of collections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// It reads documents. The server stops it when its client has closed the connection.
    Read,
    /// It reads documents and stores what it computes from them (`$out`, `$merge`).
    ReadAndStore,
    /// It changes documents or collections. It is completed even if its client disconnects.
    Write,
    /// It uses no collection.
    Server,
}

impl Access {
    pub(crate) fn writes(self) -> bool {
        matches!(self, Access::ReadAndStore | Access::Write)
    }
}

/// Whether a command can be part of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InTransaction {
    Refused,
    /// Allowed, also as the first command of the transaction.
    Allowed,
    /// Allowed after another command of the transaction.
    NotFirst,
    /// Commits the transaction.
    Commit,
    /// Rolls the transaction back.
    Abort,
}

impl InTransaction {
    /// Returns whether the command ends the transaction.
    pub(crate) fn is_end(self) -> bool {
        matches!(self, InTransaction::Commit | InTransaction::Abort)
    }
}

/// Whether a command can read a snapshot outside of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SnapshotSupport {
    Refused,
    Allowed,
    /// It reads the snapshot of its cursor, and ignores the read concern.
    OfCursor,
}

/// The counter of `serverStatus.opcounters` that counts a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counter {
    Command,
    Query,
    GetMore,
    /// The command counts its documents or statements itself.
    PerStatement,
}

/// The time that a command may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeLimit {
    /// `maxTimeMS` of the request.
    OfRequest,
    /// The time that is left to its cursor.
    OfCursor,
}

pub(crate) type Explaining<'a> = Pin<Box<dyn Future<Output = CommandResult<Explained>> + Send + 'a>>;

/// The properties in which few commands differ from the others.
pub(crate) struct Properties {
    /// Computes the access of a request if it depends on the arguments.
    pub(crate) access_of: Option<fn(&Request<'_>) -> Access>,
    /// Whether a transaction number without `autocommit: false` makes it a retryable write.
    pub(crate) retryable: bool,
    pub(crate) in_transaction: InTransaction,
    pub(crate) snapshots: SnapshotSupport,
    pub(crate) counter: Counter,
    pub(crate) time_limit: TimeLimit,
    /// Whether its arguments name the databases that it uses, instead of the request's own database.
    pub(crate) names_databases: bool,
    /// Whether clients may send it to the database [`EXTERNAL`](crate::request::EXTERNAL).
    pub(crate) external_database: bool,
    /// Whether it is supported in the legacy form `OP_QUERY` too.
    pub(crate) legacy_query: bool,
    /// Whether fail points apply to it.
    pub(crate) can_fail: bool,
    /// Reads a request that `explain` explains; `None` if the command cannot be explained.
    pub(crate) explain: Option<for<'a> fn(&'a Call<'a>) -> Explaining<'a>>,
}

impl Properties {
    pub(crate) const DEFAULT: Properties = Properties {
        access_of: None,
        retryable: false,
        in_transaction: InTransaction::Refused,
        snapshots: SnapshotSupport::Refused,
        counter: Counter::Command,
        time_limit: TimeLimit::OfRequest,
        names_databases: false,
        external_database: false,
        legacy_query: false,
        can_fail: true,
        explain: None,
    };
}
