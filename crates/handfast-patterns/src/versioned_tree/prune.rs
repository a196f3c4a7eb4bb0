//! Prunes old versions, and removes the nodes that only they used.
//!
//! ```text
//! kept       2                   7            9              pruned: 3, 5
//! a          1     3                                         1 is used by 2, 3 by 7 and 9: both stay
//! b                3     5                                   5 is used by 7 and 9; 3 is used by no kept version and is removed
//! c                                     8                    stays: it is of 9, or of a version being written
//! ```
//!
//! A node is used by the versions from its own to the next one of the same item. Only pruned versions lie between two
//! kept versions that follow each other, so of the nodes of one item in there, all but the last are unused. Nothing
//! above the newest version is ever touched, and what is committed meanwhile uses what the newest version uses.
//!
//! The steps, each of which may be repeated: mark the root (`pruning`); read the pins; spare the version or condemn it
//! (`pruned`, from here on it cannot be read); remove nodes; clear the root. A reader checks after each read that its
//! version is not condemned.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use bson::{Bson, Document, doc};
use tracing::Instrument;

use super::record::{Stored, Version};
use super::requests::visible;
use super::{VersionState, VersionedTree};
use crate::metrics::Event;
use crate::steps::Request;
use crate::value::{integer, key_of};
use crate::{CancellationToken, Result, Round, Runner, RunnerOptions};

/// Limit on the versions of a tree that one prune considers.
const VERSIONS_MAX: u32 = 100_000;
/// The number of nodes of a page.
const PAGE: u32 = 500;

/// The rules for the versions to keep: a version stays if any rule keeps it. The newest one, named ones, pinned ones,
/// and those that a writer is working on top of are always kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// The number of newest versions to keep.
    pub last: u32,
    /// Keeps versions that were written within this time, by the clock of their writer.
    pub newer_than: Option<Duration>,
}

/// The plan of a prune.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrunePlan {
    /// The versions that would be pruned, the oldest first.
    pub versions: Vec<i64>,
    /// The versions that would be kept, the oldest first.
    pub kept: Vec<i64>,
    /// The number of nodes that would be removed.
    pub nodes: u64,
}

impl VersionedTree {
    /// Prunes versions (at most `batch`) that no rule keeps, and completes earlier prunes. It may run in any process
    /// at any time.
    ///
    /// # Errors
    /// [`Error::Store`](crate::Error::Store) if the store fails: prune again.
    pub async fn prune(&self, keep: Keep, batch: u32) -> Result<Round> {
        let versions = self.readable().await?;
        let unkept = self.unkept(&versions, keep).await?;
        let mut round = Round { more: unkept.len() as u64 > u64::from(batch), ..Round::default() };
        for version in unkept.iter().take(batch as usize) {
            let mark = self.sources.ids.object_id();
            if let Some(Request { filter, update }) = self.requests().mark(*version, mark) {
                self.nodes.update_one(&filter, &update).await?;
            }
        }
        self.spare_or_condemn(keep).await?;
        for ((below, above), pruned) in self.condemned().await? {
            let span = tracing::info_span!("versioned_tree.prune", tree = %self.root(), ?pruned);
            round.done += self.remove_between(below, above, &pruned).instrument(span).await?;
        }
        Ok(round)
    }

    /// Returns the plan of a prune, and changes nothing.
    pub async fn plan_prune(&self, keep: Keep) -> Result<PrunePlan> {
        let versions = self.readable().await?;
        let unkept = self.unkept(&versions, keep).await?;
        let numbers = versions.iter().rev().map(|version| version.version);
        let kept: Vec<_> = numbers.filter(|version| !unkept.contains(version)).collect();
        let mut nodes = 0;
        for (below, above) in between(&kept, unkept.iter().copied()).into_keys() {
            nodes += self.superseded(below, above).await?;
        }
        Ok(PrunePlan { versions: unkept.into_iter().collect(), kept, nodes })
    }

    /// Runs [`VersionedTree::prune`] and [`VersionedTree::forget`] in the background.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for options that are out of range.
    pub fn spawn_prune(&self, keep: Keep, options: RunnerOptions, cancel: &CancellationToken) -> Result<Runner> {
        let tree = self.clone();
        Runner::spawn("versioned_tree.prune", &self.sources, options, cancel, move |batch| {
            let tree = tree.clone();
            async move {
                let (pruned, forgotten) = (tree.prune(keep, batch).await?, tree.forget(batch).await?);
                Ok(Round { done: pruned.done + forgotten, ..pruned })
            }
        })
    }

    /// Returns all versions that can be read, the newest first.
    async fn readable(&self) -> Result<Vec<Version>> {
        self.versions(VERSIONS_MAX).await
    }

    /// Returns the versions that no rule keeps, that are not pinned, and that no write is based on.
    async fn unkept(&self, versions: &[Version], keep: Keep) -> Result<BTreeSet<i64>> {
        let mut held: BTreeSet<i64> = self.pinned().await?.into_iter().collect();
        held.extend(self.writing(VERSIONS_MAX).await?.iter().map(|intent| intent.base));
        let since = keep.newer_than.map(|age| self.ago(age));
        let last = keep.last.max(1) as usize;
        let unkept =
            |version: &&Version| since.is_none_or(|since| version.ts < since) && !held.contains(&version.version);
        Ok(versions.iter().skip(last).filter(unkept).map(|version| version.version).collect())
    }

    /// Spares or condemns the marked versions, after reading the pins.
    async fn spare_or_condemn(&self, keep: Keep) -> Result<()> {
        let versions = self.readable().await?;
        let unkept = self.unkept(&versions, keep).await?;
        for version in versions {
            let (VersionState::Pruning, Some(mark)) = (version.state, version.mark) else { continue };
            let step = if unkept.contains(&version.version) {
                self.requests().condemn(version.version, mark)
            } else {
                self.requests().spare(version.version, mark)
            };
            if let Some(Request { filter, update }) = step {
                self.nodes.update_one(&filter, &update).await?;
            }
        }
        Ok(())
    }

    /// Returns condemned versions, by the versions that can be read before and after them.
    async fn condemned(&self) -> Result<BTreeMap<(i64, i64), Vec<i64>>> {
        let condemned = self.in_state(&[VersionState::Pruned], VERSIONS_MAX).await?;
        let readable: Vec<i64> = self.readable().await?.iter().rev().map(|version| version.version).collect();
        Ok(between(&readable, condemned.iter().rev().map(|version| version.version)))
    }

    /// Removes the nodes between two versions that neither uses. The condemned versions are all that lie between.
    async fn remove_between(&self, below: i64, above: i64, condemned: &[i64]) -> Result<u64> {
        // A node that a condemned version used, and the version above does not, was replaced after that.
        let oldest = condemned.first().copied().unwrap_or(above);
        self.remove_replaced(oldest, below, above).await?;
        for version in condemned {
            if let Some(Request { filter, update: stub }) = self.requests().clear(*version, self.now()) {
                let pruned = self.nodes.update_one(&filter, &stub).await?;
                self.count(Event::VersionPruned, u64::from(pruned));
            }
        }
        Ok(condemned.len() as u64)
    }

    /// Removes the nodes between two versions, except for the last one of each item, for the items that have a node
    /// above `from`.
    async fn remove_replaced(&self, from: i64, below: i64, above: i64) -> Result<u64> {
        let abandoned = self.abandoned_below(above).await?;
        let newer = self.requests().nodes(visible(doc! { "$gt": from, "$lte": above }, &abandoned));
        let (mut pages, mut removed) = (self.nodes.pages(&newer, PAGE).await?, 0);
        while let Some(page) = pages.next().await? {
            let items: Vec<_> = page.iter().filter_map(|node| node.get(&self.fields().item).cloned()).collect();
            let mut between = self.requests().nodes(doc! { "$gt": below, "$lte": above });
            between.insert(&self.fields().item, doc! { "$in": items });
            let mut replaced = Replaced::default();
            let mut nodes = self.nodes.pages(&between, PAGE).await?;
            while let Some(page) = nodes.next().await? {
                for node in page {
                    replaced.add(node, self, &abandoned)?;
                }
            }
            for ids in replaced.ids().chunks(PAGE as usize) {
                removed += self.nodes.delete_many(&doc! { "_id": { "$in": ids.to_vec() } }).await?;
            }
        }
        Ok(removed)
    }

    /// Searches the whole tree for nodes that no version uses any more, and removes them; returns their number. A
    /// prune removes such nodes itself, except for a node whose insert arrives once more after it was pruned: that one
    /// is invisible, and stays.
    ///
    /// # Errors
    /// [`Error::Store`](crate::Error::Store) if the store fails: tidy again.
    pub async fn tidy(&self) -> Result<u64> {
        let mut readable = self.readable().await?;
        readable.reverse();
        let (mut below, mut removed) = (0, 0);
        for version in readable {
            removed += self.remove_replaced(below, below, version.version).await?;
            below = version.version;
        }
        Ok(removed)
    }

    /// Returns the number of nodes between two versions that neither would use.
    async fn superseded(&self, below: i64, above: i64) -> Result<u64> {
        let versions = visible(doc! { "$gt": below, "$lte": above }, &self.abandoned_below(above).await?);
        let pipeline = [
            doc! { "$match": self.requests().nodes(versions) },
            doc! { "$group": { "_id": format!("${}", self.fields().item), "nodes": { "$sum": 1 } } },
            doc! { "$group": { "_id": null, "nodes": { "$sum": { "$subtract": ["$nodes", 1] } } } },
        ];
        let counted = self.nodes.aggregate(&pipeline).await?;
        let nodes = counted.first().map_or(Ok(0), |counted| integer(counted, "nodes"))?;
        Ok(u64::try_from(nodes).unwrap_or(0))
    }
}

/// Nodes of some items between two versions, of which only the last one of each item is used.
#[derive(Default)]
struct Replaced {
    nodes: Vec<(Vec<u8>, i64, Bson)>,
    last: HashMap<Vec<u8>, i64>,
}

impl Replaced {
    fn add(&mut self, node: Document, tree: &VersionedTree, abandoned: &[i64]) -> Result<()> {
        let id = node.get("_id").cloned().unwrap_or(Bson::Null);
        let node = Stored::read(&tree.nodes, node, tree.fields())?.node;
        let key = key_of(&node.item)?;
        if !abandoned.contains(&node.version) {
            let last = self.last.entry(key.clone()).or_default();
            *last = node.version.max(*last);
        }
        self.nodes.push((key, node.version, id));
        Ok(())
    }

    fn ids(self) -> Vec<Bson> {
        let Replaced { nodes, last } = self;
        let replaced = |(key, version, _): &(Vec<u8>, i64, Bson)| last.get(key).is_some_and(|last| version < last);
        nodes.into_iter().filter(replaced).map(|(_, _, id)| id).collect()
    }
}

/// Groups the versions `go` by the versions that stay before and after them; both are in ascending order. The newest
/// one stays.
pub(super) fn between(stay: &[i64], go: impl Iterator<Item = i64>) -> BTreeMap<(i64, i64), Vec<i64>> {
    let mut gaps: BTreeMap<_, Vec<i64>> = BTreeMap::new();
    for version in go {
        let place = stay.partition_point(|kept| *kept < version);
        let Some(above) = stay.get(place) else { continue };
        let below = place.checked_sub(1).and_then(|place| stay.get(place)).copied().unwrap_or(0);
        gaps.entry((below, *above)).or_default().push(version);
    }
    gaps
}
