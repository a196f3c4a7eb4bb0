//! `handfastSweepTree`: removes what writers that died have left of a tree. A service without a Rust program calls it regularly.

use handfast_patterns::VersionedTree;

use super::super::pattern_steps::{command, count, required_value};
use super::super::{Call, Command, Properties};
use crate::error::CommandResult;
use crate::patterns;
use crate::reply::Answer;
use crate::writer::{Writer, put_count};

pub(crate) const COMMAND: Command =
    command("handfastSweepTree", "removes versions that were left behind", Properties::DEFAULT, |call| {
        Box::pin(run(call))
    });

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("handfastSweepTree");
    let root = required_value(&mut arguments, "tree")?;
    let count = count(&mut arguments)?;
    arguments.finish()?;
    let trees: VersionedTree = patterns::of(call).await?;
    let round = patterns::versioned_tree::with_root(&trees, root)?.sweep(count).await?;
    let mut writer = Writer::new();
    put_count(&mut writer, "swept", round.done);
    put_count(&mut writer, "failed", round.failed);
    writer.put("more", round.more);
    Ok(writer.into())
}
