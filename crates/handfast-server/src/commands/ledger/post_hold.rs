//! `handfastPostHold`: holds an amount of a payer for a payee, to be captured or released later.

use bson::{Document, RawDocument};
use handfast_patterns::Ledger;
use handfast_patterns::ledger::{Authorisation, HoldState, Posting};

use super::super::pattern_steps::{IN_TRANSACTION, command, put_value, required_id, required_text, required_value};
use super::super::{Call, Command};
use super::{ensure_first, refused};
use crate::arguments::Arguments;
use crate::error::CommandResult;
use crate::patterns;
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const COMMAND: Command =
    command("handfastPostHold", "holds an amount of an account", IN_TRANSACTION, |call| Box::pin(run(call)));

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("handfastPostHold");
    let hold = arguments.document("hold")?;
    let hold = read(arguments.required("hold", hold)?)?;
    arguments.finish()?;
    let _kept = call.shared.patterns.keep_indexes().await;
    let ledger: Ledger = patterns::of(call).await?;
    let (entry, posted, state) = match ledger.authorise(hold).await? {
        Posting::Posted(entry) => (entry, true, HoldState::Open),
        Posting::AlreadyPosted(entry) => {
            ensure_first(call, &entry.id).await?;
            let state = ledger.hold_state(entry.id.clone()).await?.unwrap_or(HoldState::Open);
            (entry, false, state)
        }
        Posting::Refused(refusal) => return Err(refused(refusal)?),
    };
    let mut writer = Writer::new();
    put_value(&mut writer, "_id", &entry.id)?;
    writer.put("posted", posted).put("holdState", state.to_string());
    Ok(writer.into())
}

fn read(hold: &RawDocument) -> CommandResult<Authorisation> {
    let mut arguments = Arguments::of_document("handfastPostHold.hold", hold)?;
    let id = required_id(&mut arguments)?;
    let payer = required_value(&mut arguments, "payer")?;
    let payee = required_value(&mut arguments, "payee")?;
    let value = arguments.exact_integer("value")?;
    let value = arguments.required("value", value)?;
    let asset = required_text(&mut arguments, "asset")?;
    let mut hold = Authorisation::new(payer, payee, value, asset).with_id(id);
    if let Some(expires_at) = arguments.date("expiresAt")? {
        hold = hold.until(expires_at);
    }
    hold = hold.with_metadata(Document::try_from(arguments.document_or_empty("metadata")?)?);
    arguments.finish()?;
    Ok(hold)
}
