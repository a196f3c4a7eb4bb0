//! Change streams over a log of changes.
//!
//! A backend that keeps a log of its commits implements [`ChangeLog`]: it stores the [`record`]s of changes in commit order, in the
//! same atomic step as the changes themselves, and reads them again. [`open`] does the rest, for every such backend: it finds the
//! moment at which a stream begins, turns records into MongoDB's events, runs the stages after `$changeStream`, and waits.
//!
//! ```text
//! commit 7:  insert a, update b     records (7, 0), (7, 1)       events with tokens ..7.0, ..7.1
//! commit 8:  not in scope           record  (8, 0)               no event; the token behind commit 8 says that it was read
//! ```
//!
//! A token names the position of a record ([`token`]), so a consumer that resumes after it gets the records behind it, each once.
//!
//! Source: MongoDB's manual, "Change Streams" and "Change Events" (spec: server, Wide).

pub mod difference;
mod event;
pub mod record;
mod stream;
#[cfg(test)]
mod tests;
pub mod token;

use std::sync::Arc;

use async_trait::async_trait;
use bson::{DateTime, RawDocumentBuf, Timestamp};
use handfast_mql::Code;

pub use self::stream::open;
pub use self::token::{ChangePosition, LogId};
use crate::{BatchLimit, CommitTimestamp, Error, Namespace, Result};

/// The code of MongoDB's standalone servers for a change stream.
pub const NO_CHANGE_LOG: Code = Code(40_573);

/// Returns the error of a store that has no log of changes.
pub fn unsupported() -> Error {
    let text = "The $changeStream stage is only supported where changes are logged: by `handfast serve` over a data directory \
                (--data); watch the server of --store itself";
    Error::command(NO_CHANGE_LOG, text)
}

/// A record of a change log.
#[derive(Clone, Debug)]
pub struct LoggedChange {
    /// Its place in the log.
    pub position: ChangePosition,
    /// The cluster time of its commit.
    pub time: Timestamp,
    /// The time of day of its commit.
    pub wall_time: DateTime,
    /// The UUID of the collection; zeros if the change is not about one.
    pub collection: [u8; 16],
    /// The change, see [`record`].
    pub content: RawDocumentBuf,
}

/// The changes that a log has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogExtent {
    /// The id of the log. Tokens of another log are refused.
    pub id: LogId,
    /// All changes of later commits are in the log.
    pub since: CommitTimestamp,
    /// All changes at this moment of the cluster time, and after it, are in the log.
    pub since_time: Timestamp,
    /// The last commit that readers may see.
    pub until: CommitTimestamp,
}

/// Changes that were read from a log.
#[derive(Clone, Debug)]
pub struct LogPage {
    /// The changes in order.
    pub changes: Vec<LoggedChange>,
    /// The position up to which the log was read: that of the last change, or the end of the log.
    pub until: ChangePosition,
    /// Whether the log had no more.
    pub is_end: bool,
}

/// A log of committed changes, in commit order. A commit and its records are one atomic step, and readers see neither before it is as
/// durable as the store's other answers.
#[async_trait]
pub trait ChangeLog: Send + Sync + 'static {
    /// Returns the extent of the log. Starts it first, if it is off and may be started by a reader.
    ///
    /// # Errors
    /// 40573 if the log is off and must not be started.
    async fn extent(&self) -> Result<LogExtent>;

    /// Returns the changes after a position: at most as many as the limit allows, but at least one if there is one.
    ///
    /// # Errors
    /// `ChangeStreamHistoryLost` (286) if changes after the position are no longer in the log.
    async fn read(&self, after: ChangePosition, limit: BatchLimit) -> Result<LogPage>;

    /// Returns the position before the first change at or after a moment of the cluster time.
    async fn position_at(&self, time: Timestamp) -> Result<ChangePosition>;

    /// Returns once readers may see a commit after this one.
    async fn committed_after(&self, commit: CommitTimestamp);

    /// Returns the newest state of a document.
    async fn document(&self, namespace: &Namespace, id: bson::RawBsonRef<'_>) -> Result<Option<RawDocumentBuf>>;
}

/// Returns the error of changes that are no longer in the log.
pub fn history_lost() -> Error {
    let text = "Resume of change stream was not possible, as the resume point may no longer be in the change log: read the \
                collection anew and open a new stream; change-log-age and change-log-bytes say how much the log keeps";
    Error::command(Code::ChangeStreamHistoryLost, text)
}

/// A log that a stream reads.
pub type SharedLog = Arc<dyn ChangeLog>;

/// Returns whether changes of a collection are logged: not those of the server's own databases, and not of system collections.
pub fn is_logged(namespace: &Namespace) -> bool {
    is_logged_database(namespace.database()) && !namespace.collection().starts_with("system.")
}

/// Returns whether changes of a database are logged.
pub fn is_logged_database(database: &str) -> bool {
    !matches!(database, "admin" | "config" | "local")
}
