//! `handfastSetSynced`: changes a main document together with its flag, and then its copies.

use handfast_patterns::SyncFlag;
use handfast_patterns::sync_flag::{Begun, SyncOutcome};

use super::super::pattern_steps::{
    IN_TRANSACTION, command, made_before, named, not_allowed, required_change, required_token,
};
use super::super::{Call, Command};
use super::missing;
use crate::error::CommandResult;
use crate::patterns;
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const COMMAND: Command =
    command("handfastSetSynced", "changes a document and its copies", IN_TRANSACTION, |call| Box::pin(run(call)));

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("handfastSetSynced");
    let id = named(&mut arguments, "document")?;
    let token = required_token(&mut arguments)?;
    let change = required_change(&mut arguments)?;
    arguments.finish()?;
    let flag: SyncFlag = patterns::outside(call).await?;
    let outcome = if call.transaction_number().is_some() {
        match flag.within(patterns::store_of_call(call)).begin(token, id.clone(), &change).await? {
            // The copies follow after the commit.
            Begun::Flagged { version } => {
                if flag.is_changed(token, id.clone()).await? {
                    return Err(made_before("the change of document", &id));
                }
                Some((version, false))
            }
            Begun::Missing => None,
            Begun::Refused => return Err(not_allowed(&id)),
        }
    } else {
        match flag.change(token, id.clone(), &change).await? {
            SyncOutcome::Synced { version } => Some((version, true)),
            // The log has the error, and the sweep carries the change.
            SyncOutcome::Later { version, .. } => Some((version, false)),
            SyncOutcome::Missing => None,
            SyncOutcome::Refused => return Err(not_allowed(&id)),
        }
    };
    let Some((version, synced)) = outcome else { return Err(missing("document", &id)) };
    let mut writer = Writer::new();
    writer.put("version", version).put("synced", synced);
    Ok(writer.into())
}
