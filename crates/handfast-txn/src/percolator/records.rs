//! The outcomes of transactions that have a name, as rows.
//!
//! The record of a name is one of the rows that its transaction writes, and the primary: that the transaction has
//! committed and that there is a record of it is one atomic operation. So whoever has the name can ask, also after a
//! restart, and also while the commit is under way: the record's lock says where to look, as any lock does.
//!
//! ```text
//! config.transactions   {_id: {session: UUID, part: 0}, number: 12, at: <date>, results: [{statement: 0, result: {committed: true}}]}
//!
//! the record says       then the transaction
//! committed             has committed, when the record did
//! locked                is waited for; if nobody gives a sign of life, it is rolled back
//! nothing               is rolled back: the record is written without a result. Whoever began before that and comes to
//!                       write it has a conflict, so that what was said stays so
//! nothing, and its      may have committed and been forgotten: before records are removed, one that is no session's
//! name is old           says up to which timestamp that goes (a plain document, which stays)
//! ```
//!
//! How old a name is, only one that the library made tells ([`TransactionId::snapshot`]). One of the caller's, such as a
//! driver's, is rolled back for good instead: its transaction may still be under way, and must not commit after the answer.
//!
//! A transaction whose name was used before answers what it answered first: its snapshot has the record, or the record
//! was written after it, which is a conflict.
//!
//! What a transaction leaves without a name costs nothing: who wants to ask later says so before the commit.
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
use super::snapshot::PercolatorSnapshot;
use crate::{Outcome, TransactionId};

/// Attempts at saying that a transaction was rolled back: each time somebody else has written the session's record.
const ATTEMPTS_MAX: usize = 32;

/// The record of a name, as a snapshot has it.
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

    /// When the transaction of this name has committed, if it has.
    ///
    /// # Errors
    /// `TransactionTooOld` (225) if the session has gone on; `BadValue` (2) if the name was used for something else.
    pub(super) fn committed(&self) -> StoreResult<Option<Timestamp>> {
        let Some((at, document)) = &self.found else { return Ok(None) };
        let Some(result) = self.ticket.result(document)? else { return Ok(None) };
        Committed::from_result(&result).map(|Committed| Some(*at))
    }

    /// What is written with the transaction.
    pub(super) fn of_commit(self, core: &Core) -> StoreResult<(Key, Body)> {
        let before = self.found.as_ref().map(|(_, document)| &**document);
        let now = core.sources.steady_now();
        let document = self.ticket.record(before, &Committed.to_result().unwrap_or_default(), now)?;
        Ok((self.key, Body::Document(document)))
    }

    /// What is written where there is no such transaction.
    fn of_rollback(self, core: &Core) -> StoreResult<(Key, Body)> {
        let before = self.found.as_ref().map(|(_, document)| &**document);
        let document = self.ticket.begun(before, core.sources.steady_now())?;
        Ok((self.key, Body::Document(document)))
    }
}

/// Notes that outcomes of before this are going to be forgotten.
pub(super) async fn note_forgotten(core: &Core, before: Timestamp) -> StoreResult<()> {
    let mark = ticket::forgotten(before.into());
    core.rows.store.upsert_one(&Ticket::namespace()?, rawdoc! { "_id": ticket::forgotten_id() }, mark).await.map(drop)
}

/// Whether a transaction without a record may have had one: it had begun before the moment up to which records are gone.
/// Then nothing of it can arrive any more.
async fn may_be_forgotten(core: &Core, id: TransactionId) -> StoreResult<bool> {
    let Some(snapshot) = id.snapshot() else { return Ok(false) };
    let mark = core.rows.store.find_one(&Ticket::namespace()?, rawdoc! { "_id": ticket::forgotten_id() }).await?;
    let forgotten = mark.map(|mark| ticket::forgotten_up_to(&mark)).transpose()?;
    Ok(forgotten.is_some_and(|forgotten| snapshot < forgotten))
}

/// What became of the transaction of this name. One that has not committed by now never will.
///
/// # Errors
/// Those of the store: then it is still unknown. `WriteConflict` (112) if its commit does not end, or others keep writing
/// the session's record; `TransactionTooOld` (225) if the session has gone on.
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
