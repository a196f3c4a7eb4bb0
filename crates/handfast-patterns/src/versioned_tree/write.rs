//! Writing a version: its nodes, and then its root.

use std::collections::HashSet;
use std::future::Future;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use handfast_store::{Applied, Error as StoreError};

use super::record::Version;
use super::{Snapshot, VersionEvent, VersionState, VersionedTree};
use crate::runner::jittered;
use crate::steps::is_duplicate_of;
use crate::value::{at_path, integer, key_of};
use crate::{Error, Result};

/// Numbers that a writer tries, each of which another one has just taken.
const NUMBERS_MAX: u32 = 64;
/// Items of one version at most: the writer remembers the key of each.
const ITEMS_MAX: usize = 1_000_000;
/// Marks of one request.
const MARKS_MAX: usize = 500;

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Commit {
    /// Everybody sees it.
    Committed {
        /// Its number.
        version: i64,
    },
    /// Nobody ever will: another writer came first, or the lease ran out. Begin again, on top of what is there now.
    Conflict,
}

/// A version that is being written: nodes in any number, children first; then [`Write::commit`]. One that is dropped before is
/// left to the sweep.
pub struct Write {
    tree: VersionedTree,
    base: Option<Snapshot>,
    version: i64,
    write: ObjectId,
    items: HashSet<Vec<u8>>,
    /// When the lease was renewed, by our clock's elapsed time.
    renewed: Duration,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// A node is in or not: nobody knows.
    Broken,
    Over,
}

/// A write with the root that is to commit it.
pub struct Ready {
    write: Write,
    root: Document,
}

impl VersionedTree {
    /// Begins a version on top of the newest one.
    ///
    /// # Errors
    /// Those of the store; others who take each number first.
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

    /// Writes a version: the closure puts its nodes and says what the root is to be. If another writer comes first it is run again,
    /// on top of what is there then.
    ///
    /// # Errors
    /// Those of the store, and those of the closure (unless another writer came first); others who come first each time. If
    /// [`Error::applied`] is `Maybe` the version may have been committed.
    ///
    /// # Cancellation
    /// The version may have been committed.
    pub async fn change<F, E>(&self, change: impl Fn(Write) -> F) -> Result<i64, E>
    where
        F: Future<Output = Result<Ready, E>>,
        E: From<Error>,
    {
        let attempts = self.options.attempts_max;
        for attempt in 0..attempts {
            if attempt > 0 {
                let wait = self.options.wait.saturating_mul(1 << (attempt - 1).min(10));
                tokio::time::sleep(jittered(wait, 0.5, self.sources.random.next_u64())).await;
            }
            let write = self.begin().await?;
            let (version, id) = (write.version, write.write);
            let base = write.base.as_ref().map_or(0, Snapshot::version);
            match change(write).await {
                Ok(ready) => match ready.commit().await? {
                    Commit::Committed { version } => return Ok(version),
                    Commit::Conflict => {}
                },
                Err(error) => {
                    self.clean_up(version, id).await;
                    // Somebody came first, and the closure may have stumbled over that.
                    if self.newest_version().await?.map_or(0, |newest| newest.version) == base {
                        return Err(error);
                    }
                }
            }
        }
        Err(Error::Contended { what: "other writers came first".to_owned(), attempts }.into())
    }

    /// Gives a version up, and removes what it left. What cannot be done now is left to the sweep.
    async fn clean_up(&self, version: i64, write: ObjectId) {
        if let Err(error) = self.remove(version, write).await {
            tracing::warn!(version, %error, "a version that was given up could not be removed, the sweep will see to it");
        }
    }

    /// Inserts the mark of a version, unless its root is there; then removes its nodes, and the write. Says what became of it, and
    /// how many nodes there were.
    pub(super) async fn remove(&self, version: i64, write: ObjectId) -> Result<(VersionState, u64)> {
        let state = self.give_up(version).await?;
        let removed = match state {
            VersionState::Abandoned => self.nodes.delete_many(&self.requests().nodes(version)).await?,
            VersionState::Committed | VersionState::Pruning | VersionState::Pruned | VersionState::Cleared => 0,
            // What stood there was forgotten within a moment: look again later.
            VersionState::Writing => return Ok((state, 0)),
        };
        self.writes.delete_one(&self.requests().announced(version, write)).await?;
        Ok((state, removed))
    }
}

impl Write {
    fn new(tree: VersionedTree, base: Option<Snapshot>, version: i64, write: ObjectId) -> Self {
        let renewed = tree.sources.clock.elapsed();
        Write { tree, base, version, write, items: HashSet::new(), renewed, phase: Phase::Open }
    }

    /// The number of the version.
    pub fn version(&self) -> i64 {
        self.version
    }

    /// The version that it is made from; none if it is the first one.
    pub fn base(&self) -> Option<&Snapshot> {
        self.base.as_ref()
    }

    /// Puts a node: a new one, or another version of one that is there.
    ///
    /// # Errors
    /// Those of the store, after which the version cannot be committed any more; an item that was put before; content with fields
    /// that are the pattern's; [`Error::Contended`](crate::Error::Contended) if the version was given up: begin again.
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
    pub fn with_root(self, root: Document) -> Ready {
        Ready { write: self, root }
    }

    /// With the root of the version that it is made from.
    pub fn with_same_root(self) -> Ready {
        let root = self.base.as_ref().map(|base| base.root().clone()).unwrap_or_default();
        Ready { write: self, root }
    }

    /// Commits the version: inserts its root. Nothing of it is seen before, and all of it after.
    ///
    /// # Errors
    /// Those of the store. If [`Error::applied`] is `Maybe`, [`VersionedTree::show`] says what became of the version.
    ///
    /// # Cancellation
    /// As if the answer got lost.
    pub async fn commit(self, root: Document) -> Result<Commit> {
        self.with_root(root).commit().await
    }

    /// Gives the version up.
    ///
    /// # Errors
    /// Those of the store: the sweep will see to it.
    pub async fn abandon(mut self) -> Result<()> {
        self.phase = Phase::Over;
        self.tree.remove(self.version, self.write).await.map(|_| ())
    }

    /// Says that the writer is at it. Putting nodes does so, too. False if the version was given up.
    ///
    /// # Errors
    /// Those of the store.
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

impl Ready {
    /// As [`Write::commit`].
    ///
    /// # Errors
    /// As there.
    pub async fn commit(mut self) -> Result<Commit> {
        let write = &mut self.write;
        if write.phase != Phase::Open {
            return Err(Error::invalid("a node of this version may be missing: begin again"));
        }
        check_content(&self.root, &write.tree.fields().of_roots())?;
        write.phase = Phase::Over;
        let (tree, version) = (write.tree.clone(), write.version);
        let committed = self.write.is_next().await? && self.insert_root().await?;
        if committed {
            let announced = tree.requests().announced(version, self.write.write);
            if let Err(error) = tree.writes.delete_one(&announced).await {
                tracing::warn!(version, %error, "a write that is over could not be removed, the sweep will see to it");
            }
            return Ok(Commit::Committed { version });
        }
        tree.clean_up(version, self.write.write).await;
        Ok(Commit::Conflict)
    }

    /// Inserts the root; false if a mark stands in its place.
    async fn insert_root(&self) -> Result<bool> {
        let Write { tree, base, version, .. } = &self.write;
        let below = base.as_ref().map_or(0, Snapshot::version);
        let remembered = base.as_ref().is_some_and(|base| !base.abandoned().is_empty());
        let Some(state) = VersionState::Writing.after(VersionEvent::RootInserted) else { return Ok(false) };
        let root = Version {
            version: *version,
            state,
            base: below,
            ts: tree.now(),
            root: self.root.clone(),
            gaps: remembered || below.saturating_add(1) < *version,
            mark: None,
        };
        let id = tree.sources.ids.object_id();
        match tree.nodes.insert(&tree.requests().root(id, &root)).await {
            Ok(_) => Ok(true),
            Err(Error::Store(error)) if is_duplicate_of(&error, &tree.fields().item) => self.write.is_ours().await,
            Err(error) if error.applied() == Applied::Maybe => match self.write.is_ours().await {
                Ok(ours) => Ok(ours),
                Err(_) => Err(error),
            },
            Err(error) => Err(error),
        }
    }
}

impl Write {
    /// Decides every number between the base and this one, and looks whether the base is still the newest version.
    async fn is_next(&self) -> Result<bool> {
        let below = self.base.as_ref().map_or(0, Snapshot::version);
        let between: Vec<i64> = (below.saturating_add(1)..self.version).collect();
        if between.is_empty() {
            return Ok(true);
        }
        let tree = &self.tree;
        for versions in between.chunks(MARKS_MAX) {
            let mark = |version: &i64| tree.requests().abandoned(tree.sources.ids.object_id(), *version, tree.now());
            tree.nodes.insert_all(&versions.iter().map(mark).collect::<Vec<_>>()).await?;
        }
        Ok(tree.newest_version().await?.map_or(0, |newest| newest.version) == below)
    }

    /// Whether the root of this version is there. It is decided now, if it was not before.
    async fn is_ours(&self) -> Result<bool> {
        Ok(match self.tree.give_up(self.version).await? {
            VersionState::Abandoned | VersionState::Writing => false,
            VersionState::Committed | VersionState::Pruning | VersionState::Pruned | VersionState::Cleared => true,
        })
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

/// Whatever may have been written is under a number that nobody sees: what failed did not happen.
fn unseen(error: Error) -> Error {
    match error {
        Error::Store(error) if error.applied() == Applied::Maybe => {
            StoreError::new(error.class(), Applied::No, error.code(), error.message()).into()
        }
        other => other,
    }
}

fn check_content(content: &Document, reserved: &[&str]) -> Result<()> {
    match content.keys().find(|field| reserved.contains(&field.as_str())) {
        Some(field) => Err(Error::invalid(format!("the field {field} is kept by the pattern"))),
        None => Ok(()),
    }
}
