//! Transactions and retryable writes: finds the context in which a numbered request runs.
//!
//! ```text
//! rules      refuses fields that the command may not have in this context
//! enter      RetryableWrite(7)              a ticket, under which the store applies the write once
//!            Transaction {7, starts: true}  begins the transaction
//!            Transaction {7}                waits for the other requests of the session's open transaction
//! leave      ends the transaction of a request that failed
//! end        commits and aborts; both can be repeated
//! labels     tell the driver whether to send the request or run the transaction again
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
    /// A retryable write, which holds the lock of the session's writes.
    RetryableWrite {
        /// The store remembers the results of the writes under this ticket.
        ticket: Ticket,
        /// Whether the number was used before, so that the writes may have been applied.
        again: bool,
        _turn: OwnedMutexGuard<()>,
    },
    /// A read of a snapshot outside of a transaction.
    Snapshot(Arc<SnapshotRead>),
    /// A request of a transaction, which holds its lock.
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

/// Returns the id of a session's request for transactions and tickets. It depends on the user, so that the records in the store do too.
pub(crate) fn id_of(session: SessionId, number: i64) -> TransactionId {
    let Some(user) = session.user else { return TransactionId { session: session.id, number } };
    let digest = Sha256::new().chain_update(user).chain_update(session.id).finalize();
    let mut key = [0; 16];
    for (to, from) in key.iter_mut().zip(digest) {
        *to = from;
    }
    // The version of the UUID is 5 (made of a digest), so that it differs from the ids that the library makes.
    key[6] = key[6] & 0x0f | 0x50;
    key[8] = key[8] & 0x3f | 0x80;
    TransactionId { session: key, number }
}

/// Returns the context of a request, after the requests that it has to wait for.
pub(crate) async fn enter(shared: &Shared, request: &Request<'_>, command: &Command) -> CommandResult<RequestContext> {
    let Some(session) = request.session else { return Ok(RequestContext::Plain) };
    match request.numbering {
        // A getMore reads the snapshot of its cursor.
        Numbering::None if command.properties.snapshots == SnapshotSupport::OfCursor => Ok(RequestContext::Plain),
        Numbering::None => match (request.read_concern, &shared.cluster_time) {
            (Some(ReadConcern { level: Some(SNAPSHOT), at }), Some(time)) => {
                Ok(RequestContext::Snapshot(snapshot::enter(shared, time, session, at).await?))
            }
            _ => Ok(RequestContext::Plain),
        },
        Numbering::RetryableWrite(number) => enter_retryable_write(shared, session, number).await,
        // Commit and abort find their transaction themselves, because they can be repeated after it has ended.
        Numbering::Transaction { .. } if command.properties.in_transaction.is_end() => Ok(RequestContext::Plain),
        Numbering::Transaction { number, starts: true } => begin_transaction(shared, request, session, number).await,
        Numbering::Transaction { number, starts: false } => join_transaction(shared, session, number).await,
    }
}

/// Ends the request's part in its transaction. The transaction is rolled back if the request has failed. If the transaction has ended
/// during the request, the cursors that the request has opened are closed.
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

/// Replaces the session's newest number, and closes the cursors of the transaction before it.
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
            // The store's record shows the use of the number. If it was a transaction, the write is refused there.
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
    // The snapshot has to include the session's earlier writes.
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
    let lifetime = shared.transaction_lifetime();
    let options = TransactionOptions {
        id: Some(id_of(session, number)),
        durability: shared.options.durability,
        lifetime,
        all_write_bytes_max: shared.options.transaction_bytes_max,
        ..TransactionOptions::default()
    };
    let transaction = shared.database.begin_with(options).await.map_err(handfast_store::Error::from)?;
    let turn = Arc::new(tokio::sync::Mutex::new(()));
    let own_turn = Arc::clone(&turn).lock_owned().await;
    let read_concern = request.read_concern.and_then(|concern| concern.level).map(str::to_owned);
    let since = shared.now();
    let open = Arc::new(OpenTransaction { session, number, transaction, turn, since, lifetime, read_concern });
    advance(shared, session, |latest| {
        check(latest)?;
        Ok(Some(LatestNumber { number, state: NumberState::Open(Arc::clone(&open)) }))
    })?;
    Ok(RequestContext::Transaction { open, _turn: own_turn })
}

/// Loads the session's newest number from before the start of this server, unless the session has a newer one.
async fn load_recorded_number(shared: &Shared, session: SessionId) -> CommandResult<()> {
    if shared.sessions.latest(session).is_some() {
        return Ok(());
    }
    let ticket = id_of(session, 0).ticket();
    let record = shared.database.find_one(&Ticket::namespace()?, rawdoc! { "_id": ticket.record_id() }).await?;
    let Some(record) = record else { return Ok(()) };
    let number = record.get_i64("number").map_err(|error| {
        let text = format!("the record of session {session} cannot be read: {error}");
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
    // The request before this one may have ended the transaction.
    match current(shared, session, number)? {
        (open, false) => Ok(RequestContext::Transaction { open, _turn: turn }),
        (_, true) => Err(being_committed(number)),
    }
}

/// Returns the session's transaction of this number, which must not have ended, and whether its commit has begun.
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

/// Refuses a number that is lower than the session's newest one.
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
