//! `handfastPostEntry`: posts an entry with all its changes of accounts, or with none.

use bson::{Document, RawDocument};
use handfast_patterns::Ledger;
use handfast_patterns::ledger::{Change, NewEntry, Posting};

use super::super::pattern_steps::{IN_TRANSACTION, command, put_value, required_id, required_text, required_value};
use super::super::{Call, Command};
use super::{ensure_first, refused};
use crate::arguments::Arguments;
use crate::error::CommandResult;
use crate::patterns;
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const COMMAND: Command =
    command("handfastPostEntry", "posts an entry of a ledger", IN_TRANSACTION, |call| Box::pin(run(call)));

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("handfastPostEntry");
    let entry = arguments.document("entry")?;
    let entry = read(arguments.required("entry", entry)?)?;
    arguments.finish()?;
    let _kept = call.shared.patterns.keep_indexes().await;
    let ledger: Ledger = patterns::of(call).await?;
    let (entry, posted) = match ledger.post(entry).await? {
        Posting::Posted(entry) => (entry, true),
        Posting::AlreadyPosted(entry) => {
            ensure_first(call, &entry.id).await?;
            (entry, false)
        }
        Posting::Refused(refusal) => return Err(refused(refusal)?),
    };
    let mut writer = Writer::new();
    put_value(&mut writer, "_id", &entry.id)?;
    writer.put("posted", posted).put("state", entry.status.state.name());
    Ok(writer.into())
}

fn read(entry: &RawDocument) -> CommandResult<NewEntry> {
    let mut arguments = Arguments::of_document("handfastPostEntry.entry", entry)?;
    let id = required_id(&mut arguments)?;
    let changes = arguments.documents("changes")?;
    let changes = arguments.required("changes", changes)?.into_iter().map(change);
    let mut entry = NewEntry::new(changes.collect::<CommandResult<Vec<Change>>>()?).with_id(id);
    if let Some(ts) = arguments.date("ts")? {
        entry = entry.at(ts);
    }
    entry = entry.with_metadata(Document::try_from(arguments.document_or_empty("metadata")?)?);
    arguments.finish()?;
    Ok(entry)
}

fn change(change: &RawDocument) -> CommandResult<Change> {
    let mut arguments = Arguments::of_document("handfastPostEntry.entry.changes", change)?;
    let account = required_value(&mut arguments, "account")?;
    let value = arguments.exact_integer("value")?;
    let value = arguments.required("value", value)?;
    let mut change = Change::new(account, value, required_text(&mut arguments, "asset")?);
    if let Some(kind) = arguments.text("type")? {
        change = change.called(kind);
    }
    arguments.finish()?;
    Ok(change)
}
