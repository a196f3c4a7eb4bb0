//! The snapshot of a tree in one version.

use std::collections::HashMap;

use bson::{Bson, Document, doc};

use super::record::Stored;
use super::requests::visible;
use super::{Node, Version, VersionState, VersionedTree};
use crate::value::{equal, integer, key_of, one_of};
use crate::{Error, Result};

/// Limit on the abandoned numbers that a tree remembers, as the requests of every reader contain each of them.
const ABANDONED_MAX: u32 = 100_000;
/// Limit on the items of one request for nodes.
const ITEMS_MAX: usize = 500;
/// The number of documents of a page of a whole tree.
const PAGE: u32 = 1_000;

/// A tree in one version, which never changes. Once the version is pruned, reads return [`Error::Gone`];
/// [`Snapshot::pin`] keeps it from being pruned.
#[derive(Clone)]
pub struct Snapshot {
    tree: VersionedTree,
    version: Version,
    /// The abandoned numbers below it. No number below a committed version is abandoned later.
    abandoned: std::sync::Arc<[i64]>,
}

impl VersionedTree {
    pub(super) async fn snapshot(&self, version: Version) -> Result<Snapshot> {
        let abandoned = if version.gaps { self.abandoned_below(version.version).await? } else { Vec::new() };
        Ok(Snapshot { tree: self.clone(), version, abandoned: abandoned.into() })
    }

    /// Returns the abandoned numbers below this one that are remembered.
    pub(super) async fn abandoned_below(&self, version: i64) -> Result<Vec<i64>> {
        let mut below = self.requests().in_state(&[VersionState::Abandoned]);
        below.insert(&self.fields().version, doc! { "$lt": version });
        let found = self.nodes.find(&below, &doc! {}, ABANDONED_MAX + 1).await?;
        if found.len() > ABANDONED_MAX as usize {
            let what =
                format!("more than {ABANDONED_MAX} abandoned versions are remembered: forget those that are old");
            return Err(Error::invalid(what));
        }
        // Of a document that another program has altered, only the number counts.
        let version = &self.fields().version;
        let read =
            |document: &Document| integer(document, version).map_err(|error| self.nodes.damaged(document, error));
        found.iter().map(read).collect()
    }
}

impl Snapshot {
    /// Returns the number of the version.
    pub fn version(&self) -> i64 {
        self.version.version
    }

    /// Returns the version.
    pub fn record(&self) -> &Version {
        &self.version
    }

    /// Returns the content of the root.
    pub fn root(&self) -> &Document {
        &self.version.root
    }

    /// Returns a node; `None` if the version has no such item.
    ///
    /// # Errors
    /// [`Error::Gone`] if the version was pruned.
    pub async fn node(&self, item: impl Into<Bson>) -> Result<Option<Node>> {
        let (item, tree) = (item.into(), &self.tree);
        if key_of(&item)? == key_of(tree.root())? {
            return Ok(Some(self.root_node()));
        }
        let requests = tree.requests();
        let versions = requests.item_at(equal(&item), self.version(), &self.abandoned);
        let found = tree.nodes.find(&versions, &requests.newest_first(), 1).await?;
        self.ensure_kept().await?;
        Ok(self.read(found)?.pop())
    }

    /// Returns those of these items that the version has, in the order of the ids.
    ///
    /// # Errors
    /// [`Error::Gone`] if the version was pruned.
    pub async fn nodes(&self, items: impl IntoIterator<Item = impl Into<Bson>>) -> Result<Vec<Node>> {
        let items: Vec<Bson> = items.into_iter().map(Into::into).collect();
        let mut found: HashMap<Vec<u8>, Node> = HashMap::from([(key_of(self.tree.root())?, self.root_node())]);
        for items in items.chunks(ITEMS_MAX) {
            for node in self.highest(one_of(items.iter().cloned())).await? {
                let key = key_of(&node.item)?;
                // Roots and marks are not nodes.
                found.entry(key).or_insert(node);
            }
        }
        self.ensure_kept().await?;
        let keys = items.iter().map(key_of).collect::<Result<Vec<_>>>()?;
        Ok(keys.iter().filter_map(|key| found.get(key).cloned()).collect())
    }

    /// Returns all nodes but the root, in no order. They are held in memory.
    ///
    /// # Errors
    /// [`Error::Gone`] if the version was pruned.
    pub async fn all(&self) -> Result<Vec<Node>> {
        self.all_but(Err).await
    }

    /// Returns all nodes but the root. `leave_out` decides for each one that cannot be read whether it may be left
    /// out.
    pub(super) async fn all_but(&self, leave_out: impl Fn(Error) -> Result<()>) -> Result<Vec<Node>> {
        let tree = &self.tree;
        let versions = visible(doc! { "$lte": self.version() }, &self.abandoned);
        let mut pages = tree.nodes.pages(&tree.requests().nodes(versions), PAGE).await?;
        let mut highest: HashMap<Vec<u8>, Stored> = HashMap::new();
        while let Some(page) = pages.next().await? {
            for document in page {
                let stored = match Stored::read(&tree.nodes, document, tree.fields()) {
                    Ok(stored) => stored,
                    Err(odd) => {
                        leave_out(odd)?;
                        continue;
                    }
                };
                let key = key_of(&stored.node.item)?;
                if highest.get(&key).is_none_or(|seen| seen.node.version < stored.node.version) {
                    highest.insert(key, stored);
                }
            }
        }
        self.ensure_kept().await?;
        Ok(highest.into_values().filter(|stored| !stored.deleted).map(|stored| stored.node).collect())
    }

    /// Checks that all nodes of the version were there at the last read: they are removed only after its state was
    /// changed.
    ///
    /// # Errors
    /// [`Error::Gone`] if the version was pruned.
    pub(super) async fn ensure_kept(&self) -> Result<()> {
        match self.tree.show(self.version()).await? {
            Some(now) if now.state.is_readable() => Ok(()),
            _ => Err(Error::Gone { what: format!("version {} of {}", self.version(), self.tree.root()) }),
        }
    }

    pub(super) fn tree(&self) -> &VersionedTree {
        &self.tree
    }

    pub(super) fn abandoned(&self) -> &[i64] {
        &self.abandoned
    }

    pub(super) fn root_node(&self) -> Node {
        Node { item: self.tree.root().clone(), version: self.version(), content: self.version.root.clone() }
    }

    /// Returns the highest visible version of each of these items.
    async fn highest(&self, items: Document) -> Result<Vec<Node>> {
        let (tree, fields) = (&self.tree, self.tree.fields());
        let pipeline = [
            doc! { "$match": tree.requests().item_at(items, self.version(), &self.abandoned) },
            doc! { "$sort": { &fields.item: 1, &fields.version: -1 } },
            doc! { "$group": { "_id": format!("${}", fields.item), "node": { "$first": "$$ROOT" } } },
        ];
        let found = tree.nodes.aggregate(&pipeline).await?;
        self.read(found.into_iter().filter_map(|group| group.get_document("node").cloned().ok()).collect())
    }

    /// Returns the nodes that are not of deleted items.
    fn read(&self, documents: Vec<Document>) -> Result<Vec<Node>> {
        let mut nodes = Vec::with_capacity(documents.len());
        for document in documents {
            let stored = Stored::read(&self.tree.nodes, document, self.tree.fields())?;
            if !stored.deleted {
                nodes.push(stored.node);
            }
        }
        Ok(nodes)
    }
}
