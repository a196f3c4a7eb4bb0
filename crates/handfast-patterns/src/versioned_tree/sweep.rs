//! The sweep, which removes what writers left: versions whose lease has run out, and nodes that are in no version.

use std::collections::BTreeSet;

use bson::{Bson, doc};
use tracing::Instrument;

use super::record::{Stored, WriteIntent};
use super::{VersionState, VersionedTree};
use crate::metrics::Event;
use crate::value::integer;
use crate::{CancellationToken, Result, Round, Runner, RunnerOptions};

/// The states of versions that were committed.
const MADE: [VersionState; 4] =
    [VersionState::Committed, VersionState::Pruning, VersionState::Pruned, VersionState::Cleared];

/// A node that is in no version and never will be.
#[derive(Clone, Debug, PartialEq)]
pub struct Orphan {
    /// Its item id.
    pub item: Bson,
    /// The number that it was written under.
    pub version: i64,
    /// The reason why it is in no version.
    pub of: OrphanOf,
}

/// The reason why a node is in no version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrphanOf {
    /// Its writer has been silent for longer than the lease.
    SilentWrite,
    /// Its version was given up, and the node arrived late or was not removed yet.
    AbandonedVersion,
    /// Its number is above the newest version, and there is no write with it.
    NoWriter,
}

impl VersionedTree {
    /// Gives up versions (at most `batch`) whose writers have been silent for the lease, or have left a date that is
    /// further ahead than that, and removes nodes that are in no version. It keeps nodes whose number another version
    /// is based on, even if that number has no root any more. It does not touch a version that is being written,
    /// however long that takes, as long as its writer renews the lease. It may run in any process at any time.
    ///
    /// # Errors
    /// [`Error::Store`](crate::Error::Store) if the search fails. A failure at a single version is logged and counted.
    pub async fn sweep(&self, batch: u32) -> Result<Round> {
        let mut round = Round::default();
        round.more = self.sweep_silent(batch, &mut round).await?;
        round.done += self.sweep_abandoned().await?;
        for version in self.unannounced(batch).await? {
            let span = tracing::info_span!("versioned_tree.sweep", tree = %self.root(), version);
            let swept = self.sweep_unannounced(version).instrument(span.clone()).await;
            span.in_scope(|| count(&mut round, swept));
        }
        self.unpin_silent().await?;
        Ok(round)
    }

    /// Gives up at most `batch` versions whose writers are silent, the oldest first, and passes over those that fail;
    /// returns whether there may be more.
    async fn sweep_silent(&self, batch: u32, round: &mut Round) -> Result<bool> {
        let silent = self.requests().silent(self.now(), self.options.lease);
        let mut silent = self.writes.each_of(silent, doc! { &self.fields().ts: 1 }, batch);
        while round.done < u64::from(batch)
            && let Some(document) = silent.next().await?
        {
            match WriteIntent::read(&self.writes, &document, self.fields()) {
                Ok(seen) => {
                    let span = tracing::info_span!("versioned_tree.sweep", tree = %self.root(), version = seen.version);
                    let swept = self.sweep_write(&seen).instrument(span.clone()).await;
                    span.in_scope(|| count(round, swept));
                }
                Err(error) => count(round, Err(error)),
            }
        }
        Ok(round.done >= u64::from(batch))
    }

    /// Returns at most `limit` nodes that a sweep would remove, and changes nothing.
    pub async fn orphans(&self, limit: u32) -> Result<Vec<Orphan>> {
        let requests = self.requests();
        let silent = self.intents(&requests.silent(self.now(), self.options.lease), limit).await?;
        let mut undecided = Vec::new();
        for WriteIntent { version, .. } in silent {
            if self.nodes.find_one(&requests.root_or_mark(version)).await?.is_none() {
                undecided.push(version);
            }
        }
        let kinds = [
            (OrphanOf::SilentWrite, self.unused(undecided).await?),
            (OrphanOf::AbandonedVersion, self.unused(self.abandoned_below(i64::MAX).await?).await?),
            (OrphanOf::NoWriter, self.unannounced(limit).await?),
        ];
        let mut orphans = Vec::new();
        for (of, versions) in kinds {
            let left = limit.saturating_sub(u32::try_from(orphans.len()).unwrap_or(u32::MAX));
            if versions.is_empty() || left == 0 {
                continue;
            }
            let nodes = requests.nodes(doc! { "$in": versions });
            for document in self.nodes.find(&nodes, &doc! { &self.fields().version: 1 }, left).await? {
                let node = Stored::read(&self.nodes, document, self.fields())?.node;
                orphans.push(Orphan { item: node.item, version: node.version, of });
            }
        }
        Ok(orphans)
    }

    /// Gives up a write, if the filter shows that its writer is still silent; returns the number of versions that were
    /// given up.
    async fn sweep_write(&self, seen: &WriteIntent) -> Result<u64> {
        if self.writes.find_one(&self.requests().still_silent(seen)).await?.is_none() {
            return Ok(0);
        }
        let mut made = self.requests().in_state(&MADE);
        made.insert(&self.fields().version, seen.version);
        if self.nodes.find_one(&made).await?.is_none() && self.unused(vec![seen.version]).await?.is_empty() {
            return Ok(0);
        }
        let (state, nodes) = self.remove(seen.version, seen.write).await?;
        self.count(Event::VersionSwept, 1);
        self.count(Event::OrphanRemoved, nodes);
        tracing::info!(%state, nodes, "a version that was left behind is removed");
        Ok(1)
    }

    /// Removes nodes of versions that were given up before, which arrived late.
    async fn sweep_abandoned(&self) -> Result<u64> {
        let abandoned = self.unused(self.abandoned_below(i64::MAX).await?).await?;
        if abandoned.is_empty() {
            return Ok(0);
        }
        let orphans = self.nodes.delete_many(&self.requests().nodes(doc! { "$in": abandoned })).await?;
        self.count(Event::OrphanRemoved, orphans);
        Ok(orphans)
    }

    /// Returns numbers above the newest version that have nodes and no write.
    async fn unannounced(&self, limit: u32) -> Result<Vec<i64>> {
        let newest = self.newest_version().await?.map_or(0, |newest| newest.version);
        let (requests, fields) = (self.requests(), self.fields());
        // This reads nodes, then writes, then roots: a writer makes and removes them in the opposite order.
        let above =
            self.nodes.find(&requests.nodes(doc! { "$gt": newest }), &doc! { &fields.version: 1 }, limit).await?;
        // A version that is not a number is kept, and a verification reports it.
        let mut versions: Vec<_> = above.iter().filter_map(|node| integer(node, &fields.version).ok()).collect();
        versions.dedup();
        let versions = self.unused(versions).await?;
        let mut unannounced = Vec::new();
        for version in versions {
            let mut announced = requests.of_tree();
            announced.insert(&fields.version, version);
            if self.writes.find_one(&announced).await?.is_none()
                && self.nodes.find_one(&requests.root_or_mark(version)).await?.is_none()
            {
                unannounced.push(version);
            }
        }
        Ok(unannounced)
    }

    /// Returns those of these numbers, which were given up or never announced, that no version is based on. A version
    /// or a write that names a number as its base was made when that had a root, and a version without abandoned
    /// numbers below it shows the nodes of all: another program has changed or removed the root since. The nodes are
    /// kept, because the version could not be repaired without them.
    pub(super) async fn unused(&self, mut numbers: Vec<i64>) -> Result<Vec<i64>> {
        if numbers.is_empty() {
            return Ok(numbers);
        }
        let (requests, fields) = (self.requests(), self.fields());
        let mut used = BTreeSet::new();
        for (documents, of) in [(&self.nodes, requests.in_state(&MADE)), (&self.writes, requests.of_tree())] {
            let mut on_top = of;
            on_top.insert(&fields.base, doc! { "$in": &numbers });
            let bases = [doc! { "$match": on_top }, doc! { "$group": { "_id": format!("${}", fields.base) } }];
            let found = documents.aggregate(&bases).await?;
            used.extend(found.iter().filter_map(|base| integer(base, "_id").ok()));
        }
        let mut without_gaps = requests.in_state(&[VersionState::Committed, VersionState::Pruning]);
        without_gaps.insert(&fields.gaps, doc! { "$ne": true });
        let highest = self.nodes.find(&without_gaps, &requests.newest_first(), 1).await?;
        let highest = highest.first().and_then(|root| integer(root, &fields.version).ok()).unwrap_or(0);
        numbers.retain(|number| {
            let is_unused = !used.contains(number) && *number > highest;
            if !is_unused {
                tracing::warn!(tree = %self.root(), version = number, "nodes of a version are left whose root was changed or removed");
            }
            is_unused
        });
        Ok(numbers)
    }

    async fn sweep_unannounced(&self, version: i64) -> Result<u64> {
        if self.give_up(version).await? != VersionState::Abandoned {
            return Ok(0);
        }
        let orphans = self.nodes.delete_many(&self.requests().nodes(version)).await?;
        self.count(Event::OrphanRemoved, orphans);
        Ok(orphans)
    }

    /// Runs [`VersionedTree::sweep`] in the background. The interval should be no longer than the lease.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for options that are out of range.
    pub fn spawn_sweep(&self, options: RunnerOptions, cancel: &CancellationToken) -> Result<Runner> {
        let tree = self.clone();
        Runner::spawn("versioned_tree.sweep", &self.sources, options, cancel, move |batch| {
            let tree = tree.clone();
            async move { tree.sweep(batch).await }
        })
    }
}

fn count(round: &mut Round, swept: Result<u64>) {
    match swept {
        Ok(swept) => round.done += swept,
        Err(error) => {
            tracing::warn!(%error, "a version that was left behind could not be removed, it is tried again later");
            round.failed += 1;
        }
    }
}
