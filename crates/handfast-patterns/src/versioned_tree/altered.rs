//! Finds documents that another program has altered in a way that no version shows: numbers and trees of nodes,
//! missing bases of writes, a missing index.

use bson::{Bson, Document, doc};

use super::verify::{Finding, Verified};
use super::{TreeFields, VersionedTree};
use crate::Result;
use crate::value::integer;

/// Limit on the other trees of a collection that are examined.
const TREES_MAX: u32 = 10_000;

impl VersionedTree {
    pub(super) async fn look_for_altered(&self, page: u32, verified: &mut Verified) -> Result<()> {
        self.look_for_numbers(page, verified).await?;
        self.look_for_trees(page, verified).await?;
        self.look_for_bases(verified).await?;
        let TreeFields { item, version, .. } = self.fields();
        if !self.nodes.has_unique_index(&doc! { item: 1, version: 1 }).await? {
            verified.found(Finding::NoUniqueIndex);
        }
        Ok(())
    }

    /// Reports roots and nodes whose version is not an integer.
    async fn look_for_numbers(&self, page: u32, verified: &mut Verified) -> Result<()> {
        let TreeFields { item, version, tree, .. } = self.fields();
        let no_integer = doc! {
            "$or": [{ tree: self.root().clone() }, { item: self.root().clone() }],
            version: { "$not": { "$type": ["int", "long"] } },
        };
        let mut pages = self.nodes.pages(&no_integer, page).await?;
        while let Some(found) = pages.next().await? {
            for node in found {
                let number = node.get(version);
                if number.is_none() || integer(&node, version).is_err() {
                    verified.found(Finding::Number { item: value(&node, item), found: number.cloned() });
                }
            }
        }
        Ok(())
    }

    /// Reports roots that name another tree, and nodes of this tree's items that name no tree, or one without a root.
    /// Nothing else would show them: the items of two trees differ, as both have the same numbers.
    async fn look_for_trees(&self, page: u32, verified: &mut Verified) -> Result<()> {
        let TreeFields { item, tree, .. } = self.fields();
        let (is_other, root) = (doc! { "$ne": self.root().clone() }, self.root().clone());
        let roots = doc! { item: root.clone(), tree: is_other.clone() };
        let mut pages = self.nodes.pages(&roots, page).await?;
        while let Some(found) = pages.next().await? {
            found.iter().for_each(|node| verified.found(self.of_other_tree(node)));
        }
        let others = [
            doc! { "$match": { tree: is_other, item: { "$ne": root } } },
            doc! { "$group": { "_id": format!("${tree}") } },
            doc! { "$limit": TREES_MAX },
        ];
        for other in self.nodes.aggregate(&others).await? {
            let other = value(&other, "_id");
            if other != Bson::Null && self.nodes.find_one(&doc! { item: other.clone() }).await?.is_some() {
                continue;
            }
            let mut pages = self.nodes.pages(&doc! { tree: other, item: { "$ne": self.root().clone() } }, page).await?;
            while let Some(found) = pages.next().await? {
                for node in found {
                    let ours = doc! { item: value(&node, item), tree: self.root().clone() };
                    if self.nodes.find_one(&ours).await?.is_some() {
                        verified.found(self.of_other_tree(&node));
                    }
                }
            }
        }
        Ok(())
    }

    fn of_other_tree(&self, node: &Document) -> Finding {
        let TreeFields { item, version, tree, .. } = self.fields();
        Finding::Tree {
            item: value(node, item),
            version: integer(node, version).unwrap_or(0),
            found: node.get(tree).cloned(),
        }
    }

    /// Reports versions that are being written on top of one that does not exist. A version is not pruned while a
    /// write is based on it.
    async fn look_for_bases(&self, verified: &mut Verified) -> Result<()> {
        let (requests, fields) = (self.requests(), self.fields());
        let mut pages = self.writes.pages(&requests.of_tree(), TREES_MAX).await?;
        while let Some(found) = pages.next().await? {
            for write in found {
                let (Ok(version), Ok(base)) = (integer(&write, &fields.version), integer(&write, &fields.base)) else {
                    continue;
                };
                let is_gone = base > 0 && self.nodes.find_one(&requests.root_or_mark(base)).await?.is_none();
                // The write may be over by now, and its base pruned and forgotten.
                if is_gone && self.writes.find_one(&doc! { "_id": value(&write, "_id") }).await?.is_some() {
                    verified.found(Finding::BaseGone { version, base });
                }
            }
        }
        Ok(())
    }
}

fn value(document: &Document, field: &str) -> Bson {
    document.get(field).cloned().unwrap_or(Bson::Null)
}
