//! What is different between two versions.

use std::collections::HashMap;

use bson::{Bson, doc};

use super::record::Stored;
use super::requests::visible;
use super::{Node, Snapshot, VersionedTree};
use crate::value::key_of;
use crate::{Error, Result};

/// Nodes of a page.
const PAGE: u32 = 1_000;

/// An item that is not the same in two versions.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Its item id.
    pub item: Bson,
    /// As it is in the first version; none if it is not there.
    pub before: Option<Node>,
    /// As it is in the second one.
    pub after: Option<Node>,
}

impl VersionedTree {
    /// What is different between two versions, the root first; in whichever order they are. An item whose content is the same in
    /// both is not in it. The time it takes goes with the nodes that were written between the two.
    ///
    /// # Errors
    /// Those of the store; [`Error::Gone`] if one of the versions is not there.
    pub async fn diff(&self, before: i64, after: i64) -> Result<Vec<Difference>> {
        let gone = |version: i64| Error::Gone { what: format!("version {version} of {}", self.root()) };
        let (from, to) = (self.at(before).await?, self.at(after).await?);
        let (from, to) = (from.ok_or_else(|| gone(before))?, to.ok_or_else(|| gone(after))?);
        let items = self.touched(&from, &to).await?;
        let by_key = |nodes: Vec<Node>| {
            nodes.into_iter().map(|node| Ok((key_of(&node.item)?, node))).collect::<Result<HashMap<_, _>>>()
        };
        let mut nodes_before = by_key(from.nodes(items.clone()).await?)?;
        let mut nodes_after = by_key(to.nodes(items.clone()).await?)?;
        let mut differences = Vec::new();
        for item in items {
            let key = key_of(&item)?;
            let (before, after) = (nodes_before.remove(&key), nodes_after.remove(&key));
            if before.as_ref().map(|node| &node.content) != after.as_ref().map(|node| &node.content) {
                differences.push(Difference { item, before, after });
            }
        }
        Ok(differences)
    }

    /// The root, and the items that were written between two versions.
    async fn touched(&self, from: &Snapshot, to: &Snapshot) -> Result<Vec<Bson>> {
        let (lower, upper) = if from.version() <= to.version() { (from, to) } else { (to, from) };
        let written = visible(doc! { "$gt": lower.version(), "$lte": upper.version() }, upper.abandoned());
        let mut pages = self.nodes.pages(&self.requests().nodes(written), PAGE).await?;
        let mut items = HashMap::new();
        while let Some(page) = pages.next().await? {
            for document in page {
                let item = Stored::read(&self.nodes, document, self.fields())?.node.item;
                items.insert(key_of(&item)?, item);
            }
        }
        let mut keys: Vec<_> = items.into_iter().collect();
        keys.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(std::iter::once(self.root().clone()).chain(keys.into_iter().map(|(_, item)| item)).collect())
    }
}
