//! `handfastReconcileLedger`: makes entries final, and frees holds whose time is over. A service without a Rust program calls it regularly.

use handfast_patterns::Ledger;

use super::super::pattern_steps::{command, invalid};
use super::super::{Call, Command, Properties};
use crate::error::CommandResult;
use crate::patterns;
use crate::reply::Answer;
use crate::writer::{Writer, put_count};

/// Limit on the entries of a round, and on its holds.
const COUNT_MAX: u64 = 1000;
const COUNT: u64 = 100;

pub(crate) const COMMAND: Command =
    command("handfastReconcileLedger", "makes entries of a ledger final", Properties::DEFAULT, |call| {
        Box::pin(run(call))
    });

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("handfastReconcileLedger");
    let count = arguments.exact_unsigned("count")?.unwrap_or(COUNT);
    arguments.finish()?;
    let Some(count) = u32::try_from(count).ok().filter(|count| (1..=COUNT_MAX).contains(&u64::from(*count))) else {
        return Err(invalid(format!("count must be from 1 to {COUNT_MAX}, and is {count}")));
    };
    let _kept = call.shared.patterns.keep_indexes().await;
    let ledger: Ledger = patterns::of(call).await?;
    let (expired, committed) = (ledger.expire(count).await?, ledger.commit(count).await?);
    let mut writer = Writer::new();
    put_count(&mut writer, "committed", committed.done);
    put_count(&mut writer, "expired", expired.done);
    put_count(&mut writer, "failed", committed.failed + expired.failed);
    Ok(writer.into())
}
