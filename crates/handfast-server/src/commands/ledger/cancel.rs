//! `handfastCancelEntry`: cancels an entry, by a mark if it is not committed, and by a reversing entry afterwards.

use bson::Bson;
use handfast_patterns::Ledger;
use handfast_patterns::ledger::Cancel;

use super::super::pattern_steps::{IN_TRANSACTION, command, missing, named, put_value, required_text};
use super::super::{Call, Command};
use super::{ensure_first, made_before, refused};
use crate::error::CommandResult;
use crate::patterns;
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const COMMAND: Command =
    command("handfastCancelEntry", "cancels an entry of a ledger", IN_TRANSACTION, |call| Box::pin(run(call)));

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("handfastCancelEntry");
    let id = named(&mut arguments, "entry")?;
    let reason = required_text(&mut arguments, "reason")?;
    arguments.finish()?;
    let _kept = call.shared.patterns.keep_indexes().await;
    let Some(ledger) = patterns::ledger_with_entries(call).await? else { return Err(missing("entry", &id)) };
    let mut writer = Writer::new();
    writer.put("canceled", true);
    match ledger.cancel(id.clone(), reason).await? {
        Cancel::Canceled => ensure_counted(call, &id).await?,
        Cancel::Reversed(by) => {
            ensure_first(call, &by.id).await?;
            put_value(&mut writer, "reversedBy", &by.id)?;
        }
        Cancel::Refused(refusal) => return Err(refused(refusal)?),
        Cancel::Missing => return Err(missing("entry", &id)),
    }
    Ok(writer.into())
}

/// Fails in a transaction if the entry that it has canceled was canceled before.
async fn ensure_counted(call: &Call<'_>, id: &Bson) -> CommandResult<()> {
    if call.transaction_number().is_none() {
        return Ok(());
    }
    let ledger: Ledger = patterns::outside(call).await?;
    match ledger.show(id.clone()).await? {
        Some(entry) if !entry.counts() => Err(made_before(id)),
        Some(_) | None => Ok(()),
    }
}
