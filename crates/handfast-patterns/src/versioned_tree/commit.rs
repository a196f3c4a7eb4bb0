//! The commit of a version: it decides every number below, and then inserts the root.

use std::future::Future;

use bson::oid::ObjectId;
use bson::{Document, doc};
use handfast_store::Applied;

use super::write::{Phase, Write, check_content, unseen};
use super::{Version, VersionEvent, VersionState, VersionedTree};
use crate::metrics::{self, Event, Span};
use crate::runner::jittered;
use crate::steps::{Added, is_duplicate_of};
use crate::value::same_id;
use crate::{Error, Result, Token};

/// Limit on the marks of one request.
const MARKS_MAX: usize = 500;

/// The result of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Commit {
    /// The version is committed, and all readers see it.
    Committed {
        /// The number of the version.
        version: i64,
    },
    /// The version was not committed and never will be, because another writer came first or the lease ran out. Begin
    /// again on top of the newest version.
    Conflict,
}

/// The result of [`VersionedTree::change_once`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Committed {
    /// This call has committed the version.
    Now {
        /// The number of the version.
        version: i64,
    },
    /// An earlier call with the token has committed the version, or an attempt of this one whose answer was lost.
    Before {
        /// The number of the version.
        version: i64,
    },
}

impl Committed {
    /// Returns the number of the version.
    pub fn version(self) -> i64 {
        match self {
            Committed::Now { version } | Committed::Before { version } => version,
        }
    }
}

/// A write together with the root that will commit it.
pub struct PreparedCommit {
    write: Write,
    root: Document,
    /// The `_id` of the root, which no two versions have.
    id: ObjectId,
}

impl VersionedTree {
    /// Writes a version: the closure puts its nodes and returns its root. If another writer commits first, the closure
    /// is run again on top of the new version.
    ///
    /// # Errors
    /// [`Error::Store`] if the store fails: if [`Error::applied`] is `Maybe`, the version may have been committed.
    /// [`Error::Contended`] if other writers commit first at each attempt. An error of the closure is returned, unless
    /// another writer has committed first.
    ///
    /// # Cancellation
    /// The version may have been committed.
    pub async fn change<F, E>(&self, change: impl Fn(Write) -> F) -> Result<i64, E>
    where
        F: Future<Output = Result<PreparedCommit, E>>,
        E: From<Error>,
    {
        Ok(self.change_named(None, change).await?.version())
    }

    /// Writes a version as [`VersionedTree::change`] does, unless a call with this token has committed one. The token
    /// is the `_id` of the version's root, so it is known for as long as the version, or its mark, is there.
    ///
    /// # Errors
    /// Those of [`VersionedTree::change`], after which the call may be repeated with the same token. [`Error::Invalid`]
    /// if another document has the token as its `_id`.
    ///
    /// # Cancellation
    /// The version may have been committed: call again with the same token.
    pub async fn change_once<F, E>(&self, token: Token, change: impl Fn(Write) -> F) -> Result<Committed, E>
    where
        F: Future<Output = Result<PreparedCommit, E>>,
        E: From<Error>,
    {
        self.change_named(Some(token), change).await
    }

    async fn change_named<F, E>(&self, token: Option<Token>, change: impl Fn(Write) -> F) -> Result<Committed, E>
    where
        F: Future<Output = Result<PreparedCommit, E>>,
        E: From<Error>,
    {
        let attempts = self.options.attempts_max;
        for attempt in 0..attempts {
            if attempt > 0 {
                let wait = self.options.wait.saturating_mul(1 << (attempt - 1).min(10));
                tokio::time::sleep(jittered(wait, 0.5, self.sources.random.next_u64())).await;
            }
            if let Some(token) = token
                && let Some(version) = self.committed_by(token).await?
            {
                return Ok(Committed::Before { version });
            }
            let write = self.begin().await?;
            let (version, id, below) = (write.version, write.write, write.below());
            match change(write).await {
                Ok(ready) => match ready.named(token).commit().await? {
                    Commit::Committed { version } => return Ok(Committed::Now { version }),
                    Commit::Conflict => {}
                },
                Err(error) => {
                    self.clean_up(version, id).await;
                    // Another writer has committed first, which may have caused the error of the closure.
                    if self.newest_version().await?.map_or(0, |newest| newest.version) == below {
                        return Err(error);
                    }
                }
            }
        }
        Err(Error::Contended { what: "other writers came first".to_owned(), attempts }.into())
    }

    /// Returns the version that [`VersionedTree::change_once`] has committed with this token; `None` if it has not, or
    /// the mark of the version was forgotten.
    ///
    /// # Errors
    /// [`Error::Invalid`] if another document has the token as its `_id`.
    pub async fn committed_by(&self, token: Token) -> Result<Option<i64>> {
        let Some(found) = self.nodes.find_one(&doc! { "_id": token }).await? else { return Ok(None) };
        let is_of_tree = found.get(&self.fields().item).is_some_and(|item| same_id(item, self.root()));
        if is_of_tree {
            let Version { version, state, .. } = Version::read(&self.nodes, found, self.fields())?;
            if !matches!(state, VersionState::Writing | VersionState::Abandoned) {
                return Ok(Some(version));
            }
        }
        let text = format!("another document of {} has the _id {}", self.nodes.namespace(), token.0);
        Err(Error::invalid(text))
    }

    /// Gives up a version, and removes its nodes. If that fails, it is left to the sweep.
    async fn clean_up(&self, version: i64, write: ObjectId) {
        if let Err(error) = self.remove(version, write).await {
            tracing::warn!(version, %error, "a version that was given up could not be removed, the sweep will try again");
        }
    }

    /// Inserts the mark of a version, unless its root exists; then removes its nodes and the write. Returns the state
    /// of the version and the number of nodes.
    pub(super) async fn remove(&self, version: i64, write: ObjectId) -> Result<(VersionState, u64)> {
        let state = self.give_up(version).await?;
        let removed = match state {
            VersionState::Abandoned => self.nodes.delete_many(&self.requests().nodes(version)).await?,
            VersionState::Committed | VersionState::Pruning | VersionState::Pruned | VersionState::Cleared => 0,
            // The document there was removed by a forget in the meantime, so look again later.
            VersionState::Writing => return Ok((state, 0)),
        };
        self.writes.delete_one(&self.requests().announced(version, write)).await?;
        Ok((state, removed))
    }
}

impl PreparedCommit {
    pub(super) fn new(write: Write, root: Document) -> Self {
        let id = write.tree.sources.ids.object_id();
        PreparedCommit { write, root, id }
    }

    fn named(self, token: Option<Token>) -> Self {
        PreparedCommit { id: token.map_or(self.id, |Token(id)| id), ..self }
    }

    /// Commits the version, as [`Write::commit`] does.
    ///
    /// # Errors
    /// [`Error::Store`] if the store fails: if [`Error::applied`] is `Maybe`, [`VersionedTree::show`] returns the
    /// state of the version.
    pub async fn commit(mut self) -> Result<Commit> {
        let write = &mut self.write;
        if write.phase != Phase::Open {
            return Err(Error::invalid("a node of this version may be missing: begin again"));
        }
        check_content(&self.root, &write.tree.fields().of_roots())?;
        write.phase = Phase::Over;
        let (tree, version, begun) = (write.tree.clone(), write.version, write.begun);
        let committed = self.write.is_next().await.map_err(unseen)? && self.insert_root().await?;
        if committed {
            tree.count(Event::VersionCommitted, 1);
            let clock = &*tree.sources.clock;
            metrics::took_since(Span::Write, tree.nodes.namespace(), clock, begun);
            let announced = tree.requests().announced(version, self.write.write);
            if let Err(error) = tree.writes.delete_one(&announced).await {
                tracing::warn!(version, %error, "a write that is over could not be removed, the sweep will try again");
            }
            return Ok(Commit::Committed { version });
        }
        tree.count(Event::VersionConflict, 1);
        tree.clean_up(version, self.write.write).await;
        Ok(Commit::Conflict)
    }

    /// Inserts the root; returns `false` if a mark exists instead.
    async fn insert_root(&self) -> Result<bool> {
        let Write { tree, base, version, .. } = &self.write;
        let below = self.write.below();
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
        match tree.nodes.insert(&tree.requests().root(self.id, &root)).await {
            Ok(Added::New) => Ok(true),
            // It is this root, if the answer to an attempt was lost, or the root of another version with the token.
            Ok(Added::There) => self.write.is_ours().await,
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
    /// Decides every number between the base and this one, and returns whether the base is still the newest version.
    async fn is_next(&self) -> Result<bool> {
        let below = self.below();
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

    /// Returns whether the root of this version exists. If the number was undecided it is decided now.
    async fn is_ours(&self) -> Result<bool> {
        Ok(match self.tree.give_up(self.version).await? {
            VersionState::Abandoned | VersionState::Writing => false,
            VersionState::Committed | VersionState::Pruning | VersionState::Pruned | VersionState::Cleared => true,
        })
    }
}
