//! `handfastFinishUpdates`: makes the second steps of updates in two steps that their clients did not make.

use std::time::Duration;

use handfast_patterns::exactly_once::TwoStepOptions;
use handfast_patterns::{Change, TwoStep};

use super::super::pattern_steps::{command, count, millis, required_document};
use super::super::{Call, Command, Properties};
use crate::error::CommandResult;
use crate::patterns;
use crate::reply::Answer;
use crate::request::check_written;
use crate::writer::{Writer, put_count};

/// The age at which a token counts as left by its client.
const OLDER: Duration = Duration::from_secs(3600);

pub(crate) const COMMAND: Command =
    command("handfastFinishUpdates", "makes updates that were begun", Properties::DEFAULT, |call| Box::pin(run(call)));

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("handfastFinishUpdates");
    let change = Change::new(required_document(&mut arguments, "update")?);
    let mut options = TwoStepOptions::default();
    if let Some(pending) = arguments.text("pending")? {
        pending.clone_into(&mut options.pending_field);
    }
    let older = millis(&mut arguments, "olderMillis")?.unwrap_or(OLDER);
    let count = count(&mut arguments)?;
    arguments.finish()?;
    let namespace = call.request.namespace()?;
    check_written(&namespace)?;
    let sources = call.shared.sources.clone();
    let two_step = TwoStep::open_with(patterns::durable_store(call), namespace, sources, change, options).await?;
    let round = two_step.clean_up(older, count).await?;
    let mut writer = Writer::new();
    put_count(&mut writer, "finished", round.done);
    put_count(&mut writer, "failed", round.failed);
    writer.put("more", round.more);
    Ok(writer.into())
}
