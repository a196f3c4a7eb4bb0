//! Versioned trees: many documents that refer to each other change together, and no reader sees a part of the change.
//!
//! Nothing is changed in place. A change inserts new versions of the nodes that it touches, children first; the root
//! comes last, and its insert is the commit. A reader takes the number of the newest root, and of every other node the
//! highest version that is not above it.
//!
//! ```text
//!               root          a             b             c             a reader of the newest version
//! version 1     root 1        a 1           b 1           c 1           1: a 1, b 1, c 1
//! write 2                     a 2                                       1: a 1, b 1, c 1
//!                                                         c 2           1: a 1, b 1, c 1
//!               root 2                                                  2: a 2, b 1, c 2       all at once
//! ```
//!
//! # Numbers that are never committed
//!
//! Suppose a writer takes number 3, inserts `b 3`, and dies. Another one takes number 4 and commits it. The highest
//! version of `b` that is not above 4 is now `b 3`: a part of a change that was never committed has become visible by
//! the commit of another one. A sweep before the commit does not help, because the insert of `b 3` may arrive after
//! it. Using number 3 again does not help either, as then `b 3` belongs to a committed version. So:
//!
//! - A number is for one writer and for one attempt: it is allocated by the insert of a *write* (its `_id` is tree and
//!   number), and given back if, *after* that, any node has this number or a higher one. A write is removed only when
//!   the version has a root or a mark, so a later writer with the same number sees that.
//! - A version has either a root (`{itemId: root, version: n}`, unique) or, in its place, a mark that says
//!   *abandoned*. The one that is inserted first decides, once and for all.
//! - A writer that commits inserts the mark for every number between the version that the change is based on and its
//!   own, and then checks that its base is still the newest version. Then it inserts its own root.
//!
//! Hence **every number below a committed version is decided before it commits**, and never changes again. A reader of
//! version 4 asks for the marks below 4 (only if the root says that there are any) and leaves those numbers out: `b 3`
//! is invisible to every version, whenever it arrives. Suppose two writers work on top of one version. If the lower
//! number commits first, the higher one finds a newer root when it checks; if the higher one commits first, the lower
//! one finds the mark instead of its root. One of them commits, and the other gets a conflict and tries again on top.
//!
//! # Failures and their effects
//!
//! | at | what happens |
//! | --- | --- |
//! | a writer dies before the root | its nodes are in no version; [`VersionedTree::sweep`] finds its write when the lease has run out, inserts the mark, removes the nodes |
//! | a writer dies after the root | the version is committed; the sweep removes its write |
//! | the answer to the root is lost | the document in its place shows whether it was this root |
//! | a slow writer whose version was given up | it finds the mark in the place of its root |
//! | a sweep beside a writer | the write has a lease, so it is left alone |
//! | an insert of a node arrives late | its number is decided: the node is in its version, or in none; the sweep removes it |
//! | a reader falls behind while versions are pruned | after each read it checks that its version still exists: it returns [`Error::Gone`], never a mixture of versions |
//! | a process has other settings | it is refused: they are recorded beside the nodes ([`VersionedTreeOptions::recorded`]) |
//! | a pin, and a prune, at once | the pin is written before the root is read, the root is marked before the pins are read: one sees the other |
//!
//! Marks may be forgotten ([`VersionedTree::forget`]) when no request of their time can be under way any more. Leases
//! only keep a sweep from ending a version that is being written; nothing else depends on clocks.
//!
//! Source: seed 0 (solution 5). Writes, marks, pins and pruning are our additions.

mod altered;
mod commit;
mod diff;
mod forget;
mod options;
mod pins;
mod prune;
mod record;
mod requests;
mod settings;
mod snapshot;
mod state;
mod sweep;
#[cfg(test)]
mod tests;
mod verify;
mod write;

use std::sync::Arc;
use std::time::Duration;

use bson::{Bson, DateTime, Document, doc};
use handfast_store::{DocumentStore, IndexSpec, Namespace, Sources};

pub use commit::{Commit, Committed, PreparedCommit};
pub use diff::Difference;
pub use options::{TreeFields, VersionedTreeOptions};
pub use pins::Pin;
pub use prune::{Keep, PrunePlan};
pub use record::{Node, Version, WriteIntent};
pub use snapshot::Snapshot;
pub use state::{NoVersionState, VersionEvent, VersionState};
pub use sweep::{Orphan, OrphanOf};
pub use verify::{Finding, Verified};
pub use write::Write;

use self::requests::Requests;
use crate::metrics::{self, Event};
use crate::steps::{Added, Steps, is_duplicate_of, raw};
use crate::{Error, Result};

/// The counts of the versions of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeStatus {
    /// The newest version.
    pub newest: Option<i64>,
    /// Versions that can be read.
    pub versions: u64,
    /// Versions that are being written, or were left by their writers.
    pub writing: u64,
    /// Versions being written whose lease has run out.
    pub silent: u64,
    /// Marks of abandoned numbers.
    pub abandoned: u64,
    /// Pins and names of versions.
    pub pins: u64,
}

/// A tree of documents that changes as a whole. See the [module's documentation](self).
///
/// ```
/// use bson::doc;
/// use handfast_patterns::versioned_tree::{VersionedTree, VersionedTreeOptions};
/// use handfast_store::{MemoryStore, Namespace, Sources};
/// use std::sync::Arc;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> handfast_patterns::Result<()> {
/// let sources = Sources::seeded(1);
/// let store = Arc::new(MemoryStore::new(sources.clone()));
/// let options = VersionedTreeOptions::new("catalogue");
/// let tree = VersionedTree::open_with(store, Namespace::new("shop", "items")?, sources, options).await?;
///
/// let version = tree
///     .change(|mut write| async move {
///         write.put("lamp", doc! { "price": 30 }).await?;
///         Ok::<_, handfast_patterns::Error>(write.with_root(doc! { "children": ["lamp"] }))
///     })
///     .await?;
/// let before = tree.newest().await?.expect("committed above");
/// tree.change(|mut write| async move {
///     write.put("lamp", doc! { "price": 25 }).await?;
///     Ok::<_, handfast_patterns::Error>(write.with_same_root())
/// })
/// .await?;
///
/// assert_eq!(before.version(), version);
/// let lamp = before.node("lamp").await?.expect("as it was then");
/// assert_eq!(lamp.content, doc! { "price": 30 });
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct VersionedTree {
    nodes: Steps,
    writes: Steps,
    pins: Steps,
    sources: Sources,
    options: Arc<VersionedTreeOptions>,
}

impl VersionedTree {
    /// Opens a tree in this collection; records the settings if none are recorded, and creates the indexes.
    ///
    /// # Errors
    /// [`Error::OtherSettings`] if other settings are recorded ([`VersionedTreeOptions::recorded`],
    /// [`VersionedTree::change_settings`]). [`Error::Invalid`] for options that are out of range. [`Error::Store`] if
    /// the store fails or cannot have unique indexes.
    pub async fn open(store: Arc<dyn DocumentStore>, nodes: Namespace, options: VersionedTreeOptions) -> Result<Self> {
        VersionedTree::open_with(store, nodes, Sources::system()?, options).await
    }

    /// Opens it with other sources of time, randomness and ids, for tests that can be repeated.
    ///
    /// # Errors
    /// Returns the errors of [`VersionedTree::open`].
    pub async fn open_with(
        store: Arc<dyn DocumentStore>,
        nodes: Namespace,
        sources: Sources,
        options: VersionedTreeOptions,
    ) -> Result<Self> {
        let tree = VersionedTree::with_options(store, nodes, sources, options)?;
        tree.record_settings().await?;
        tree.create_indexes().await?;
        Ok(tree)
    }

    /// Opens a tree to read it. It records no settings and creates no indexes.
    ///
    /// # Errors
    /// [`Error::OtherSettings`] if other settings are recorded, [`Error::Invalid`] for options that are out of range.
    pub async fn attach(
        store: Arc<dyn DocumentStore>,
        nodes: Namespace,
        sources: Sources,
        options: VersionedTreeOptions,
    ) -> Result<Self> {
        let tree = VersionedTree::with_options(store, nodes, sources, options)?;
        tree.compare_settings().await?;
        Ok(tree)
    }

    fn with_options(
        store: Arc<dyn DocumentStore>,
        nodes: Namespace,
        sources: Sources,
        options: VersionedTreeOptions,
    ) -> Result<Self> {
        options.check()?;
        let (writes, pins) = (options.writes_namespace(&nodes)?, options.pins_namespace(&nodes)?);
        let nodes = Steps::new(store, nodes);
        let (writes, pins) = (nodes.at(writes), nodes.at(pins));
        Ok(VersionedTree { nodes, writes, pins, sources, options: Arc::new(options) })
    }

    /// Creates the indexes, as [`VersionedTree::open`] does. It is meant for tools that work on a tree without
    /// recording settings.
    ///
    /// # Errors
    /// [`Error::Store`] if the store fails or cannot have unique indexes.
    pub async fn create_indexes(&self) -> Result<()> {
        let TreeFields { item, version, tree: root, ts, .. } = self.fields();
        let new = |key: Document| raw(&key).map(IndexSpec::new);
        let one_of_each = IndexSpec { unique: true, ..new(doc! { item: 1, version: 1 })? };
        self.nodes.create_indexes([one_of_each, new(doc! { root: 1, version: 1 })?]).await?;
        self.writes.create_indexes([new(doc! { root: 1, ts: 1 })?]).await?;
        self.pins.create_indexes([new(doc! { root: 1 })?]).await
    }

    /// Returns the same tree on another store of the same documents: one with another durability, or an open
    /// transaction of the store, in which a tree can be read.
    #[must_use]
    pub fn on_store(&self, store: Arc<dyn DocumentStore>) -> Self {
        let on = |steps: &Steps| steps.on(Arc::clone(&store));
        VersionedTree { nodes: on(&self.nodes), writes: on(&self.writes), pins: on(&self.pins), ..self.clone() }
    }

    /// Returns another tree of the same collection.
    #[must_use]
    pub fn of(&self, root: impl Into<Bson>) -> Self {
        let options = VersionedTreeOptions { root: root.into(), ..(*self.options).clone() };
        VersionedTree { options: Arc::new(options), ..self.clone() }
    }

    /// Returns the item id of the root.
    pub fn root(&self) -> &Bson {
        &self.options.root
    }

    /// Returns whether the collection has anything of this tree: a version, or a write of its first one.
    pub async fn is_there(&self) -> Result<bool> {
        let of_tree = self.requests().of_tree();
        Ok(self.nodes.find_one(&of_tree).await?.is_some() || self.writes.find_one(&of_tree).await?.is_some())
    }

    /// Returns the item ids of the roots of the trees in the collection, at most `limit`. It reads all nodes.
    pub async fn roots(&self, limit: u32) -> Result<Vec<Bson>> {
        let by_tree = doc! { "$group": { "_id": format!("${}", self.fields().tree) } };
        let pipeline = [by_tree, doc! { "$sort": { "_id": 1 } }, doc! { "$limit": i64::from(limit) }];
        let found = self.nodes.aggregate(&pipeline).await?;
        Ok(found.into_iter().filter_map(|mut group| group.remove("_id")).filter(|root| *root != Bson::Null).collect())
    }

    /// Returns the newest version; `None` if there is none.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a document that is not a root.
    pub async fn newest(&self) -> Result<Option<Snapshot>> {
        match self.newest_version().await? {
            Some(version) => self.snapshot(version).await.map(Some),
            None => Ok(None),
        }
    }

    /// Returns the tree in a version; `None` if there is no such version, or it was pruned.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a document that is not a root.
    pub async fn at(&self, version: i64) -> Result<Option<Snapshot>> {
        match self.show(version).await? {
            Some(version) if version.state.is_readable() => self.snapshot(version).await.map(Some),
            _ => Ok(None),
        }
    }

    /// Returns a version from its root or its mark; `None` if it is being written, or does not exist.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a document that is not a root.
    pub async fn show(&self, version: i64) -> Result<Option<Version>> {
        let found = self.nodes.find_one(&self.requests().root_or_mark(version)).await?;
        found.map(|document| Version::read(&self.nodes, document, self.fields())).transpose()
    }

    /// Returns the versions that can be read, the newest first.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a document that is not a root.
    pub async fn versions(&self, limit: u32) -> Result<Vec<Version>> {
        self.in_state(&[VersionState::Committed, VersionState::Pruning], limit).await
    }

    /// Returns versions that are being written, or were left by their writers, the longest silent first.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a document that is not a write.
    pub async fn writing(&self, limit: u32) -> Result<Vec<WriteIntent>> {
        self.intents(&[self.requests().of_tree()], limit).await
    }

    /// Returns the counts of the tree.
    pub async fn status(&self) -> Result<TreeStatus> {
        let requests = self.requests();
        let count = async |state| self.nodes.count(&requests.in_state(state)).await;
        Ok(TreeStatus {
            newest: self.newest_version().await?.map(|newest| newest.version),
            versions: count(&[VersionState::Committed, VersionState::Pruning]).await?,
            writing: self.writes.count(&requests.of_tree()).await?,
            silent: self.writes.count_any(&requests.silent(self.now(), self.options.lease)).await?,
            abandoned: count(&[VersionState::Abandoned]).await?,
            pins: self.pins.count(&requests.of_tree()).await?,
        })
    }

    async fn newest_version(&self) -> Result<Option<Version>> {
        Ok(self.in_state(&[VersionState::Committed], 1).await?.pop())
    }

    /// Returns the versions in these states, the newest first.
    async fn in_state(&self, states: &[VersionState], limit: u32) -> Result<Vec<Version>> {
        let requests = self.requests();
        let found = self.nodes.find(&requests.in_state(states), &requests.newest_first(), limit).await?;
        found.into_iter().map(|document| Version::read(&self.nodes, document, self.fields())).collect()
    }

    /// Returns at most `limit` writes that match one of these filters, the oldest first.
    async fn intents(&self, filters: &[Document], limit: u32) -> Result<Vec<WriteIntent>> {
        let mut found = self.writes.each_of(filters.to_vec(), doc! { &self.fields().ts: 1 }, limit);
        let mut intents = Vec::new();
        while intents.len() < limit as usize
            && let Some(document) = found.next().await?
        {
            intents.push(WriteIntent::read(&self.writes, &document, self.fields())?);
        }
        Ok(intents)
    }

    /// Inserts the mark of a version, unless it has a root or a mark; returns the resulting state.
    async fn give_up(&self, version: i64) -> Result<VersionState> {
        let mark = self.requests().abandoned(self.sources.ids.object_id(), version, self.now());
        match self.nodes.insert(&mark).await {
            Ok(Added::New | Added::There) => Ok(VersionState::Abandoned),
            Err(Error::Store(error)) if is_duplicate_of(&error, &self.fields().item) => {
                Ok(self.show(version).await?.map_or(VersionState::Writing, |there| there.state))
            }
            Err(error) => Err(error),
        }
    }

    fn requests(&self) -> Requests<'_> {
        Requests { fields: &self.options.fields, root: &self.options.root }
    }

    /// Counts an event that happened to versions of a tree in this collection.
    fn count(&self, event: Event, times: u64) {
        metrics::count(event, self.nodes.namespace(), times);
    }

    fn fields(&self) -> &TreeFields {
        &self.options.fields
    }

    fn now(&self) -> DateTime {
        self.sources.clock.now()
    }

    fn ago(&self, age: Duration) -> DateTime {
        crate::value::before(self.now(), age)
    }
}
