//! `handfastCompleteJob`: records that a job is done, with the result of its handler.

use handfast_mql::Code;
use handfast_patterns::job_queue::{ClaimState, JobState};

use super::super::pattern_steps::{IN_TRANSACTION, command, owned};
use super::super::{Call, Command};
use super::{Claim, claim_answer};
use crate::error::{CommandError, CommandResult};
use crate::reply::Answer;

pub(crate) const COMMAND: Command =
    command("handfastCompleteJob", "records that a job is done", IN_TRANSACTION, |call| Box::pin(run(call)));

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("handfastCompleteJob");
    let claim = Claim::read(&mut arguments)?;
    let result = arguments.any_or_null("result")?.map(owned).transpose()?;
    arguments.finish()?;
    let held = claim.held(call).await?;
    if call.transaction_number().is_some() {
        match held.as_ref().map(|(_, job)| job.state) {
            Some(JobState::Processing) => {}
            Some(JobState::Done) if claim.state_outside(call).await? == Some(JobState::Done) => {
                return Err(done_before());
            }
            // This transaction has completed the job.
            Some(JobState::Done) => return Ok(claim_answer(ClaimState::Held)),
            Some(_) | None => return Err(not_held(call, &claim).await?),
        }
    }
    let Some((queue, job)) = held else { return Ok(claim_answer(ClaimState::Lost)) };
    Ok(claim_answer(queue.complete(&job, result).await?))
}

/// Returns the error of a transaction whose worker has completed the job in an earlier one, which has had the effect: this one would have it again.
fn done_before() -> CommandError {
    let text = "the job was done under this claim: an earlier transaction of its worker has committed, so this one was aborted";
    CommandError::new(Code::TransactionCommitted, text)
}

/// Returns the error of a transaction that does not see the claim. An error aborts the transaction, so that the effect of a job that was lost is not committed.
async fn not_held(call: &Call<'_>, claim: &Claim) -> CommandResult<CommandError> {
    if claim.state_outside(call).await? == Some(JobState::Processing) {
        // The driver runs the transaction again, with a newer snapshot.
        let text = "the transaction has begun before the job was claimed: begin it again";
        return Ok(CommandError::new(Code::WriteConflict, text));
    }
    let text = "the claim is lost: another worker has the job, or had it, so the transaction was aborted";
    Ok(CommandError::new(Code::ConflictingOperationInProgress, text))
}
