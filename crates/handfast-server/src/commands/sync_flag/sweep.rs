//! `handfastSweepSynced`: carries changes whose flags were left behind. A service without a Rust program calls it regularly.

use std::time::Duration;

use handfast_patterns::SyncFlag;

use super::super::pattern_steps::{command, count, millis};
use super::super::{Call, Command, Properties};
use crate::error::CommandResult;
use crate::patterns;
use crate::reply::Answer;
use crate::writer::{Writer, put_count};

/// The age at which a flag counts as left behind.
const ABANDONED_AFTER: Duration = Duration::from_secs(3600);

pub(crate) const COMMAND: Command =
    command("handfastSweepSynced", "carries changes that were left behind", Properties::DEFAULT, |call| {
        Box::pin(run(call))
    });

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("handfastSweepSynced");
    let age = millis(&mut arguments, "abandonedAfterMillis")?.unwrap_or(ABANDONED_AFTER);
    let count = count(&mut arguments)?;
    arguments.finish()?;
    let flag: SyncFlag = patterns::of(call).await?;
    let round = flag.abandoned_after(age).sweep(count).await?;
    let mut writer = Writer::new();
    put_count(&mut writer, "swept", round.done);
    put_count(&mut writer, "failed", round.failed);
    writer.put("more", round.more);
    Ok(writer.into())
}
