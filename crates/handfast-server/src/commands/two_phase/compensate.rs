//! `handfastCompensateTwoPhase`: stores a two-phase transaction that takes an applied one back.

use handfast_patterns::TwoPhase;

use super::super::pattern_steps::{command, missing, named};
use super::super::{Call, Command, Properties};
use super::answer;
use crate::error::CommandResult;
use crate::patterns;
use crate::reply::Answer;

pub(crate) const COMMAND: Command =
    command("handfastCompensateTwoPhase", "takes back a two-phase transaction", Properties::DEFAULT, |call| {
        Box::pin(run(call))
    });

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("handfastCompensateTwoPhase");
    let id = named(&mut arguments, "transaction")?;
    let by = named(&mut arguments, "by")?;
    arguments.finish()?;
    let two_phase: TwoPhase = patterns::of(call).await?;
    two_phase.compensate(id, by.clone()).await?;
    match two_phase.show(by.clone()).await? {
        Some(record) => answer(&by, record.state),
        // Another program has removed it since.
        None => Err(missing("transaction", &by)),
    }
}
