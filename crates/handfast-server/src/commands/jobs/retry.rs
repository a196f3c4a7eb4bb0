//! `handfastRetryJob`: returns a job that was given up to its queue, with all its attempts again.

use handfast_patterns::JobQueue;

use super::super::pattern_steps::{command, required_id};
use super::super::{Call, Command, Properties};
use super::job_argument;
use crate::error::CommandResult;
use crate::patterns;
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const COMMAND: Command =
    command("handfastRetryJob", "returns a job that was given up to its queue", Properties::DEFAULT, |call| {
        Box::pin(run(call))
    });

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("handfastRetryJob");
    let id = required_id(&mut job_argument(&mut arguments)?)?;
    arguments.finish()?;
    let queue: JobQueue = patterns::of(call).await?;
    let retried = queue.retry(id).await?;
    let mut writer = Writer::new();
    writer.put("retried", retried);
    Ok(writer.into())
}
