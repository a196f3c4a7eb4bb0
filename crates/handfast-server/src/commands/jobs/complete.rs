//! `handfastCompleteJob`: records that a job is done, with the result of its handler.

use handfast_patterns::job_queue::{ClaimState, JobState};

use super::super::{Access, Call, Command};
use super::{Claim, IN_TRANSACTION, NEEDS, claim_answer, owned};
use crate::error::CommandResult;
use crate::reply::Answer;

pub(crate) const COMMAND: Command = Command {
    name: "handfastCompleteJob",
    aliases: &[],
    help: "records that a job is done",
    access: Access::Write,
    needs: NEEDS,
    admin_only: false,
    confidential: false,
    versioned: false,
    properties: IN_TRANSACTION,
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("handfastCompleteJob");
    let claim = Claim::read(&mut arguments)?;
    let result = arguments.any_or_null("result")?.map(owned).transpose()?;
    arguments.finish()?;
    let (queue, job) = claim.job(call).await?;
    let state = match job {
        // An earlier transaction of the worker was committed, and has had the effect: this one would have it again.
        Some(job) if call.transaction_number().is_some() && job.state == JobState::Done => ClaimState::Lost,
        Some(job) => queue.complete(&job, result).await?,
        None => ClaimState::Lost,
    };
    Ok(claim_answer(state))
}
