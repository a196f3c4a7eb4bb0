//! The commands of two-phase commit: the steps of the pattern, for programs in any language.
//!
//! ```text
//! handfastOpenTwoPhase        {}                                  records the accounts and the other collections
//! handfastBeginTwoPhase       {_id, state}                        stores a transfer, or a plan of several documents
//! handfastAdvanceTwoPhase     {_id, state}                        carries it out to its end
//! handfastCancelTwoPhase      {_id, state}                        rolls it back unless it is applied
//! handfastCompensateTwoPhase  {_id, state}                        stores the transaction that takes an applied one back
//! handfastRecoverTwoPhase     {recovered, run, repaired, failed}  finishes what other applications have left
//! ```
//!
//! The server makes the steps, under the name of an application that the client gives. Only `handfastBeginTwoPhase` can be part of a driver's
//! transaction: the other steps are visible one after the other, and need no transaction.

pub(super) mod advance;
pub(super) mod begin;
pub(super) mod cancel;
pub(super) mod compensate;
pub(super) mod open;
pub(super) mod recover;

use std::time::Duration;

use bson::{Bson, doc};
use handfast_mql::Code;
use handfast_patterns::TwoPhase;
use handfast_patterns::two_phase::State;

use super::Call;
use super::pattern_steps::{put_value, with_info};
use crate::error::{CommandError, CommandResult};
use crate::patterns;
use crate::reply::Answer;
use crate::writer::Writer;

/// The age at which the recovery takes a transaction over.
const ABANDONED_AFTER: Duration = Duration::from_secs(30 * 60);

/// Returns the transactions under the name of the client's application.
async fn of_application(call: &Call<'_>, application: &str, abandoned_after: Duration) -> CommandResult<TwoPhase> {
    let two_phase: TwoPhase = patterns::of(call).await?;
    Ok(two_phase.for_application(application, abandoned_after)?)
}

/// Writes the reply to a step of a transaction.
fn answer(id: &Bson, state: State) -> CommandResult<Answer> {
    let mut writer = Writer::new();
    put_value(&mut writer, "_id", id)?;
    writer.put("state", state.name());
    Ok(writer.into())
}

/// Returns the error of a transaction that another application carries out.
fn taken_over(id: &Bson, by: Option<String>) -> CommandResult<CommandError> {
    let text =
        format!("another application carries out transaction {id}, and will finish it: send the command again later");
    with_info(Code::ConflictingOperationInProgress, text, doc! { "application": by })
}

/// Adds to the error of a step the state in which the transaction is left. Once an application has claimed it, updates
/// may have been made, whatever the last step says of itself.
async fn left(two_phase: &TwoPhase, id: &Bson, error: handfast_patterns::Error) -> CommandResult<CommandError> {
    let error = CommandError::from(error);
    let state = match two_phase.show(id.clone()).await {
        Ok(Some(record)) if record.state != State::Initial => record.state,
        Ok(_) => return Ok(error),
        Err(_) => return Ok(error.maybe_applied()),
    };
    let details = with_info(error.code, error.message.clone(), doc! { "state": state.name() })?.details;
    Ok(CommandError { details, ..error.maybe_applied() })
}

#[cfg(test)]
mod tests;
