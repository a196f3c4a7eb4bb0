//! Settings: the root, leases, field names.

use std::time::Duration;

use bson::Bson;
use handfast_store::Namespace;

use crate::fields::field_names;
use crate::value::is_condition;
use crate::{Error, FieldNames, Result};

/// Settings of [`VersionedTree`](super::VersionedTree). `writes`, `pins`, `children` and `fields` are recorded in the
/// store when a tree of the collection is opened for the first time, and must be the same in all processes that open
/// one of its trees.
#[derive(Clone, Debug)]
pub struct VersionedTreeOptions {
    /// The item id of the root, which is also the name of the tree. Trees in one collection have no items in common.
    pub root: Bson,
    /// The time after which the version of a silent writer is given up.
    pub lease: Duration,
    /// The time for which a reader's pin holds without being renewed.
    pub pin_lease: Duration,
    /// The attempts of [`VersionedTree::change`](super::VersionedTree::change), at least 1.
    pub attempts_max: u32,
    /// The wait before the second attempt, which is made shorter or longer by up to a half and doubles before each
    /// further one.
    pub wait: Duration,
    /// The time for which abandoned and pruned versions and deleted nodes are remembered. It must be longer than any
    /// request can be under way: a node that a request inserts later may count as part of the tree.
    pub forget_after: Duration,
    /// The collection of the writes; by default that of the nodes with the suffix `.writes`.
    pub writes: Option<Namespace>,
    /// The collection of pins and names; by default that of the nodes with the suffix `.pins`.
    pub pins: Option<Namespace>,
    /// The field in which nodes have the item ids of their children (one, or an array; a path with dots), for
    /// [`VersionedTree::verify`](super::VersionedTree::verify); `None` if nodes have no such references.
    pub children: Option<String>,
    /// The names of the fields.
    pub fields: TreeFields,
}

impl VersionedTreeOptions {
    /// Creates the settings of a tree with this item id of its root.
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

    /// Returns the collection of the writes.
    pub(super) fn writes_namespace(&self, nodes: &Namespace) -> Result<Namespace> {
        self.writes.clone().map_or_else(|| companion(nodes, "writes"), Ok)
    }

    /// Returns the collection of pins and names.
    pub(super) fn pins_namespace(&self, nodes: &Namespace) -> Result<Namespace> {
        self.pins.clone().map_or_else(|| companion(nodes, "pins"), Ok)
    }

    /// Checks that the settings are within their ranges.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a lease of 0, for no attempt, for names of fields that are equal, and for a root that is
    /// null, an array or a regular expression.
    pub fn check(&self) -> Result<()> {
        if self.lease.is_zero() || self.pin_lease.is_zero() || self.attempts_max == 0 {
            return Err(Error::invalid("a versioned tree needs a lease, a lease of pins, and at least one attempt"));
        }
        self.fields.check()?;
        if !can_be_item(&self.root) {
            return Err(Error::invalid(format!("{} cannot be the item id of a root", self.root)));
        }
        Ok(())
    }
}

/// Returns whether a value can be the id of an item. An index has an entry for each element of an array, so that two
/// arrays with an equal element would collide.
pub(super) fn can_be_item(id: &Bson) -> bool {
    !matches!(id, Bson::Null | Bson::Undefined | Bson::Array(_)) && !is_condition(id)
}

fn companion(nodes: &Namespace, suffix: &str) -> Result<Namespace> {
    Ok(Namespace::new(nodes.database(), format!("{}.{suffix}", nodes.collection()))?)
}

field_names! {
    /// The names of the fields.
    pub struct TreeFields {
        /// The id of the item of a node.
        item: "itemId" in "a node" | "a root",
        /// The version of a node.
        version: "version" in "a node" | "a root" | "a write" | "a pin",
        /// The item id of the root of a node's tree.
        tree: "tree" in "a node" | "a root" | "a write" | "a pin",
        /// Whether a node marks its item as deleted from its version on.
        deleted: "deleted" in "a node" | "a root",
        /// The state of the version of a root.
        state: "versionState" in "a root",
        /// The version that a version is based on.
        base: "versionBase" in "a root" | "a write",
        /// Whether numbers below the version of a root were abandoned.
        gaps: "versionGaps" in "a root",
        /// The time when a root was written, by the writer's clock, or of the last renewal of a write or a pin, by the
        /// store's clock.
        ts: "versionTs" in "a root" | "a write" | "a pin",
        /// The id of the prune that has marked a root.
        mark: "versionMark" in "a root",
        /// The id by which a writer recognises its write.
        write: "write" in "a write",
        /// The name of the version of a pin.
        name: "name" in "a pin",
    }
}

impl TreeFields {
    /// Returns the fields that the content of a node must not have.
    pub(super) fn of_nodes(&self) -> [&str; 5] {
        ["_id", &self.item, &self.version, &self.tree, &self.deleted]
    }

    /// Returns the fields that the content of a root must not have.
    pub(super) fn of_roots(&self) -> [&str; 10] {
        let [id, item, version, tree, deleted] = self.of_nodes();
        [id, item, version, tree, deleted, &self.state, &self.base, &self.gaps, &self.ts, &self.mark]
    }
}
