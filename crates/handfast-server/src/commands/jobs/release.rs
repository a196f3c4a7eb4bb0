//! `handfastReleaseJob`: returns a job to its queue without a failure, at once or after a delay.

use std::time::Duration;

use handfast_patterns::job_queue::ClaimState;

use super::super::pattern_steps::command;
use super::super::{Call, Command, Properties};
use super::{Claim, claim_answer};
use crate::error::CommandResult;
use crate::reply::Answer;

pub(crate) const COMMAND: Command =
    command("handfastReleaseJob", "returns a job to its queue", Properties::DEFAULT, |call| Box::pin(run(call)));

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("handfastReleaseJob");
    let claim = Claim::read(&mut arguments)?;
    let delay = arguments.exact_unsigned("delayMillis")?.map(Duration::from_millis);
    arguments.finish()?;
    let Some((queue, job)) = claim.held(call).await? else { return Ok(claim_answer(ClaimState::Lost)) };
    let state = match delay {
        Some(delay) => queue.snooze(&job, delay).await?,
        None => queue.release(&job).await?,
    };
    Ok(claim_answer(state))
}
