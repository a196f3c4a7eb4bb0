//! `handfastOpenTwoPhase`: records which documents take part in the transactions of a collection, or compares that with the record.

use bson::RawBsonRef;
use handfast_mql::Code;
use handfast_patterns::two_phase::{Accounts, PendingFields};
use handfast_store::Namespace;

use super::super::pattern_steps::{command, invalid, required_text};
use super::super::{Call, Command, Properties};
use crate::arguments::Arguments;
use crate::error::{CommandError, CommandResult};
use crate::patterns;
use crate::reply::Answer;
use crate::request::check_written;
use crate::writer::Writer;

pub(crate) const COMMAND: Command =
    command("handfastOpenTwoPhase", "records the participants of transactions", Properties::DEFAULT, |call| {
        Box::pin(run(call))
    });

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let transactions = call.request.namespace()?;
    check_written(&transactions)?;
    let mut options = patterns::two_phase::defaults(&transactions)?;
    let mut arguments = call.arguments("handfastOpenTwoPhase");
    if let Some(accounts) = arguments.document("accounts")? {
        let mut accounts = Arguments::of_document("handfastOpenTwoPhase.accounts", accounts)?;
        read_accounts(&mut options.accounts, &mut accounts, transactions.database())?;
        accounts.finish()?;
    }
    for participant in arguments.array("participants")?.into_iter().flatten() {
        let RawBsonRef::String(participant) = participant? else {
            let text = "participants must be an array of names of collections";
            return Err(CommandError::new(Code::TypeMismatch, text));
        };
        options.participants.push(Namespace::new(transactions.database(), participant)?);
    }
    if let Some(max) = arguments.exact_unsigned("finishedMax")? {
        options.finished_max =
            u32::try_from(max).map_err(|_| invalid(format!("finishedMax is more than {}", u32::MAX)))?;
    }
    arguments.finish()?;
    patterns::two_phase::open(call.shared, transactions, options).await?;
    Ok(Writer::new().into())
}

fn read_accounts(accounts: &mut Accounts, arguments: &mut Arguments<'_>, database: &str) -> CommandResult<()> {
    if let Some(collection) = arguments.text("collection")? {
        accounts.namespace = Namespace::new(database, collection)?;
    }
    if let Some(balance) = arguments.text("balance")? {
        balance.clone_into(&mut accounts.balance);
    }
    accounts.overdraft = arguments.flag("overdraft")?.unwrap_or(false);
    if let Some(pending) = arguments.document("pending")? {
        let mut pending = Arguments::of_document("handfastOpenTwoPhase.accounts.pending", pending)?;
        let credits = required_text(&mut pending, "credits")?.to_owned();
        let debits = required_text(&mut pending, "debits")?.to_owned();
        pending.finish()?;
        accounts.pending = Some(PendingFields { credits, debits });
    }
    Ok(())
}
