//! `handfastOpenAccount`: opens an account with a minimum or a sequence. Other accounts are opened by their first entry.

use handfast_patterns::Ledger;
use handfast_patterns::ledger::NewAccount;

use super::super::pattern_steps::{IN_TRANSACTION, command, required_id, required_text};
use super::super::{Call, Command};
use crate::arguments::Arguments;
use crate::error::CommandResult;
use crate::patterns;
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const COMMAND: Command =
    command("handfastOpenAccount", "opens an account of a ledger", IN_TRANSACTION, |call| Box::pin(run(call)));

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("handfastOpenAccount");
    let account = arguments.document("account")?;
    let mut account = Arguments::of_document("account", arguments.required("account", account)?)?;
    arguments.finish()?;
    let id = required_id(&mut account)?;
    let mut new = NewAccount::new(id, required_text(&mut account, "asset")?);
    if let Some(minimum) = account.exact_integer("minimum")? {
        new = new.with_minimum(minimum);
    }
    if account.flag("sequence")?.unwrap_or(false) {
        new = new.with_sequence();
    }
    account.finish()?;
    let _kept = call.shared.patterns.keep_indexes().await;
    let ledger: Ledger = patterns::of(call).await?;
    ledger.open_account(new).await?;
    Ok(Writer::new().into())
}
