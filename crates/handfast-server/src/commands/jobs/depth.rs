//! `handfastQueueDepth`: counts the jobs of a queue by their states, from its indexes.

use bson::RawDocumentBuf;
use handfast_patterns::JobQueue;
use handfast_patterns::job_queue::Depth;
use handfast_store::StoreExt as _;

use super::super::pattern_steps::command;
use super::super::{Access, Call, Command, Properties};
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::CommandResult;
use crate::patterns;
use crate::reply::Answer;
use crate::writer::{Writer, put_count};

pub(crate) const COMMAND: Command = Command {
    access: Access::Read,
    needs: Needs::Collection(&[Action::Find]),
    ..command("handfastQueueDepth", "counts the jobs of a queue by their states", Properties::DEFAULT, |call| {
        Box::pin(run(call))
    })
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    call.arguments("handfastQueueDepth").finish()?;
    let queue: JobQueue = patterns::to_read(call).await?;
    let Depth { due, scheduled, processing, silent, failed, canceled, foreign, oldest_due } = queue.depth().await?;
    let all = call.store().count_matching(&call.request.namespace()?, RawDocumentBuf::new()).await?;
    // The numbers are of several moments.
    let done = all.saturating_sub(due + scheduled + processing + failed + canceled + foreign);
    let mut writer = Writer::new();
    for (name, count) in [
        ("due", due),
        ("scheduled", scheduled),
        ("processing", processing),
        ("silent", silent),
        ("failed", failed),
        ("canceled", canceled),
        ("done", done),
        ("foreign", foreign),
    ] {
        put_count(&mut writer, name, count);
    }
    let oldest_due = oldest_due.map(|age| i64::try_from(age.as_millis()).unwrap_or(i64::MAX));
    writer.put_some("oldestDueMillis", oldest_due);
    let pause = queue.paused().await?;
    writer.put("paused", pause.is_some());
    if let Some(pause) = pause {
        writer.put("pausedSince", pause.since).put("reason", &*pause.why);
    }
    Ok(writer.into())
}
