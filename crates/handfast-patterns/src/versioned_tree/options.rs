//! Settings: the root, leases, names of fields.

use std::time::Duration;

use bson::Bson;
use handfast_store::Namespace;

use crate::fields::field_names;
use crate::{Error, FieldNames, Result};

/// Settings of [`VersionedTree`](super::VersionedTree). `writes`, `pins`, `children` and `fields` are recorded in the store when a tree of
/// the collection is opened for the first time, and have to be the same for all who open one of its trees.
#[derive(Clone, Debug)]
pub struct VersionedTreeOptions {
    /// The item id of the root: the name of the tree. Trees in one collection have no items in common.
    pub root: Bson,
    /// How long a writer may be silent before its version is given up.
    pub lease: Duration,
    /// How long a reader's pin holds without being renewed.
    pub pin_lease: Duration,
    /// How often [`VersionedTree::change`](super::VersionedTree::change) tries, at least 1.
    pub attempts_max: u32,
    /// How long it waits before the second attempt, give or take a half; twice as long before each further one.
    pub wait: Duration,
    /// How long it is remembered that a version was abandoned, pruned, or that a node was deleted: longer than any request can
    /// be under way. What a request brings that arrives later may be taken for part of the tree.
    pub forget_after: Duration,
    /// The collection in which writers announce themselves: by default that of the nodes with `.writes`.
    pub writes: Option<Namespace>,
    /// The collection of pins and names: by default that of the nodes with `.pins`.
    pub pins: Option<Namespace>,
    /// The field in which nodes hold the item ids of their children (one, or an array; a path with dots), for
    /// [`VersionedTree::verify`](super::VersionedTree::verify); none if nodes do not refer to each other so.
    pub children: Option<String>,
    /// Names of fields.
    pub fields: TreeFields,
}

impl VersionedTreeOptions {
    /// A tree by the item id of its root.
    pub fn new(root: impl Into<Bson>) -> Self {
        VersionedTreeOptions {
            root: root.into(),
            lease: Duration::from_secs(60),
            pin_lease: Duration::from_secs(10 * 60),
            attempts_max: 16,
            wait: Duration::from_millis(10),
            forget_after: Duration::from_secs(24 * 3600),
            writes: None,
            pins: None,
            children: None,
            fields: TreeFields::default(),
        }
    }

    /// Returns the collection in which writers announce themselves.
    pub(super) fn writes_namespace(&self, nodes: &Namespace) -> Result<Namespace> {
        self.writes.clone().map_or_else(|| companion(nodes, "writes"), Ok)
    }

    /// Returns the collection of pins and names.
    pub(super) fn pins_namespace(&self, nodes: &Namespace) -> Result<Namespace> {
        self.pins.clone().map_or_else(|| companion(nodes, "pins"), Ok)
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.lease.is_zero() || self.pin_lease.is_zero() || self.attempts_max == 0 {
            return Err(Error::invalid("a versioned tree needs a lease, a lease of pins, and at least one attempt"));
        }
        self.fields.check()?;
        match self.root {
            Bson::Null | Bson::Undefined | Bson::Array(_) | Bson::RegularExpression(_) => {
                Err(Error::invalid(format!("{} cannot be the item id of a root", self.root)))
            }
            _ => Ok(()),
        }
    }
}

fn companion(nodes: &Namespace, suffix: &str) -> Result<Namespace> {
    Ok(Namespace::new(nodes.database(), format!("{}.{suffix}", nodes.collection()))?)
}

field_names! {
    /// Names of fields.
    pub struct TreeFields {
        /// In a node: which item it is a version of.
        item: "itemId" in "a node" | "a root",
        /// In a node: which version.
        version: "version" in "a node" | "a root" | "a write" | "a pin",
        /// In a node: the item id of its root.
        tree: "tree" in "a node" | "a root" | "a write" | "a pin",
        /// In a node: from this version on there is no such item.
        deleted: "deleted" in "a node" | "a root",
        /// In a root: the state of its version.
        state: "versionState" in "a root",
        /// In a root: the version that it was made from.
        base: "versionBase" in "a root" | "a write",
        /// In a root: there are numbers below it that were abandoned.
        gaps: "versionGaps" in "a root",
        /// In a root: when it was written, by the writer's clock. Of writes and pins: the last sign of life, by the store's.
        ts: "versionTs" in "a root" | "a write" | "a pin",
        /// In a root: which attempt to prune it has marked it.
        mark: "versionMark" in "a root",
        /// In a write: a fresh id, by which its writer knows it.
        write: "write" in "a write",
        /// In a pin: the name of the version.
        name: "name" in "a pin",
    }
}

impl TreeFields {
    /// Fields of nodes that their contents must not have.
    pub(super) fn of_nodes(&self) -> [&str; 5] {
        ["_id", &self.item, &self.version, &self.tree, &self.deleted]
    }

    /// Checks the names of roots.
    pub(super) fn of_roots(&self) -> [&str; 10] {
        let [id, item, version, tree, deleted] = self.of_nodes();
        [id, item, version, tree, deleted, &self.state, &self.base, &self.gaps, &self.ts, &self.mark]
    }
}
