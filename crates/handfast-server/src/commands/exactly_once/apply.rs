//! `handfastApplyOnce`: changes a document, unless an update with the same token has changed it.

use handfast_patterns::ExactlyOnce;
use handfast_patterns::exactly_once::UpdateOutcome;

use super::super::pattern_steps::{
    IN_TRANSACTION, command, invalid, made_before, missing, named, not_allowed, required_change, required_token,
};
use super::super::{Call, Command};
use crate::error::CommandResult;
use crate::patterns;
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const COMMAND: Command =
    command("handfastApplyOnce", "changes a document once for each token", IN_TRANSACTION, |call| Box::pin(run(call)));

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("handfastApplyOnce");
    let id = named(&mut arguments, "document")?;
    let token = required_token(&mut arguments)?;
    let mut change = required_change(&mut arguments)?;
    if arguments.flag("upsert")?.unwrap_or(false) {
        if arguments.any("guard")?.is_some() {
            return Err(invalid("guard and upsert exclude each other: a missing document matches no guard"));
        }
        change = change.or_insert();
    }
    arguments.finish()?;
    let once: ExactlyOnce = patterns::of(call).await?;
    let applied = match once.apply(token, id.clone(), &change).await? {
        UpdateOutcome::Applied => true,
        UpdateOutcome::AlreadyApplied => {
            if call.transaction_number().is_some() {
                let outside: ExactlyOnce = patterns::outside(call).await?;
                if outside.is_applied(token, id.clone()).await? {
                    return Err(made_before("the update of document", &id));
                }
            }
            false
        }
        UpdateOutcome::Missing => return Err(missing("document", &id)),
        UpdateOutcome::Refused | UpdateOutcome::Fenced => return Err(not_allowed(&id)),
    };
    let mut writer = Writer::new();
    writer.put("applied", applied);
    Ok(writer.into())
}
