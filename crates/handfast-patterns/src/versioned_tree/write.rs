//! The writing of a version: its nodes, and then its root.

use std::collections::HashSet;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use handfast_store::{Applied, Error as StoreError};

use super::options::can_be_item;
use super::{Commit, PreparedCommit, Snapshot, VersionedTree};
use crate::steps::{Request, is_duplicate_of};
use crate::value::{at_path, integer, key_of};
use crate::{Error, Result};

/// Attempts at a number when other writers have just taken it.
const NUMBERS_MAX: u32 = 64;
/// Limit on the items of one version, as the writer keeps the key of each in memory.
const ITEMS_MAX: usize = 1_000_000;

/// A version that is being written: any number of nodes, children first; then [`Write::commit`]. A write that is
/// dropped before that is left to the sweep.
pub struct Write {
    pub(super) tree: VersionedTree,
    pub(super) base: Option<Snapshot>,
    pub(super) version: i64,
    /// The id by which its writer recognises its document.
    pub(super) write: ObjectId,
    pub(super) phase: Phase,
    items: HashSet<Vec<u8>>,
    /// The elapsed time of this process's clock when it was begun.
    pub(super) begun: Duration,
    /// The elapsed time of this process's clock when the lease was last renewed.
    renewed: Duration,
}

/// A node to insert.
struct NewNode {
    item: Bson,
    content: Document,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Open,
    /// It is unknown whether a node was inserted.
    Broken,
    Over,
}

impl VersionedTree {
    /// Begins a version on top of the newest one.
    ///
    /// # Errors
    /// [`Error::Contended`] if other writers take the number at each attempt.
    ///
    /// # Cancellation
    /// A number may have been taken, which the sweep gives up.
    pub async fn begin(&self) -> Result<Write> {
        let base = self.newest().await?;
        let below = base.as_ref().map_or(0, Snapshot::version);
        let (mut version, id) = (below.saturating_add(1), self.sources.ids.object_id());
        for _ in 0..NUMBERS_MAX {
            match self.announce(version, below, id).await.map_err(unseen)? {
                None => return Ok(Write::new(self.clone(), base, version, id)),
                Some(highest) => version = highest.saturating_add(1),
            }
        }
        Err(Error::Contended { what: "others took the number".to_owned(), attempts: NUMBERS_MAX })
    }

    /// Allocates a number; returns the number up to which all are taken if it is not free.
    async fn announce(&self, version: i64, below: i64, write: ObjectId) -> Result<Option<i64>> {
        let requests = self.requests();
        let Request { filter, update } = requests.announce(version, below, write);
        match self.writes.upsert_one(&filter, &update).await {
            Ok(_) => {}
            Err(Error::Store(error)) if is_duplicate_of(&error, "_id") => return Ok(Some(version)),
            Err(error) => return Err(error),
        }
        // A writer that had this number before has left something under it before it removed its write; so has a
        // program that bypasses the pattern.
        let mut above = requests.of_tree();
        above.insert(&self.fields().version, doc! { "$gte": version });
        let highest = self.nodes.find(&above, &requests.newest_first(), 1).await?;
        let Some(highest) = highest.first() else { return Ok(None) };
        self.writes.delete_one(&requests.announced(version, write)).await?;
        integer(highest, &self.fields().version).map(Some)
    }
}

impl Write {
    fn new(tree: VersionedTree, base: Option<Snapshot>, version: i64, write: ObjectId) -> Self {
        let begun = tree.sources.clock.elapsed();
        Write { tree, base, version, write, items: HashSet::new(), begun, renewed: begun, phase: Phase::Open }
    }

    /// Returns the number of the version.
    pub fn version(&self) -> i64 {
        self.version
    }

    /// Returns the version that it is based on; `None` if it is the first one.
    pub fn base(&self) -> Option<&Snapshot> {
        self.base.as_ref()
    }

    /// Returns the number of the version that it is based on; 0 if it is the first one.
    pub(super) fn below(&self) -> i64 {
        self.base.as_ref().map_or(0, Snapshot::version)
    }

    /// Puts a node, which may be new or another version of an existing one.
    ///
    /// # Errors
    /// [`Error::Store`] if the store fails: the version cannot be committed any more. [`Error::Invalid`] for an item
    /// that was put before, and for content with fields of the pattern. [`Error::Contended`] if the version was given
    /// up: begin again.
    pub async fn put(&mut self, item: impl Into<Bson>, content: Document) -> Result<()> {
        self.insert(vec![NewNode { item: item.into(), content }], false).await
    }

    /// Puts several nodes, with few requests.
    ///
    /// # Errors
    /// [`Error::Store`] if the store fails: the version cannot be committed any more. [`Error::Invalid`] for an item
    /// that was put before, and for content with fields of the pattern. [`Error::Contended`] if the version was given
    /// up: begin again.
    pub async fn put_all(&mut self, nodes: impl IntoIterator<Item = (impl Into<Bson>, Document)>) -> Result<()> {
        self.insert(nodes.into_iter().map(|(item, content)| NewNode { item: item.into(), content }).collect(), false)
            .await
    }

    /// Removes an item from this version on.
    ///
    /// # Errors
    /// [`Error::Store`] if the store fails: the version cannot be committed any more. [`Error::Invalid`] for an item
    /// that was put before. [`Error::Contended`] if the version was given up: begin again.
    pub async fn remove(&mut self, item: impl Into<Bson>) -> Result<()> {
        self.insert(vec![NewNode { item: item.into(), content: Document::new() }], true).await
    }

    /// Sets the root, which should name its children, as readers start there.
    pub fn with_root(self, root: Document) -> PreparedCommit {
        PreparedCommit::new(self, root)
    }

    /// Keeps the root of the version that it is based on.
    pub fn with_same_root(self) -> PreparedCommit {
        let root = self.base.as_ref().map(|base| base.root().clone()).unwrap_or_default();
        PreparedCommit::new(self, root)
    }

    /// Commits the version by inserting its root. Before that readers see nothing of it, and afterwards all of it.
    ///
    /// # Errors
    /// [`Error::Store`] if the store fails: if [`Error::applied`] is `Maybe`, [`VersionedTree::show`] returns the
    /// state of the version.
    ///
    /// # Cancellation
    /// The version may have been committed; [`VersionedTree::show`] returns its state.
    pub async fn commit(self, root: Document) -> Result<Commit> {
        self.with_root(root).commit().await
    }

    /// Gives up the version.
    ///
    /// # Errors
    /// [`Error::Store`] if the store fails: the sweep will give up the version.
    pub async fn abandon(mut self) -> Result<()> {
        self.phase = Phase::Over;
        self.tree.remove(self.version, self.write).await.map(|_| ())
    }

    /// Renews the lease, as putting nodes does. Returns `false` if the version was given up.
    pub async fn renew(&mut self) -> Result<bool> {
        let now = self.tree.sources.clock.elapsed();
        let requests = self.tree.requests();
        let held =
            self.tree.writes.update_one(&requests.announced(self.version, self.write), &requests.renew()).await?;
        self.renewed = now;
        Ok(held)
    }

    async fn insert(&mut self, nodes: Vec<NewNode>, deleted: bool) -> Result<()> {
        if self.phase != Phase::Open {
            return Err(Error::invalid("a node of this version may be missing: begin again"));
        }
        let documents = self.documents(nodes, deleted)?;
        if self.tree.sources.clock.elapsed().saturating_sub(self.renewed) * 3 >= self.tree.options.lease
            && !self.renew().await?
        {
            return Err(self.given_up());
        }
        self.phase = Phase::Broken;
        let taken = self.tree.nodes.insert_all(&documents).await.map_err(unseen)?;
        self.check_taken(taken.into_iter().filter_map(|place| documents.get(place)).collect()).await?;
        self.phase = Phase::Open;
        Ok(())
    }

    fn documents(&mut self, nodes: Vec<NewNode>, deleted: bool) -> Result<Vec<Document>> {
        let (requests, root) = (self.tree.requests(), key_of(self.tree.root())?);
        let mut documents = Vec::with_capacity(nodes.len());
        for NewNode { item, content } in nodes {
            if !can_be_item(&item) {
                return Err(Error::invalid(format!(
                    "{item} cannot be the id of an item: name it by a string, a number or an ObjectId"
                )));
            }
            let key = key_of(&item)?;
            if key == root {
                return Err(Error::invalid("the root is written by the commit"));
            }
            check_content(&content, &requests.fields.of_nodes())?;
            if self.items.len() >= ITEMS_MAX || !self.items.insert(key) {
                return Err(Error::invalid(format!("{item} was put before, or {ITEMS_MAX} items were")));
            }
            let mut document = requests.node(self.tree.sources.ids.object_id(), item, self.version);
            if deleted {
                document.insert(&requests.fields.deleted, true);
            }
            document.extend(content);
            documents.push(document);
        }
        Ok(documents)
    }

    /// Checks documents that exist already: an attempt whose answer was lost has inserted them, or a program that
    /// bypasses the pattern.
    async fn check_taken(&self, documents: Vec<&Document>) -> Result<()> {
        for document in documents {
            let fields = self.tree.fields();
            let item = document.get(&fields.item).cloned().unwrap_or(Bson::Null);
            let place = doc! { &fields.item: item.clone(), &fields.version: self.version };
            let there = self.tree.nodes.find_one(&place).await?;
            if there.as_ref().is_none_or(|there| there.get("_id") == document.get("_id")) {
                continue;
            }
            let tree = there.as_ref().and_then(|there| at_path(there, &fields.tree));
            if tree.is_some_and(|tree| tree != self.tree.root()) {
                return Err(Error::invalid(format!("item {item} is in another tree: trees have no items in common")));
            }
            return Err(self.given_up());
        }
        Ok(())
    }

    fn given_up(&self) -> Error {
        Error::Contended { what: format!("version {} was given up: begin again", self.version), attempts: 1 }
    }
}

impl Drop for Write {
    fn drop(&mut self) {
        if self.phase != Phase::Over {
            tracing::warn!(
                version = self.version,
                "a version was dropped before it was committed, the sweep will give it up"
            );
        }
    }
}

/// Converts an error of a failed write into one that changed nothing: its nodes have a number that no reader sees.
pub(super) fn unseen(error: Error) -> Error {
    match error {
        Error::Store(error) if error.applied() == Applied::Maybe => {
            StoreError::new(error.class(), Applied::No, error.code(), error.message()).into()
        }
        other => other,
    }
}

pub(super) fn check_content(content: &Document, reserved: &[&str]) -> Result<()> {
    match content.keys().find(|field| reserved.contains(&field.as_str())) {
        Some(field) => Err(Error::invalid(format!("the field {field} is kept by the pattern"))),
        None => Ok(()),
    }
}
