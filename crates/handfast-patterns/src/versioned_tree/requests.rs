//! The filter and the update of each step, as values. The filter has the state that the step expects.

use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};

use super::record::{Version, WriteIntent};
use super::{TreeFields, VersionEvent, VersionState};
use crate::steps::Request;
use crate::value::{equal, lapsed};

/// The field names, and the tree of the requests.
#[derive(Clone, Copy)]
pub(super) struct Requests<'a> {
    pub(super) fields: &'a TreeFields,
    pub(super) root: &'a Bson,
}

impl Requests<'_> {
    /// Matches the roots and marks of versions in one of these states.
    pub(super) fn in_state(self, states: &[VersionState]) -> Document {
        let states: Vec<_> = states.iter().map(|state| state.name()).collect();
        let states = if let [state] = states[..] { Bson::from(state) } else { doc! { "$in": states }.into() };
        doc! { &self.fields.item: equal(self.root), &self.fields.state: states }
    }

    /// Matches the root or the mark of a version.
    pub(super) fn root_or_mark(self, version: i64) -> Document {
        doc! { &self.fields.item: equal(self.root), &self.fields.version: version }
    }

    /// Returns the order with the newest version first.
    pub(super) fn newest_first(self) -> Document {
        doc! { &self.fields.version: -1 }
    }

    /// Matches nodes of these versions, without roots and marks.
    pub(super) fn nodes(self, versions: impl Into<Bson>) -> Document {
        doc! {
            &self.fields.tree: equal(self.root),
            &self.fields.version: versions,
            &self.fields.item: { "$ne": self.root.clone() },
        }
    }

    /// Matches the nodes of an item that a version sees or has replaced.
    pub(super) fn item_at(self, item: impl Into<Bson>, version: i64, abandoned: &[i64]) -> Document {
        doc! {
            &self.fields.item: item,
            &self.fields.version: visible(doc! { "$lte": version }, abandoned),
            &self.fields.tree: equal(self.root),
        }
    }

    /// Matches the nodes of an item between a version and a newer node, without both.
    pub(super) fn older(self, item: Bson, below: i64, version: i64) -> Document {
        doc! {
            &self.fields.item: equal(&item),
            &self.fields.version: { "$gt": below, "$lt": version },
            &self.fields.tree: equal(self.root),
        }
    }

    /// Returns a node to insert.
    pub(super) fn node(self, id: ObjectId, item: Bson, version: i64) -> Document {
        doc! {
            "_id": id,
            &self.fields.item: item,
            &self.fields.version: version,
            &self.fields.tree: self.root.clone(),
        }
    }

    /// Returns the root of a version, which commits it.
    pub(super) fn root(self, id: ObjectId, version: &Version) -> Document {
        let mut root = self.node(id, self.root.clone(), version.version);
        root.extend(doc! {
            &self.fields.state: version.state.name(),
            &self.fields.base: version.base,
            &self.fields.ts: version.ts,
        });
        if version.gaps {
            root.insert(&self.fields.gaps, true);
        }
        root.extend(version.root.clone());
        root
    }

    /// Returns the mark of a version, which keeps its root from being inserted.
    pub(super) fn abandoned(self, id: ObjectId, version: i64, now: DateTime) -> Document {
        let mut mark = self.node(id, self.root.clone(), version);
        mark.extend(doc! { &self.fields.state: VersionState::Abandoned.name(), &self.fields.ts: now });
        mark
    }

    /// Announces a write, if no other writer has this number.
    pub(super) fn announce(self, version: i64, base: i64, write: ObjectId) -> Request {
        let set = doc! {
            &self.fields.tree: self.root.clone(),
            &self.fields.version: version,
            &self.fields.base: base,
        };
        let update = doc! { "$set": set, "$currentDate": { &self.fields.ts: true } };
        Request { filter: self.announced(version, write), update }
    }

    /// Matches a write while its writer has it.
    pub(super) fn announced(self, version: i64, write: ObjectId) -> Document {
        doc! { "_id": { "tree": self.root.clone(), "version": version }, &self.fields.write: write }
    }

    /// Returns the update that renews a lease.
    pub(super) fn renew(self) -> Document {
        doc! { "$currentDate": { &self.fields.ts: true } }
    }

    /// Matches the writes or the pins of the tree.
    pub(super) fn of_tree(self) -> Document {
        doc! { &self.fields.tree: equal(self.root) }
    }

    /// Matches writes or pins whose lease has run out, or whose date is further ahead than that.
    pub(super) fn silent(self, now: DateTime, lease: Duration) -> [Document; 2] {
        lapsed(now, lease).map(|date| doc! { &self.fields.tree: equal(self.root), &self.fields.ts: date })
    }

    /// Matches a write as it was seen, if its writer has not renewed its lease since.
    pub(super) fn still_silent(self, seen: &WriteIntent) -> Document {
        let mut filter = self.announced(seen.version, seen.write);
        filter.insert(&self.fields.ts, seen.ts);
        filter
    }

    /// Moves a version from committed to pruning.
    pub(super) fn mark(self, version: i64, mark: ObjectId) -> Option<Request> {
        let Request { mut filter, mut update } = self.step(version, VersionState::Committed, VersionEvent::Marked)?;
        // A copy of the same request that arrives late does not mark a version that was spared.
        filter.insert(&self.fields.mark, doc! { "$ne": mark });
        if let Ok(set) = update.get_document_mut("$set") {
            set.insert(&self.fields.mark, mark);
        }
        Some(Request { filter, update })
    }

    /// Moves a version from pruning back to committed, if this prune has marked it.
    pub(super) fn spare(self, version: i64, mark: ObjectId) -> Option<Request> {
        let Request { mut filter, update } = self.step(version, VersionState::Pruning, VersionEvent::Spared)?;
        filter.insert(&self.fields.mark, mark);
        Some(Request { filter, update })
    }

    /// Moves a version from pruning to pruned, if this prune has marked it.
    pub(super) fn condemn(self, version: i64, mark: ObjectId) -> Option<Request> {
        let Request { mut filter, update } = self.step(version, VersionState::Pruning, VersionEvent::Condemned)?;
        filter.insert(&self.fields.mark, mark);
        Some(Request { filter, update })
    }

    fn step(self, version: i64, state: VersionState, event: VersionEvent) -> Option<Request> {
        let next = state.after(event)?;
        let mut filter = self.root_or_mark(version);
        filter.insert(&self.fields.state, state.name());
        Some(Request { filter, update: doc! { "$set": { &self.fields.state: next.name() } } })
    }

    /// Moves a version from pruned to cleared: removes the content of the root, and keeps the rest as a mark.
    pub(super) fn clear(self, version: i64, now: DateTime) -> Option<Request> {
        let next = VersionState::Pruned.after(VersionEvent::NodesRemoved)?;
        let mut filter = self.root_or_mark(version);
        filter.insert(&self.fields.state, VersionState::Pruned.name());
        let stub = doc! {
            &self.fields.item: self.root.clone(),
            &self.fields.version: version,
            &self.fields.tree: self.root.clone(),
            &self.fields.state: next.name(),
            &self.fields.ts: now,
        };
        Some(Request { filter, update: stub })
    }
}

/// Returns the condition on versions without the abandoned ones.
pub(super) fn visible(mut versions: Document, abandoned: &[i64]) -> Document {
    if !abandoned.is_empty() {
        versions.insert("$nin", abandoned.to_vec());
    }
    versions
}
