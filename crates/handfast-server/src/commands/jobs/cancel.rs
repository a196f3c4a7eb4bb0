//! `handfastCancelJob`: cancels a job, which no worker does then. A worker that has the job
//! learns of it when it next renews or returns the job.

use super::super::{Call, Command};
use super::{IN_TRANSACTION, command, job_argument, required_id};
use crate::error::CommandResult;
use crate::job_queues::JobQueues;
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const COMMAND: Command =
    command("handfastCancelJob", "cancels a job", IN_TRANSACTION, |call| Box::pin(run(call)));

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("handfastCancelJob");
    let id = required_id(&mut job_argument(&mut arguments)?)?;
    arguments.finish()?;
    let canceled = JobQueues::of(call).await?.cancel(id).await?;
    let mut writer = Writer::new();
    writer.put("canceled", canceled);
    Ok(writer.into())
}
