//! `handfastReadTree`: returns a tree in one version, all of its nodes or some of them.

use bson::{Bson, RawDocumentBuf};
use handfast_mql::Code;
use handfast_mql::depth::ANSWER_BYTES_MAX;
use handfast_patterns::VersionedTree;
use handfast_patterns::versioned_tree::Node;

use super::super::pattern_steps::{IN_TRANSACTION, command, owned, put_value, required_value};
use super::super::{Access, Call, Command};
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::{CommandError, CommandResult};
use crate::patterns;
use crate::reply::Answer;
use crate::writer::{Writer, decimal};

/// The bytes of a reply beside its nodes and its root.
const ENVELOPE_BYTES_MAX: usize = 1024;

pub(crate) const COMMAND: Command = Command {
    access: Access::Read,
    needs: Needs::Collection(&[Action::Find]),
    ..command("handfastReadTree", "returns a version of a tree", IN_TRANSACTION, |call| Box::pin(run(call)))
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("handfastReadTree");
    let root = required_value(&mut arguments, "tree")?;
    let version = arguments.exact_integer("version")?;
    let items = arguments.array("items")?;
    arguments.finish()?;
    let items = items.map(|items| items.into_iter().map(|item| owned(item?)).collect::<CommandResult<Vec<Bson>>>());
    let items = items.transpose()?;
    let trees: VersionedTree = patterns::to_read(call).await?;
    let tree = patterns::versioned_tree::with_root(&trees, root)?;
    let snapshot = match version {
        Some(version) => tree.at(version).await?,
        None => tree.newest().await?,
    };
    let mut writer = Writer::new();
    writer.put("exists", snapshot.is_some());
    let Some(snapshot) = snapshot else { return Ok(writer.into()) };
    let nodes = match items {
        Some(items) => snapshot.nodes(items).await?,
        None => snapshot.all().await?,
    };
    writer.put("version", snapshot.version()).put("root", RawDocumentBuf::try_from(snapshot.root())?);
    writer.begin_array("nodes");
    for (place, node) in nodes.iter().enumerate() {
        let node = described(node)?;
        if writer.len() + node.as_bytes().len() + ENVELOPE_BYTES_MAX > ANSWER_BYTES_MAX {
            let text = "the nodes do not fit into a reply: name the items that you need";
            return Err(CommandError::new(Code::BSONObjectTooLarge, text));
        }
        writer.put(decimal(place, &mut [0; 20]), node);
    }
    writer.end();
    Ok(writer.into())
}

fn described(node: &Node) -> CommandResult<RawDocumentBuf> {
    let Node { item, version, content } = node;
    let mut writer = Writer::new();
    put_value(&mut writer, "item", item)?;
    writer.put("version", *version).put("content", RawDocumentBuf::try_from(content)?);
    Ok(writer.finish())
}
