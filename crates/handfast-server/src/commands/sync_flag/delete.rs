//! `handfastDeleteSynced`: deletes a main document, after its copies were treated by the rule of their link.

use handfast_patterns::SyncFlag;
use handfast_patterns::sync_flag::{Begun, MainState, SyncOutcome};

use super::super::pattern_steps::{IN_TRANSACTION, command, made_before, named};
use super::super::{Call, Command};
use super::missing;
use crate::error::CommandResult;
use crate::patterns;
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const COMMAND: Command =
    command("handfastDeleteSynced", "deletes a document that has copies", IN_TRANSACTION, |call| Box::pin(run(call)));

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("handfastDeleteSynced");
    let id = named(&mut arguments, "document")?;
    arguments.finish()?;
    let flag: SyncFlag = patterns::outside(call).await?;
    let (deleted, synced) = if call.transaction_number().is_some() {
        match flag.within(patterns::store_of_call(call)).begin_delete(id.clone()).await? {
            Begun::Flagged { .. } => {}
            // An earlier run of the transaction may have deleted it together with its other changes.
            Begun::Missing | Begun::Refused => return Err(missing("document", &id)),
        }
        if flag.show(id.clone()).await?.is_some_and(|main| main.state == MainState::Deleting) {
            return Err(made_before("the delete of document", &id));
        }
        (true, false)
    } else {
        match flag.delete(id.clone()).await? {
            SyncOutcome::Synced { .. } => (true, true),
            SyncOutcome::Later { .. } => (true, false),
            SyncOutcome::Missing | SyncOutcome::Refused => (false, true),
        }
    };
    let mut writer = Writer::new();
    writer.put("deleted", deleted).put("synced", synced);
    Ok(writer.into())
}
