//! `handfastPauseQueue` and `handfastResumeQueue`: no worker claims a job of a paused queue; workers finish the jobs that they have.

use handfast_patterns::JobQueue;

use super::super::pattern_steps::{command, invalid};
use super::super::{Call, Command, Properties};
use crate::error::CommandResult;
use crate::patterns;
use crate::reply::Answer;
use crate::writer::Writer;

/// Limit on the reason of a pause, in characters. Every look at the pause reads it.
const REASON_CHARACTERS_MAX: usize = 2_000;

pub(crate) const PAUSE: Command =
    command("handfastPauseQueue", "keeps workers from claiming jobs", Properties::DEFAULT, |call| {
        Box::pin(pause(call))
    });

pub(crate) const RESUME: Command =
    command("handfastResumeQueue", "lets workers claim jobs again", Properties::DEFAULT, |call| Box::pin(resume(call)));

async fn pause(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("handfastPauseQueue");
    let reason = arguments.text("reason")?.unwrap_or_default();
    arguments.finish()?;
    if reason.chars().count() > REASON_CHARACTERS_MAX {
        return Err(invalid(format!("reason must have at most {REASON_CHARACTERS_MAX} characters")));
    }
    let queue: JobQueue = patterns::of(call).await?;
    queue.pause(reason).await?;
    Ok(Writer::new().into())
}

async fn resume(call: &Call<'_>) -> CommandResult<Answer> {
    call.arguments("handfastResumeQueue").finish()?;
    let queue: JobQueue = patterns::of(call).await?;
    let was_paused = queue.resume().await?;
    let mut writer = Writer::new();
    writer.put("wasPaused", was_paused);
    Ok(writer.into())
}
