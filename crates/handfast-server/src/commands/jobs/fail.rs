//! `handfastFailJob`: records that a job failed: it is tried again after a while, or given up after its last attempt or at once.

use handfast_patterns::job_queue::ClaimState;

use super::super::pattern_steps::{command, required_text};
use super::super::{Call, Command, Properties};
use super::{Claim, claim_answer};
use crate::error::CommandResult;
use crate::reply::Answer;

pub(crate) const COMMAND: Command =
    command("handfastFailJob", "records that a job failed", Properties::DEFAULT, |call| Box::pin(run(call)));

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("handfastFailJob");
    let claim = Claim::read(&mut arguments)?;
    let error = required_text(&mut arguments, "error")?;
    let gives_up = arguments.flag("giveUp")?.unwrap_or(false);
    arguments.finish()?;
    let Some((queue, job)) = claim.held(call).await? else { return Ok(claim_answer(ClaimState::Lost)) };
    let state = if gives_up { queue.give_up(&job, error).await? } else { queue.fail(&job, error).await? };
    Ok(claim_answer(state))
}
