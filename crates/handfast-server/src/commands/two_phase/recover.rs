//! `handfastRecoverTwoPhase`: finishes two-phase transactions that were left under way. A service without a Rust program calls it regularly.

use super::super::pattern_steps::{command, count, millis, required_text};
use super::super::{Call, Command, Properties};
use super::{ABANDONED_AFTER, of_application};
use crate::error::CommandResult;
use crate::reply::Answer;
use crate::writer::{Writer, put_count};

/// Participants of a page that is repaired.
const PAGE: u32 = 500;

pub(crate) const COMMAND: Command =
    command("handfastRecoverTwoPhase", "finishes two-phase transactions", Properties::DEFAULT, |call| {
        Box::pin(run(call))
    });

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("handfastRecoverTwoPhase");
    let application = required_text(&mut arguments, "application")?;
    let abandoned_after = millis(&mut arguments, "abandonedAfterMillis")?.unwrap_or(ABANDONED_AFTER);
    let waiting = arguments.flag("waiting")?.unwrap_or(false);
    let count = count(&mut arguments)?;
    arguments.finish()?;
    let two_phase = of_application(call, application, abandoned_after).await?;
    let (recovered, repaired) = (two_phase.recover(count).await?, two_phase.repair(PAGE).await?);
    let mut run = 0;
    while waiting && run < u64::from(count) && two_phase.run_next().await?.is_some() {
        run += 1;
    }
    let mut writer = Writer::new();
    put_count(&mut writer, "recovered", recovered.done);
    put_count(&mut writer, "run", run);
    put_count(&mut writer, "repaired", repaired.done);
    put_count(&mut writer, "failed", recovered.failed + repaired.failed);
    Ok(writer.into())
}
