//! `handfastCancelTwoPhase`: rolls a two-phase transaction back, unless all of its updates were made.

use bson::doc;
use handfast_mql::Code;
use handfast_patterns::two_phase::{Cancel, State};

use super::super::pattern_steps::{command, missing, named, required_text, with_info};
use super::super::{Call, Command, Properties};
use super::{ABANDONED_AFTER, answer, left, of_application, taken_over};
use crate::error::CommandResult;
use crate::reply::Answer;

pub(crate) const COMMAND: Command =
    command("handfastCancelTwoPhase", "rolls back a two-phase transaction", Properties::DEFAULT, |call| {
        Box::pin(run(call))
    });

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("handfastCancelTwoPhase");
    let id = named(&mut arguments, "transaction")?;
    let reason = required_text(&mut arguments, "reason")?;
    let application = required_text(&mut arguments, "application")?;
    arguments.finish()?;
    let two_phase = of_application(call, application, ABANDONED_AFTER).await?;
    let outcome = match two_phase.cancel(id.clone(), reason).await {
        Ok(outcome) => outcome,
        Err(error) => return Err(left(&two_phase, &id, error).await?),
    };
    match outcome {
        Cancel::Canceled => answer(&id, State::Canceled),
        Cancel::TooLate => {
            let text =
                format!("transaction {id} is applied: begin one that takes it back with handfastCompensateTwoPhase");
            Err(with_info(Code::IllegalOperation, text, doc! { "state": State::Applied.name() })?)
        }
        Cancel::TakenOver => Err(taken_over(&id, None)?),
        Cancel::Missing => Err(missing("transaction", &id)),
    }
}
