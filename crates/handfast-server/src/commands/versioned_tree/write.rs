//! `handfastWriteTree`: commits a version of a tree, with all of its nodes or with none.

use bson::{Bson, Document, RawDocument, doc};
use handfast_mql::Code;
use handfast_patterns::versioned_tree::{Committed, PreparedCommit, Snapshot, Write};
use handfast_patterns::{Token, VersionedTree};

use super::super::pattern_steps::{command, invalid, optional_document, required_token, required_value, with_info};
use super::super::{Call, Command, Properties};
use crate::arguments::Arguments;
use crate::error::{CommandError, CommandResult};
use crate::patterns;
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const COMMAND: Command =
    command("handfastWriteTree", "commits a version of a tree", Properties::DEFAULT, |call| Box::pin(run(call)));

/// A version as the client has sent it.
struct NewVersion {
    /// The version that it must be based on; 0 for the first one, `None` for any.
    base: Option<i64>,
    put: Vec<(Bson, Document)>,
    remove: Vec<Bson>,
    /// The root, which stays as it is without one.
    root: Option<Document>,
}

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("handfastWriteTree");
    let root = required_value(&mut arguments, "tree")?;
    let token = required_token(&mut arguments)?;
    let new = read(&mut arguments)?;
    arguments.finish()?;
    let _kept = call.shared.patterns.keep_indexes().await;
    let trees: VersionedTree = patterns::of(call).await?;
    let tree = patterns::versioned_tree::with_root(&trees, root)?;
    let committed = match new.made_before(&tree, token).await? {
        Some(version) => Committed::Before { version },
        None => tree.change_once(token, |write| new.write(write)).await?,
    };
    let mut writer = Writer::new();
    writer.put("version", committed.version()).put("written", matches!(committed, Committed::Now { .. }));
    Ok(writer.into())
}

fn read(arguments: &mut Arguments<'_>) -> CommandResult<NewVersion> {
    let base = arguments.exact_integer("base")?;
    let (mut put, mut remove) = (Vec::new(), Vec::new());
    for node in arguments.documents("nodes")?.unwrap_or_default() {
        match read_node(node)? {
            (item, Some(content)) => put.push((item, content)),
            (item, None) => remove.push(item),
        }
    }
    Ok(NewVersion { base, put, remove, root: optional_document(arguments, "root")? })
}

/// Returns the item of a node, and its content unless it is to be removed.
fn read_node(node: &RawDocument) -> CommandResult<(Bson, Option<Document>)> {
    let mut arguments = Arguments::of_document("handfastWriteTree.nodes", node)?;
    let item = required_value(&mut arguments, "item")?;
    let content = optional_document(&mut arguments, "content")?;
    let removed = arguments.flag("remove")?.unwrap_or(false);
    arguments.finish()?;
    if content.is_some() == removed {
        return Err(invalid(format!("node {item} must have either content or remove: true")));
    }
    Ok((item, content))
}

impl NewVersion {
    /// Returns the version, if it is based on a certain one and was committed before. A change that is based on another version than the newest is
    /// refused here, because a version that is begun takes a number.
    async fn made_before(&self, tree: &VersionedTree, token: Token) -> CommandResult<Option<i64>> {
        let Some(base) = self.base else { return Ok(None) };
        if let Some(version) = tree.committed_by(token).await? {
            return Ok(Some(version));
        }
        let newest = tree.newest().await?.map_or(0, |newest| newest.version());
        if base == newest { Ok(None) } else { Err(newer(base, newest)?) }
    }

    async fn write(&self, mut write: Write) -> CommandResult<PreparedCommit> {
        let newest = write.base().map_or(0, Snapshot::version);
        if let Some(base) = self.base.filter(|base| *base != newest) {
            write.abandon().await?;
            return Err(newer(base, newest)?);
        }
        if !self.put.is_empty() {
            write.put_all(self.put.clone()).await?;
        }
        for item in &self.remove {
            write.remove(item.clone()).await?;
        }
        Ok(match &self.root {
            Some(root) => write.with_root(root.clone()),
            None => write.with_same_root(),
        })
    }
}

/// Returns the error of a version that is based on another one than the newest.
fn newer(base: i64, newest: i64) -> CommandResult<CommandError> {
    let text =
        format!("version {newest} is the newest, and the change is based on {base}: read it, and change it again");
    with_info(Code::WriteConflict, text, doc! { "newest": newest })
}
