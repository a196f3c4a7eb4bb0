//! Reads of one snapshot outside of a transaction: `readConcern: {level: "snapshot"}` in a session.
//!
//! ```text
//! the first read     {level: "snapshot"}                         makes a snapshot; the reply has its atClusterTime
//! each further one   {level: "snapshot", atClusterTime: <that>}  reads the same snapshot
//! ```
//!
//! A session keeps one such snapshot, the newest. It expires after the lifetime of a transaction, because it keeps old versions from being
//! freed. A read at another time is refused with `SnapshotTooOld`, as in MongoDB, and so is a `getMore` on an expired snapshot.
//! `serverStatus` does not count snapshots as transactions.

use std::sync::Arc;

use bson::Timestamp;
use handfast_mql::Code;
use handfast_txn::Transaction;

use crate::cluster_time::ClusterTime;
use crate::error::{CommandError, CommandResult};
use crate::request::SessionId;
use crate::state::Shared;

/// A snapshot that a session reads.
pub(crate) struct SnapshotRead {
    /// The time that was returned to the client as `atClusterTime`.
    pub(crate) at: Timestamp,
    pub(crate) transaction: Transaction,
}

/// Returns the snapshot of this time, or a new one if the request names no time.
pub(super) async fn enter(
    shared: &Shared,
    time: &ClusterTime,
    session: SessionId,
    at: Option<Timestamp>,
) -> CommandResult<Arc<SnapshotRead>> {
    if let Some(at) = at {
        let kept = shared.sessions.snapshot(session).filter(|kept| kept.at == at && !kept.transaction.is_expired());
        return kept.ok_or_else(|| {
            let text = format!("session {session} has no snapshot of the read timestamp {at}");
            CommandError::new(Code::SnapshotTooOld, text)
        });
    }
    let lifetime = shared.transaction_lifetime();
    let transaction = shared.database.begin_reads(lifetime).await.map_err(handfast_store::Error::from)?;
    let read = Arc::new(SnapshotRead { at: time.advance(), transaction });
    shared.sessions.keep_snapshot(session, Arc::clone(&read))?;
    Ok(read)
}
