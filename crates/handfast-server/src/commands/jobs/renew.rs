//! `handfastRenewJob`: renews the claim of a worker, and records its progress.

use handfast_patterns::job_queue::ClaimState;

use super::super::{Call, Command, Properties};
use super::{Claim, claim_answer, command, owned};
use crate::error::CommandResult;
use crate::reply::Answer;

pub(crate) const COMMAND: Command =
    command("handfastRenewJob", "renews the claim of a worker", Properties::DEFAULT, |call| Box::pin(run(call)));

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("handfastRenewJob");
    let claim = Claim::read(&mut arguments)?;
    let progress = arguments.any_or_null("progress")?.map(owned).transpose()?;
    arguments.finish()?;
    let (queue, job) = claim.job(call).await?;
    let state = match job {
        Some(job) => queue.renew(&job, progress).await?,
        None => ClaimState::Lost,
    };
    Ok(claim_answer(state))
}
