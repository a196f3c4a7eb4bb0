//! `handfastReconcileLedger`: makes entries final, and frees holds whose time is over. A service without a Rust program calls it regularly.

use handfast_patterns::Ledger;

use super::super::pattern_steps::{command, count};
use super::super::{Call, Command, Properties};
use crate::error::CommandResult;
use crate::patterns;
use crate::reply::Answer;
use crate::writer::{Writer, put_count};

pub(crate) const COMMAND: Command =
    command("handfastReconcileLedger", "makes entries of a ledger final", Properties::DEFAULT, |call| {
        Box::pin(run(call))
    });

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("handfastReconcileLedger");
    let count = count(&mut arguments)?;
    arguments.finish()?;
    let _kept = call.shared.patterns.keep_indexes().await;
    let ledger: Ledger = patterns::of(call).await?;
    let (expired, committed) = (ledger.expire(count).await?, ledger.commit(count).await?);
    let mut writer = Writer::new();
    put_count(&mut writer, "committed", committed.done);
    put_count(&mut writer, "expired", expired.done);
    put_count(&mut writer, "failed", committed.failed + expired.failed);
    Ok(writer.into())
}
