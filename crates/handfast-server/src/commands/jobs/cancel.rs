//! `handfastCancelJob`: cancels a job, which no worker does then. A worker that has the job
//! learns of it when it next renews or returns the job.

use handfast_patterns::JobQueue;

use super::super::pattern_steps::{IN_TRANSACTION, command, required_id};
use super::super::{Call, Command};
use super::job_argument;
use crate::error::CommandResult;
use crate::patterns;
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const COMMAND: Command =
    command("handfastCancelJob", "cancels a job", IN_TRANSACTION, |call| Box::pin(run(call)));

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("handfastCancelJob");
    let id = required_id(&mut job_argument(&mut arguments)?)?;
    arguments.finish()?;
    let queue: JobQueue = patterns::of(call).await?;
    let canceled = queue.cancel(id).await?;
    let mut writer = Writer::new();
    writer.put("canceled", canceled);
    Ok(writer.into())
}
