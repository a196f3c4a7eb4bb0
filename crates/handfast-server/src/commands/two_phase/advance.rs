//! `handfastAdvanceTwoPhase`: carries a two-phase transaction out, from its state to its end.

use bson::doc;
use handfast_mql::Code;
use handfast_patterns::two_phase::{State, TwoPhaseOutcome};

use super::super::pattern_steps::{command, missing, named, required_text, with_info};
use super::super::{Call, Command, Properties};
use super::{ABANDONED_AFTER, answer, left, of_application, taken_over};
use crate::error::CommandResult;
use crate::reply::Answer;

pub(crate) const COMMAND: Command =
    command("handfastAdvanceTwoPhase", "carries out a two-phase transaction", Properties::DEFAULT, |call| {
        Box::pin(run(call))
    });

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("handfastAdvanceTwoPhase");
    let id = named(&mut arguments, "transaction")?;
    let application = required_text(&mut arguments, "application")?;
    arguments.finish()?;
    let two_phase = of_application(call, application, ABANDONED_AFTER).await?;
    let outcome = match two_phase.run(id.clone()).await {
        Ok(outcome) => outcome,
        Err(error) => return Err(left(&two_phase, &id, error).await?),
    };
    match outcome {
        TwoPhaseOutcome::Done => answer(&id, State::Done),
        TwoPhaseOutcome::Canceled { reason } => {
            let text = format!("transaction {id} is canceled: {reason}");
            let info = doc! { "state": State::Canceled.name(), "reason": reason };
            Err(with_info(Code::DocumentValidationFailure, text, info)?)
        }
        TwoPhaseOutcome::TakenOver { by } => Err(taken_over(&id, by)?),
        TwoPhaseOutcome::Missing => Err(missing("transaction", &id)),
    }
}
