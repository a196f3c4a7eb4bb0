//! `handfastCaptureHold`: gives a payee the amount that is held, or a part of it; the rest is free again.

use handfast_patterns::ledger::{Capture, HoldState};

use super::super::pattern_steps::{IN_TRANSACTION, command, missing, named};
use super::super::{Call, Command};
use super::resolved;
use crate::error::CommandResult;
use crate::patterns;
use crate::reply::Answer;

pub(crate) const COMMAND: Command =
    command("handfastCaptureHold", "gives a payee the held amount", IN_TRANSACTION, |call| Box::pin(run(call)));

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("handfastCaptureHold");
    let hold = named(&mut arguments, "hold")?;
    let capture = arguments.exact_integer("value")?.map_or(Capture::Full, Capture::Part);
    arguments.finish()?;
    let _kept = call.shared.patterns.keep_indexes().await;
    let Some(ledger) = patterns::ledger_with_entries(call).await? else { return Err(missing("hold", &hold)) };
    let resolution = ledger.capture(hold.clone(), capture).await?;
    resolved(call, &hold, HoldState::Captured, resolution).await
}
