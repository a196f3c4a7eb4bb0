//! Commit and abort. Both can be repeated with the same result; the outcome of a commit is known after a restart too.
//!
//! ```text
//! commit     open          commits in a task of its own, which continues if the client disconnects
//!            committing    waits for the running commit
//!            in doubt      asks the store for the outcome again
//!            committed     succeeds
//!            unknown       reads the outcome of this session and number from the store
//! abort      open          rolls back
//!            rolled back   succeeds if this client rolled it back; otherwise fails with 251, as every request does
//! ```

use std::sync::Arc;

use handfast_mql::Code;
use handfast_store::{DocumentStore, Durability, OperationStatistics};
use handfast_txn::Outcome;

use super::{aborted, advance, being_committed, check_age, committed, id_of, not_in_progress, roll_back};
use crate::commands::Call;
use crate::error::{CommandError, CommandResult};
use crate::fail_points;
use crate::request::SessionId;
use crate::sessions::{LatestNumber, NumberState, OpenTransaction};

/// Reads the fields of either command, none of which has an effect here.
pub(crate) fn read(call: &Call<'_>, command: &'static str) -> CommandResult<()> {
    let mut arguments = call.arguments(command);
    // A router gives this token to the client, so that any router can end the transaction.
    arguments.ignored(&["recoveryToken"])?;
    arguments.finish()
}

/// Returns the session and the number of the transaction that the request names.
fn named(call: &Call<'_>) -> CommandResult<(SessionId, i64)> {
    let named = call.request.session.zip(call.request.numbering.number());
    named.ok_or_else(|| {
        CommandError::new(
            Code::InvalidOptions,
            "the fields 'lsid' and 'txnNumber' are missing: they name the transaction",
        )
    })
}

/// Commits the transaction that the request names.
pub(crate) async fn commit(call: &Call<'_>) -> CommandResult<()> {
    let (session, number) = named(call)?;
    let latest = call.shared.sessions.latest(session);
    let Some(latest) = latest else { return recorded(call, session, number, None).await };
    check_age(session, number, &latest)?;
    if latest.number != number {
        return Err(not_in_progress(number, Some(latest.number)));
    }
    match latest.state {
        NumberState::Open(open) | NumberState::Committing(open) | NumberState::InDoubt(open) => {
            commit_open(call, open).await?;
        }
        NumberState::Committed => {}
        NumberState::Aborted { .. } => return Err(aborted(number)),
        NumberState::Recorded => return recorded(call, session, number, Some(number)).await,
        NumberState::Writes => return Err(not_in_progress(number, Some(number))),
    }
    // The transaction has the server's default durability, and the commit may ask for more.
    if call.durability() == Durability::Journaled && call.shared.options.durability == Durability::Memory {
        call.shared.database.flush().await?;
    }
    Ok(())
}

async fn commit_open(call: &Call<'_>, open: Arc<OpenTransaction>) -> CommandResult<()> {
    let turn = Arc::clone(&open.turn).lock_owned().await;
    // The request before this one may have ended the transaction.
    if let Err(latest) = call.shared.sessions.begin_commit(&open) {
        return match latest {
            Some(LatestNumber { number, state: NumberState::Committed }) if number == open.number => Ok(()),
            Some(LatestNumber { number, state: NumberState::Aborted { .. } }) if number == open.number => {
                Err(aborted(number))
            }
            Some(LatestNumber { number, .. }) if number > open.number => {
                Err(not_in_progress(open.number, Some(number)))
            }
            // The session and its open transaction have ended.
            _ => recorded(call, open.session, open.number, None).await,
        };
    }
    let sessions = Arc::clone(&call.shared.sessions);
    let pause = fail_points::commit::pause(call.shared.fail_points.as_ref());
    let statistics = OperationStatistics::current();
    let committing = tokio::spawn({
        let open = Arc::clone(&open);
        OperationStatistics::observe_task(statistics, async move {
            if let Some(pause) = pause {
                tokio::time::sleep(pause).await;
            }
            let result = open.transaction.clone().commit().await;
            match &result {
                Ok(_) => sessions.set_state(&open, NumberState::Committed),
                // The outcome may be known when the commit is repeated.
                Err(handfast_txn::Error::CommitUnknown { .. }) => {
                    sessions.set_state(&open, NumberState::InDoubt(Arc::clone(&open)));
                }
                Err(_) => sessions.set_state(&open, NumberState::Aborted { by_client: false }),
            }
            drop(turn);
            result
        })
    });
    let result = committing.await.map_err(|error| {
        CommandError::new(Code::InternalError, format!("the task of the commit failed: {error}")).maybe_applied()
    })?;
    call.shared.cursors.kill_of_transaction(open.session, open.number);
    result.map_err(handfast_store::Error::from)?;
    Ok(())
}

/// Asks the store for the outcome of a transaction that this server does not know.
async fn recorded(call: &Call<'_>, session: SessionId, number: i64, newest: Option<i64>) -> CommandResult<()> {
    match call.shared.database.outcome(id_of(session, number)).await? {
        Outcome::Committed(_) => {
            let noted = advance(call.shared, session, |latest| {
                let known = latest.is_some_and(|latest| latest.number > number);
                Ok(if known { None } else { Some(LatestNumber { number, state: NumberState::Committed }) })
            });
            // A session that has ended keeps no number; the result of the commit is the same.
            noted.or_else(|error| if error.code == Code::NoSuchSession { Ok(()) } else { Err(error) })
        }
        // Outcomes are kept for longer than drivers repeat a commit (docs/decisions/0009-transient-commit.md).
        Outcome::RolledBack | Outcome::Forgotten => Err(not_in_progress(number, newest)),
    }
}

/// Rolls back the transaction that the request names.
pub(crate) async fn abort(call: &Call<'_>) -> CommandResult<()> {
    let (session, number) = named(call)?;
    loop {
        let Some(latest) = call.shared.sessions.latest(session) else { return Err(not_in_progress(number, None)) };
        check_age(session, number, &latest)?;
        if latest.number != number {
            return Err(not_in_progress(number, Some(latest.number)));
        }
        let (open, was_committing) = match latest.state {
            NumberState::Open(open) => (open, false),
            NumberState::Committing(open) | NumberState::InDoubt(open) => (open, true),
            NumberState::Committed => return Err(committed(number)),
            NumberState::Aborted { by_client: true } => return Ok(()),
            NumberState::Aborted { by_client: false } => return Err(aborted(number)),
            NumberState::Writes | NumberState::Recorded => return Err(not_in_progress(number, Some(number))),
        };
        let turn = open.turn.lock().await;
        // The request before this one may have ended the transaction.
        let now = call.shared.sessions.latest(session).map(|latest| latest.state);
        match now {
            Some(NumberState::Open(now)) if Arc::ptr_eq(&now, &open) => {
                roll_back(call.shared, &open, true);
                return Ok(());
            }
            Some(NumberState::Committing(now) | NumberState::InDoubt(now))
                if was_committing && Arc::ptr_eq(&now, &open) =>
            {
                drop(turn);
                return Err(being_committed(number));
            }
            _ => {}
        }
    }
}
