//! `handfastRenewJob`: renews the claim of a worker, and records its progress.

use handfast_patterns::job_queue::ClaimState;

use super::super::pattern_steps::{command, owned};
use super::super::{Call, Command, Properties};
use super::{Claim, claim_answer};
use crate::error::CommandResult;
use crate::reply::Answer;

pub(crate) const COMMAND: Command =
    command("handfastRenewJob", "renews the claim of a worker", Properties::DEFAULT, |call| Box::pin(run(call)));

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("handfastRenewJob");
    let claim = Claim::read(&mut arguments)?;
    let progress = arguments.any_or_null("progress")?.map(owned).transpose()?;
    arguments.finish()?;
    let Some((queue, job)) = claim.held(call).await? else { return Ok(claim_answer(ClaimState::Lost)) };
    Ok(claim_answer(queue.renew(&job, progress).await?))
}
