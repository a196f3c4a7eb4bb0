//! Forgets documents that are not needed any more: marks of abandoned versions, marks of pruned ones, and nodes that
//! mark an item as deleted.
//!
//! Each of them makes requests that arrive late harmless. So they are removed when no request of their time can be
//! under way any more, and when no writer works on top of a version below them, as it would have to find them.

use bson::{Bson, doc};

use super::record::{Stored, Version};
use super::requests::visible;
use super::{VersionState, VersionedTree};
use crate::Result;

impl VersionedTree {
    /// Removes (at most `batch` of each kind) what is older than
    /// [`forget_after`](super::VersionedTreeOptions::forget_after). Returns the number of documents that were removed.
    ///
    /// # Errors
    /// [`Error::Store`](crate::Error::Store) if the store fails: documents that were removed before stay removed.
    pub async fn forget(&self, batch: u32) -> Result<u64> {
        let Some(newest) = self.newest_version().await? else { return Ok(0) };
        let bases = self.writing(u32::MAX).await?.into_iter().map(|intent| intent.base);
        let below = bases.fold(newest.version, i64::min);
        Ok(self.forget_versions(below, batch).await? + self.forget_deleted(batch).await?)
    }

    async fn forget_versions(&self, below: i64, batch: u32) -> Result<u64> {
        let (requests, fields) = (self.requests(), self.fields());
        let mut old = requests.in_state(&[VersionState::Cleared, VersionState::Abandoned]);
        old.insert(&fields.ts, doc! { "$lt": self.ago(self.options.forget_after) });
        old.insert(&fields.version, doc! { "$lt": below });
        let mut forgotten = 0;
        for document in self.nodes.find(&old, &doc! { &fields.version: 1 }, batch).await? {
            let id = document.get("_id").cloned().unwrap_or(Bson::Null);
            let version = Version::read(&self.nodes, document, fields)?;
            if version.state == VersionState::Abandoned {
                if self.unused(vec![version.version]).await?.is_empty() {
                    continue;
                }
                // Without the mark, a node of the version would become visible.
                self.nodes.delete_many(&requests.nodes(version.version)).await?;
            }
            forgotten += u64::from(self.nodes.delete_one(&doc! { "_id": id }).await?);
        }
        Ok(forgotten)
    }

    /// Removes nodes that mark an item as deleted, once no readable version has the item.
    async fn forget_deleted(&self, batch: u32) -> Result<u64> {
        let (requests, fields) = (self.requests(), self.fields());
        let readable = requests.in_state(&[VersionState::Committed, VersionState::Pruning]);
        let oldest = self.nodes.find(&readable, &doc! { &fields.version: 1 }, 1).await?.pop();
        let Some(oldest) = oldest.map(|oldest| Version::read(&self.nodes, oldest, fields)).transpose()? else {
            return Ok(0);
        };
        if oldest.ts >= self.ago(self.options.forget_after) {
            return Ok(0);
        }
        // Abandoned versions have deleted nothing.
        let abandoned = self.abandoned_below(oldest.version).await?;
        let mut deleted = requests.nodes(visible(doc! { "$lte": oldest.version }, &abandoned));
        deleted.insert(&fields.deleted, true);
        let mut forgotten = 0;
        for document in self.nodes.find(&deleted, &doc! { &fields.version: 1 }, batch).await? {
            let id = document.get("_id").cloned().unwrap_or(Bson::Null);
            let node = Stored::read(&self.nodes, document, fields)?.node;
            self.nodes.delete_many(&requests.older(node.item, 0, node.version)).await?;
            forgotten += u64::from(self.nodes.delete_one(&doc! { "_id": id }).await?);
        }
        Ok(forgotten)
    }
}
