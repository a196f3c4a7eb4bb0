//! The outcomes of transactions that have a name, as rows.
//!
//! The record of a name is the primary row of its transaction: the commit and the record are one atomic operation. So the outcome can be
//! read by the name, also after a restart and while the commit is under way: then the record has a lock as any row.
//!
//! ```text
//! config.transactions   {_id: {session: UUID, part: 0}, number: 12, at: <date>, results: [{statement: 0, result: {committed: true}}]}
//!
//! the record says       then the transaction
//! committed             has committed, when the record did
//! locked                is waited for; without a heartbeat it is rolled back
//! nothing               is rolled back: the record is written without a result. A transaction that began before that and
//!                       writes the record conflicts, so the answer stays true
//! nothing, and its      may have committed and been forgotten: before records are removed, a mark is written that says up
//! name is old           to which timestamp (a plain document, which stays)
//! ```
//!
//! Only a name that the library made tells its age ([`TransactionId::snapshot`]). A transaction with another name, such as a driver's, is
//! rolled back for good instead: it may still be under way, and must not commit after the answer.
//!
//! A transaction whose name was used before answers what it answered first: its snapshot has the record, or the record
//! was written after it, which is a conflict.
//!
//! A transaction without a name leaves no record.
//!
//! Source: docs/decisions/0010-tickets.md; spec: transactions.

use std::sync::Arc;

use bson::{RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_store::ticket::{self, Committed, Recorded};
use handfast_store::{Result as StoreResult, StoreExt, Ticket};

use super::committer::{self, Committer};
use super::core::{Core, KnownOutcome, conflict};
use super::row::{Body, Key, Timestamp};
use super::rows::RowChange;
use super::snapshot::PercolatorSnapshot;
use crate::{Outcome, TransactionId};

/// The most attempts at writing a record of a rollback. An attempt fails if another transaction wrote the session's record.
const ATTEMPTS_MAX: usize = 32;

/// The record of a name in a snapshot.
pub(super) struct Record {
    ticket: Ticket,
    key: Key,
    found: Option<(Timestamp, RawDocumentBuf)>,
}

impl Record {
    pub(super) async fn read(snapshot: &PercolatorSnapshot, id: TransactionId) -> StoreResult<Self> {
        let ticket = id.ticket();
        let key = Key { namespace: Ticket::namespace()?, id: ticket.record_id() };
        let found = snapshot.version(&key).await?;
        Ok(Record { ticket, key, found })
    }

    /// Returns the commit timestamp of the transaction of this name, if it committed.
    ///
    /// # Errors
    /// `TransactionTooOld` (225) if the session has gone on; `BadValue` (2) if the name was used for something else.
    pub(super) fn committed(&self) -> StoreResult<Option<Timestamp>> {
        let Some((at, document)) = &self.found else { return Ok(None) };
        let Some(result) = self.ticket.result(document)? else { return Ok(None) };
        Committed::from_result(&result).map(|Committed| Some(*at))
    }

    /// Returns the row to write with the transaction.
    pub(super) fn of_commit(self, core: &Core) -> StoreResult<RowChange> {
        let before = self.found.as_ref().map(|(_, document)| &**document);
        let now = core.sources.steady_now();
        let document = self.ticket.record(before, &Committed.to_result().unwrap_or_default(), now)?;
        Ok(RowChange { key: self.key, body: Body::Document(document) })
    }

    /// Returns the row to write if there is no such transaction.
    fn of_rollback(self, core: &Core) -> StoreResult<RowChange> {
        let before = self.found.as_ref().map(|(_, document)| &**document);
        let document = self.ticket.begun(before, core.sources.steady_now())?;
        Ok(RowChange { key: self.key, body: Body::Document(document) })
    }
}

/// Writes the mark that outcomes before a timestamp are about to be forgotten.
pub(super) async fn note_forgotten(core: &Core, before: Timestamp) -> StoreResult<()> {
    let mark = ticket::forgotten(before.into());
    core.rows.store.upsert_one(&Ticket::namespace()?, rawdoc! { "_id": ticket::forgotten_id() }, mark).await.map(drop)
}

/// Returns whether the record of a transaction may have been forgotten: the transaction began before the mark. Then none of its requests can
/// arrive any more.
async fn may_be_forgotten(core: &Core, id: TransactionId) -> StoreResult<bool> {
    let Some(snapshot) = id.snapshot() else { return Ok(false) };
    let mark = core.rows.store.find_one(&Ticket::namespace()?, rawdoc! { "_id": ticket::forgotten_id() }).await?;
    let forgotten = mark.map(|mark| ticket::forgotten_up_to(&mark)).transpose()?;
    Ok(forgotten.is_some_and(|forgotten| snapshot < forgotten))
}

/// Returns the outcome of the transaction of this name. A transaction that has not committed by now never will.
///
/// # Errors
/// `WriteConflict` (112) if its commit does not end, or others keep writing the session's record; `TransactionTooOld` (225) if a later
/// transaction has used the session. After an error the outcome is still unknown.
pub(super) async fn outcome(core: &Arc<Core>, id: TransactionId) -> StoreResult<Outcome> {
    for _ in 0..ATTEMPTS_MAX {
        let snapshot = core.begin().await?;
        let record = Record::read(&snapshot, id).await?;
        if let Some(at) = record.committed()? {
            core.remember_outcome(id, KnownOutcome::Committed(at));
            return Ok(Outcome::Committed(at.into()));
        }
        // A session's records are forgotten together.
        if record.found.is_none() && may_be_forgotten(core, id).await? {
            return Ok(Outcome::Forgotten);
        }
        let rolled_back = record.of_rollback(core)?;
        let committer = Committer::of(Arc::clone(core), snapshot, vec![rolled_back]);
        match committer::carry_out(committer).await {
            Ok(_) => return Ok(Outcome::RolledBack),
            Err(error) if error.code() == Code::WriteConflict => {}
            Err(error) => return Err(error),
        }
    }
    Err(conflict(format_args!("others kept writing the record of transaction {id}")))
}
