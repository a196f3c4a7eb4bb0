//! Transactions and retryable writes: finds the context in which a numbered request runs.
//!
//! ```text
//! request    rules      may it carry what it carries, here and now?
//!            enter      Once(7):            a ticket, which the store honours
//!                       Within{7, starts}:  begins the transaction
//!                       Within{7}:          the session's open transaction, when it is this request's turn
//!            leave      a request that failed ends its transaction
//!            end        commit and abort, which can be repeated
//!            labels     what an error tells the driver to do
//! ```
//!
//! The commit carries the ticket (session, number), so that its outcome is known after a restart as well.

pub(crate) mod end;
pub(crate) mod labels;
pub(crate) mod retried;
pub(crate) mod rules;
pub(crate) mod snapshot;

use std::sync::Arc;

use bson::rawdoc;
use handfast_mql::Code;
use handfast_store::{StoreExt, Ticket};
use handfast_txn::{Transaction, TransactionId, TransactionOptions};
use sha2::{Digest as _, Sha256};
use tokio::sync::OwnedMutexGuard;

use self::snapshot::SnapshotRead;
use crate::commands::{Command, SnapshotSupport};
use crate::error::{CommandError, CommandResult};
use crate::request::{Numbering, ReadConcern, Request, SNAPSHOT, SessionId};
use crate::sessions::{LatestNumber, NumberState, OpenTransaction};
use crate::state::Shared;

/// The context in which a request runs.
pub(crate) enum RequestContext {
    /// Neither a transaction nor a retryable write.
    Plain,
    /// Its writes are done once, in the turn of the session's writes.
    RetryableWrite {
        /// The store remembers the results of the writes under this ticket.
        ticket: Ticket,
        /// The number is not new: the writes may have been done.
        again: bool,
        _turn: OwnedMutexGuard<()>,
    },
    /// A snapshot outside of a transaction.
    Snapshot(Arc<SnapshotRead>),
    /// A transaction, whose turn it has.
    Transaction { open: Arc<OpenTransaction>, _turn: OwnedMutexGuard<()> },
}

impl RequestContext {
    pub(crate) fn transaction(&self) -> Option<&Transaction> {
        match self {
            RequestContext::Transaction { open, .. } => Some(&open.transaction),
            RequestContext::Snapshot(read) => Some(&read.transaction),
            RequestContext::Plain | RequestContext::RetryableWrite { .. } => None,
        }
    }
}

/// The name of a session's request, as transactions and tickets have it: what the store keeps knows whose it is, too.
pub(crate) fn id_of(session: SessionId, number: i64) -> TransactionId {
    let Some(user) = session.user else { return TransactionId { session: session.id, number } };
    let digest = Sha256::new().chain_update(user).chain_update(session.id).finalize();
    let mut key = [0; 16];
    for (to, from) in key.iter_mut().zip(digest) {
        *to = from;
    }
    // A UUID made of a digest (version 5), so that it is not taken for one that the library made.
    key[6] = key[6] & 0x0f | 0x50;
    key[8] = key[8] & 0x3f | 0x80;
    TransactionId { session: key, number }
}

/// Finds what a request runs in, and waits until it may.
pub(crate) async fn enter(shared: &Shared, request: &Request<'_>, command: &Command) -> CommandResult<RequestContext> {
    let Some(session) = request.session else { return Ok(RequestContext::Plain) };
    match request.numbering {
        // The cursor of a snapshot reads on in it.
        Numbering::None if command.properties.snapshots == SnapshotSupport::OfCursor => Ok(RequestContext::Plain),
        Numbering::None => match (request.read_concern, &shared.cluster_time) {
            (Some(ReadConcern { level: Some(SNAPSHOT), at }), Some(time)) => {
                Ok(RequestContext::Snapshot(snapshot::enter(shared, time, session, at).await?))
            }
            _ => Ok(RequestContext::Plain),
        },
        Numbering::RetryableWrite(number) => enter_retryable_write(shared, session, number).await,
        // These look for themselves: they can be repeated when the transaction is long gone.
        Numbering::Transaction { .. } if command.properties.in_transaction.is_end() => Ok(RequestContext::Plain),
        Numbering::Transaction { number, starts: true } => begin_transaction(shared, request, session, number).await,
        Numbering::Transaction { number, starts: false } => join_transaction(shared, session, number).await,
    }
}

/// A request leaves its transaction, which is rolled back if the request has failed. If it has ended meanwhile, beside the
/// request, what the request has opened goes too.
pub(crate) fn leave(shared: &Shared, context: &RequestContext, failed: bool) {
    if let RequestContext::Transaction { open, .. } = context
        && (failed || !open.transaction.is_open())
    {
        roll_back(shared, open, false);
    }
}

fn roll_back(shared: &Shared, open: &Arc<OpenTransaction>, by_client: bool) {
    open.transaction.clone().abort();
    shared.sessions.set_state(open, NumberState::Aborted { by_client });
    shared.cursors.kill_of_transaction(open.session, open.number);
}

/// Goes on to the next number, and closes the cursors of what was open before.
pub(super) fn advance(
    shared: &Shared,
    session: SessionId,
    next: impl FnOnce(Option<&LatestNumber>) -> CommandResult<Option<LatestNumber>>,
) -> CommandResult<()> {
    if let Some(ended) = shared.sessions.advance(session, next)? {
        shared.cursors.kill_of_transaction(ended.session, ended.number);
    }
    Ok(())
}

async fn enter_retryable_write(shared: &Shared, session: SessionId, number: i64) -> CommandResult<RequestContext> {
    let turn = shared.sessions.turn(session)?.lock_owned().await;
    load_recorded_number(shared, session).await?;
    let mut again = false;
    advance(shared, session, |latest| {
        let next = LatestNumber { number, state: NumberState::Writes };
        let Some(latest) = latest else { return Ok(Some(next)) };
        check_age(session, number, latest)?;
        again = latest.number == number;
        match latest.state {
            NumberState::Writes if again => Ok(None),
            // The store's record says what it was used for; if not for writes, the number stays what it was.
            NumberState::Recorded if again => Ok(None),
            NumberState::Open(_)
            | NumberState::Committing(_)
            | NumberState::InDoubt(_)
            | NumberState::Committed
            | NumberState::Aborted { .. }
                if again =>
            {
                let text = "Must specify autocommit=false on all operations of a multi-statement transaction.";
                Err(CommandError::new(Code::InvalidOptions, text))
            }
            _ => Ok(Some(next)),
        }
    })?;
    Ok(RequestContext::RetryableWrite { ticket: id_of(session, number).ticket(), again, _turn: turn })
}

async fn begin_transaction(
    shared: &Shared,
    request: &Request<'_>,
    session: SessionId,
    number: i64,
) -> CommandResult<RequestContext> {
    // What the session wrote before is in the snapshot.
    let _turn = shared.sessions.turn(session)?.lock_owned().await;
    load_recorded_number(shared, session).await?;
    let check = |latest: Option<&LatestNumber>| match latest {
        None => Ok(()),
        Some(latest) if latest.number == number => {
            let text = format!(
                "Cannot start a transaction with number {number} on session {session}: the number has been used in it"
            );
            Err(CommandError::new(CONFLICTING_OPERATION, text))
        }
        Some(latest) => check_age(session, number, latest),
    };
    check(shared.sessions.latest(session).as_ref())?;
    let options = TransactionOptions {
        id: Some(id_of(session, number)),
        durability: shared.options.durability,
        lifetime: shared.options.transaction_lifetime,
        all_write_bytes_max: shared.options.transaction_bytes_max,
        ..TransactionOptions::default()
    };
    let transaction = shared.database.begin_with(options).await.map_err(handfast_store::Error::from)?;
    let turn = Arc::new(tokio::sync::Mutex::new(()));
    let own_turn = Arc::clone(&turn).lock_owned().await;
    let read_concern = request.read_concern.and_then(|concern| concern.level).map(str::to_owned);
    let since = shared.now();
    let open = Arc::new(OpenTransaction { session, number, transaction, turn, since, read_concern });
    advance(shared, session, |latest| {
        check(latest)?;
        Ok(Some(LatestNumber { number, state: NumberState::Open(Arc::clone(&open)) }))
    })?;
    Ok(RequestContext::Transaction { open, _turn: own_turn })
}

/// Learns from the store what the session's newest number was before this server was started, unless it has a newer one.
async fn load_recorded_number(shared: &Shared, session: SessionId) -> CommandResult<()> {
    if shared.sessions.latest(session).is_some() {
        return Ok(());
    }
    let ticket = id_of(session, 0).ticket();
    let record = shared.database.find_one(&Ticket::namespace()?, rawdoc! { "_id": ticket.record_id() }).await?;
    let Some(record) = record else { return Ok(()) };
    let number = record.get_i64("number").map_err(|error| {
        let text = format!("the record of session {session} is not what a store wrote: {error}");
        CommandError::new(Code::InternalError, text)
    })?;
    advance(shared, session, |latest| {
        let recorded = LatestNumber { number, state: NumberState::Recorded };
        Ok(if latest.is_none() { Some(recorded) } else { None })
    })
}

async fn join_transaction(shared: &Shared, session: SessionId, number: i64) -> CommandResult<RequestContext> {
    let (open, _) = current(shared, session, number)?;
    let turn = Arc::clone(&open.turn).lock_owned().await;
    // Whoever had the turn before may have ended it.
    match current(shared, session, number)? {
        (open, false) => Ok(RequestContext::Transaction { open, _turn: turn }),
        (_, true) => Err(being_committed(number)),
    }
}

/// The session's transaction of this number, which must not have ended, and whether its commit has begun.
fn current(shared: &Shared, session: SessionId, number: i64) -> CommandResult<(Arc<OpenTransaction>, bool)> {
    let Some(latest) = shared.sessions.latest(session) else { return Err(not_in_progress(number, None)) };
    check_age(session, number, &latest)?;
    if latest.number != number {
        return Err(not_in_progress(number, Some(latest.number)));
    }
    match latest.state {
        NumberState::Open(open) => Ok((open, false)),
        NumberState::Committing(open) | NumberState::InDoubt(open) => Ok((open, true)),
        NumberState::Committed => Err(committed(number)),
        NumberState::Aborted { .. } => Err(aborted(number)),
        NumberState::Writes | NumberState::Recorded => Err(not_in_progress(number, Some(latest.number))),
    }
}

/// A session does not go back.
fn check_age(session: SessionId, number: i64, latest: &LatestNumber) -> CommandResult<()> {
    if number >= latest.number {
        return Ok(());
    }
    let text = format!(
        "Cannot start transaction {number} on session {session} because a newer transaction with txnNumber {} has already started on this session.",
        latest.number
    );
    Err(CommandError::new(Code::TransactionTooOld, text))
}

fn not_in_progress(number: i64, newest: Option<i64>) -> CommandError {
    let newest = newest.map_or_else(|| "none".to_owned(), |newest| newest.to_string());
    let text = format!(
        "Given transaction number {number} does not match any in-progress transactions. The active transaction number is {newest}"
    );
    CommandError::new(Code::NoSuchTransaction, text)
}

fn committed(number: i64) -> CommandError {
    CommandError::new(Code::TransactionCommitted, format!("Transaction {number} has been committed."))
}

fn being_committed(number: i64) -> CommandError {
    let text = format!("Transaction {number} is being committed, and its outcome is not known.");
    CommandError::new(Code::TransactionCommitted, text)
}

fn aborted(number: i64) -> CommandError {
    CommandError::new(Code::NoSuchTransaction, format!("Transaction {number} has been aborted."))
}

/// `ConflictingOperationInProgress`.
const CONFLICTING_OPERATION: Code = Code(117);
