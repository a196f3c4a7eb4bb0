//! `handfastReleaseHold`: frees the amount that is held.

use handfast_patterns::ledger::HoldState;

use super::super::pattern_steps::{IN_TRANSACTION, command, missing, named};
use super::super::{Call, Command};
use super::resolved;
use crate::error::CommandResult;
use crate::patterns;
use crate::reply::Answer;

pub(crate) const COMMAND: Command =
    command("handfastReleaseHold", "frees the held amount", IN_TRANSACTION, |call| Box::pin(run(call)));

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("handfastReleaseHold");
    let hold = named(&mut arguments, "hold")?;
    arguments.finish()?;
    let _kept = call.shared.patterns.keep_indexes().await;
    let Some(ledger) = patterns::ledger_with_entries(call).await? else { return Err(missing("hold", &hold)) };
    let resolution = ledger.release(hold.clone()).await?;
    resolved(call, &hold, HoldState::Released, resolution).await
}
