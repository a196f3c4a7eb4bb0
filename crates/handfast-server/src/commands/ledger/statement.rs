//! `handfastStatement`: returns a page of the changes of an account, in the order of their places.

use handfast_patterns::Ledger;
use handfast_patterns::ledger::{Line, Page, Statement};

use super::super::pattern_steps::{command, count, invalid, put_value, required_value};
use super::super::{Access, Call, Command, Properties};
use crate::arguments::Arguments;
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::CommandResult;
use crate::patterns;
use crate::reply::Answer;
use crate::writer::Writer;

/// Limit on the places of a page.
const PLACES_MAX: u32 = 500;

pub(crate) const COMMAND: Command = Command {
    access: Access::Read,
    needs: Needs::Collection(&[Action::Find]),
    ..command("handfastStatement", "returns the changes of an account", Properties::DEFAULT, |call| Box::pin(run(call)))
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("handfastStatement");
    let account = required_value(&mut arguments, "account")?;
    let page = page(&mut arguments)?;
    let places = count(&mut arguments)?;
    if places > PLACES_MAX {
        return Err(invalid(format!("count must be from 1 to {PLACES_MAX}, and is {places}")));
    }
    arguments.finish()?;
    let ledger: Ledger = patterns::to_read(call).await?;
    let Statement { lines, earlier, later } = ledger.statement(account.clone(), page, places).await?;
    // An account without a document has no changes.
    let exists = !lines.is_empty() || ledger.balance(account).await?.is_some();
    let mut writer = Writer::new();
    writer.put("exists", exists);
    writer.begin_array("lines");
    for (place, line) in lines.iter().enumerate() {
        writer.begin_document(&place.to_string());
        put(&mut writer, line)?;
        writer.end();
    }
    writer.end();
    for (name, page) in [("before", earlier), ("after", later)] {
        match page {
            Some(Page::Before(place) | Page::After(place)) => {
                writer.put(name, place);
            }
            Some(Page::Last) | None => {}
        }
    }
    Ok(writer.into())
}

fn page(arguments: &mut Arguments<'_>) -> CommandResult<Page> {
    let place = |name: &str, place: Option<i64>, least: i64| match place {
        Some(place) if place < least => Err(invalid(format!("{name} must be at least {least}, and is {place}"))),
        place => Ok(place),
    };
    let after = place("after", arguments.exact_integer("after")?, 0)?;
    let before = place("before", arguments.exact_integer("before")?, 1)?;
    match (after, before) {
        (Some(_), Some(_)) => Err(invalid("after and before exclude each other")),
        (Some(after), None) => Ok(Page::After(after)),
        (None, Some(before)) => Ok(Page::Before(before)),
        (None, None) => Ok(Page::Last),
    }
}

fn put(writer: &mut Writer, line: &Line) -> CommandResult<()> {
    let Line { entry, ts, status, change, balance, held, .. } = line;
    writer.put("seqId", change.seq_id).put("ts", *ts);
    put_value(writer, "entry", entry)?;
    writer
        .put("proc", status.proc.name())
        .put("state", status.state.name())
        .put("type", &*change.kind)
        .put("value", change.value)
        .put("hold", change.hold)
        .put("asset", &*change.asset)
        .put("balance", *balance)
        .put("held", *held);
    Ok(())
}
