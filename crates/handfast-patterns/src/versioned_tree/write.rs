//! Writing a version: its nodes, and then its root.

use std::collections::HashSet;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use handfast_store::{Applied, Error as StoreError};

use super::{Commit, PreparedCommit, Snapshot, VersionedTree};
use crate::steps::is_duplicate_of;
use crate::value::{at_path, integer, key_of};
use crate::{Error, Result};

/// Numbers that a writer tries, each of which another one has just taken.
const NUMBERS_MAX: u32 = 64;
/// Items of one version at most: the writer remembers the key of each.
const ITEMS_MAX: usize = 1_000_000;

/// A version that is being written: nodes in any number, children first; then [`Write::commit`]. One that is dropped before is
/// left to the sweep.
pub struct Write {
    pub(super) tree: VersionedTree,
    pub(super) base: Option<Snapshot>,
    pub(super) version: i64,
    /// By which its document knows it.
    pub(super) write: ObjectId,
    pub(super) phase: Phase,
    items: HashSet<Vec<u8>>,
    /// When it was begun, by our clock's elapsed time.
    pub(super) begun: Duration,
    /// When the lease was renewed, by our clock's elapsed time.
    renewed: Duration,
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
    /// [`Error::Contended`] if others take the number at each attempt.
    ///
    /// # Cancellation
    /// A number may have been taken; the sweep gives it up.
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

    /// Takes a number; if it cannot be had, says up to which number that is so.
    async fn announce(&self, version: i64, below: i64, write: ObjectId) -> Result<Option<i64>> {
        let requests = self.requests();
        let (filter, update) = requests.announce(version, below, write);
        match self.writes.upsert_one(&filter, &update).await {
            Ok(_) => {}
            Err(Error::Store(error)) if is_duplicate_of(&error, "_id") => return Ok(Some(version)),
            Err(error) => return Err(error),
        }
        // Whoever had this number before has left something under it before letting go; so has who keeps to no rules.
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

    /// The number of the version.
    pub fn version(&self) -> i64 {
        self.version
    }

    /// The version that it is made from; none if it is the first one.
    pub fn base(&self) -> Option<&Snapshot> {
        self.base.as_ref()
    }

    /// The number of the version that it is made from; 0 if it is the first one.
    pub(super) fn below(&self) -> i64 {
        self.base.as_ref().map_or(0, Snapshot::version)
    }

    /// Puts a node: a new one, or another version of one that is there.
    ///
    /// # Errors
    /// [`Error::Store`]: the version cannot be committed any more. [`Error::Invalid`] for an item that was put before, and for content with
    /// fields of the pattern. [`Error::Contended`] if the version was given up: begin again.
    pub async fn put(&mut self, item: impl Into<Bson>, content: Document) -> Result<()> {
        self.insert(vec![(item.into(), content)], false).await
    }

    /// Puts several nodes, with few requests.
    ///
    /// # Errors
    /// As [`Write::put`].
    pub async fn put_all(&mut self, nodes: impl IntoIterator<Item = (impl Into<Bson>, Document)>) -> Result<()> {
        self.insert(nodes.into_iter().map(|(item, content)| (item.into(), content)).collect(), false).await
    }

    /// From this version on there is no such item.
    ///
    /// # Errors
    /// As [`Write::put`].
    pub async fn remove(&mut self, item: impl Into<Bson>) -> Result<()> {
        self.insert(vec![(item.into(), Document::new())], true).await
    }

    /// With this root. The root is what the version is known by: it is to name its children.
    pub fn with_root(self, root: Document) -> PreparedCommit {
        PreparedCommit::new(self, root)
    }

    /// With the root of the version that it is made from.
    pub fn with_same_root(self) -> PreparedCommit {
        let root = self.base.as_ref().map(|base| base.root().clone()).unwrap_or_default();
        PreparedCommit::new(self, root)
    }

    /// Commits the version: inserts its root. Nothing of it is seen before, and all of it after.
    ///
    /// # Errors
    /// [`Error::Store`]: if [`Error::applied`] is `Maybe`, [`VersionedTree::show`] returns the state of the version.
    ///
    /// # Cancellation
    /// It may have been applied, as after a lost answer.
    pub async fn commit(self, root: Document) -> Result<Commit> {
        self.with_root(root).commit().await
    }

    /// Gives the version up.
    ///
    /// # Errors
    /// [`Error::Store`]: the sweep will abandon the version.
    pub async fn abandon(mut self) -> Result<()> {
        self.phase = Phase::Over;
        self.tree.remove(self.version, self.write).await.map(|_| ())
    }

    /// Says that the writer is at it. Putting nodes does so, too. False if the version was given up.
    pub async fn renew(&mut self) -> Result<bool> {
        let now = self.tree.sources.clock.elapsed();
        let requests = self.tree.requests();
        let held =
            self.tree.writes.update_one(&requests.announced(self.version, self.write), &requests.renew()).await?;
        self.renewed = now;
        Ok(held)
    }

    async fn insert(&mut self, nodes: Vec<(Bson, Document)>, deleted: bool) -> Result<()> {
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

    fn documents(&mut self, nodes: Vec<(Bson, Document)>, deleted: bool) -> Result<Vec<Document>> {
        let (requests, root) = (self.tree.requests(), key_of(self.tree.root())?);
        let mut documents = Vec::with_capacity(nodes.len());
        for (item, content) in nodes {
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

    /// Places that are taken: by these documents, in an attempt whose answer got lost, or by somebody who does not keep to the
    /// rules.
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
                "a version was dropped before it was committed, the sweep will see to it"
            );
        }
    }
}

/// Anything that was written is under a number that no reader sees: a failed write did not happen.
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
