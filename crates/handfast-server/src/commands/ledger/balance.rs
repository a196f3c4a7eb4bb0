//! `handfastBalance`: returns the balance of an account, now or as of a time, an entry or a place.

use handfast_patterns::Ledger;
use handfast_patterns::ledger::{AsOf, Balance};

use super::super::pattern_steps::{IN_TRANSACTION, command, invalid, owned, put_value, required_value};
use super::super::{Access, Call, Command};
use crate::arguments::Arguments;
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::CommandResult;
use crate::patterns;
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const COMMAND: Command = Command {
    access: Access::Read,
    needs: Needs::Collection(&[Action::Find]),
    ..command("handfastBalance", "returns the balance of an account", IN_TRANSACTION, |call| Box::pin(run(call)))
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("handfastBalance");
    let account = required_value(&mut arguments, "account")?;
    let as_of = as_of(&mut arguments)?;
    arguments.finish()?;
    let ledger: Ledger = patterns::to_read(call).await?;
    let balance = match as_of {
        Some(as_of) => ledger.balance_at(account, as_of).await?,
        None => ledger.balance(account).await?,
    };
    let mut writer = Writer::new();
    writer.put("exists", balance.is_some());
    if let Some(balance) = balance {
        put(&mut writer, &balance)?;
    }
    Ok(writer.into())
}

fn as_of(arguments: &mut Arguments<'_>) -> CommandResult<Option<AsOf>> {
    let at = arguments.date("at")?.map(AsOf::Time);
    let entry = arguments.any("entry")?.map(owned).transpose()?.map(AsOf::Entry);
    let place = arguments.exact_integer("seqId")?.map(AsOf::SequenceNumber);
    let mut given = [at, entry, place].into_iter().flatten();
    match (given.next(), given.next()) {
        (as_of, None) => Ok(as_of),
        (_, Some(_)) => Err(invalid("at, entry and seqId exclude each other")),
    }
}

fn put(writer: &mut Writer, balance: &Balance) -> CommandResult<()> {
    let Balance { account, asset, balance, held, available, pending, seq_id, anchor_seq_id: _, missing } = balance;
    put_value(writer, "account", account)?;
    writer
        .put("asset", asset)
        .put("balance", *balance)
        .put("available", *available)
        .put("held", *held)
        .put("pending", *pending)
        .put("seqId", *seq_id)
        .put("missing", *missing);
    Ok(())
}
