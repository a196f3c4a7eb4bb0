//! The difference between two versions.

use std::collections::HashMap;

use bson::{Bson, doc};

use super::record::Stored;
use super::requests::visible;
use super::{Node, Snapshot, Version, VersionState, VersionedTree};
use crate::value::key_of;
use crate::{Error, Result};

/// The number of nodes of a page.
const PAGE: u32 = 1_000;

/// An item that differs between two versions.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Its item id.
    pub item: Bson,
    /// The item in the first version; `None` if it is absent.
    pub before: Option<Node>,
    /// The item in the second version; `None` if it is absent.
    pub after: Option<Node>,
}

impl VersionedTree {
    /// Returns the items that differ between two versions, which may be in any order, the root first. The time it
    /// takes is proportional to the number of nodes that were written between the two.
    ///
    /// # Errors
    /// [`Error::Gone`] if one of the versions was pruned, [`Error::Missing`] if one does not exist.
    pub async fn diff(&self, before: i64, after: i64) -> Result<Vec<Difference>> {
        let (from, to) = (self.snapshot_of(before).await?, self.snapshot_of(after).await?);
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

    /// Returns a version, which must be readable.
    async fn snapshot_of(&self, version: i64) -> Result<Snapshot> {
        let what = || format!("version {version} of {}", self.root());
        match self.show(version).await? {
            Some(there) if there.state.is_readable() => self.snapshot(there).await,
            Some(Version { state: VersionState::Pruned | VersionState::Cleared, .. }) => {
                Err(Error::Gone { what: what() })
            }
            // Its number was given up, its root does not exist yet, or it was pruned and forgotten.
            _ => Err(Error::Missing { what: what() }),
        }
    }

    /// Returns the root, and the items that were written between two versions.
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
