//! Changes in the background of the clients' transactions: inserts and deletes a document that some queries fail for, and creates, fills,
//! indexes, renames, empties and drops collections.
//!
//! No document of a key is lost. Documents move between collections in transactions, and a collection is dropped only when it is empty.
//! It stays empty, because clients insert new `_id`s only into the first collection, which is never dropped. Older snapshots keep the
//! documents of dropped collections.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bson::{RawDocumentBuf, rawdoc};
use handfast_store::{
    CollectionOptions, DocumentStore, DropIndexes, Error as StoreError, Find, IndexSelector, IndexSpec, Namespace,
    Random, RenameCollection, Result as StoreResult, StoreExt,
};
use handfast_txn::{Database, Error};

use super::{MovingClient, Tally};
use crate::workload::{below, one_in};
use crate::{Failure, database};

/// The number of commits of clients between two changes: without a pause, no client would commit.
const COMMITS_BETWEEN: u64 = 3;
/// The number of further commits after which clients wait for the change.
const COMMITS_AHEAD_MAX: u64 = 2;
/// The number of documents that one step moves.
const MOVED_AT_ONCE: u64 = 3;
/// The number of attempts to empty a collection before a drop.
const ATTEMPTS_MAX: u32 = 60;
/// The number of times that [`until`] yields before it pauses.
const TURNS: u32 = 200;
/// The pause of [`until`], in case all clients wait for time to pass.
const PAUSE: Duration = Duration::from_millis(1);

/// Yields to other tasks until a condition holds.
pub(super) async fn until(is_met: impl Fn() -> bool) {
    loop {
        for _ in 0..TURNS {
            if is_met() {
                return;
            }
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Returns a document without the fields of a key's document, for which some queries fail.
pub fn incomplete() -> RawDocumentBuf {
    rawdoc! { "_id": "odd" }
}

/// Changes collections, indexes and further documents while clients run transactions.
pub struct BackgroundChanges {
    client: MovingClient,
    database: Database,
    random: Arc<dyn Random>,
    tally: Tally,
}

impl Drop for BackgroundChanges {
    fn drop(&mut self) {
        self.client.wait_after(u64::MAX);
    }
}

impl BackgroundChanges {
    /// Creates background changes on a database over the client's store.
    pub fn new(client: MovingClient, database: Database, random: Arc<dyn Random>) -> Self {
        BackgroundChanges { client, database, random, tally: Tally::default() }
    }

    /// Makes changes until `stop` is set; returns their counts.
    ///
    /// # Errors
    /// [`Failure`] for any error but a conflict.
    pub async fn run(mut self, stop: Arc<AtomicBool>) -> Result<Tally, Failure> {
        let mut next = COMMITS_BETWEEN;
        while !stop.load(Ordering::Relaxed) {
            self.client.wait_after(next + COMMITS_AHEAD_MAX);
            until(|| self.client.commits() >= next || stop.load(Ordering::Relaxed)).await;
            match self.change().await.map_err(database::step_failure) {
                // The change conflicted with a transaction; the next one follows.
                Ok(()) | Err(Failure::Conflict(_)) => {}
                Err(failure) => return Err(failure),
            }
            next = self.client.commits() + COMMITS_BETWEEN;
        }
        Ok(self.tally)
    }

    async fn change(&mut self) -> StoreResult<()> {
        let collections = self.client.collections().to_vec();
        let [first, others @ ..] = &*collections else { return Ok(()) };
        let any = || &others[usize::try_from(below(&*self.random, others.len() as i64)).unwrap_or(0)];
        if others.is_empty() || one_in(&*self.random, 3) {
            return self.toggle_incomplete(first).await;
        }
        match below(&*self.random, 6) {
            0 | 1 => {
                let to = any().clone();
                self.fill(first, &to).await
            }
            2 => {
                let from = any().clone();
                self.empty(&from, first).await
            }
            3 => {
                let (from, to) = (any().clone(), any().clone());
                self.rename(&from, &to).await
            }
            4 => {
                let namespace = any().clone();
                self.index(&namespace).await
            }
            _ => self.index(first).await,
        }
    }

    async fn toggle_incomplete(&self, first: &Namespace) -> StoreResult<()> {
        match self.database.delete_one(first, incomplete()).await? {
            true => Ok(()),
            false => self.database.insert_one(first, incomplete()).await,
        }
    }

    /// Moves some documents to a collection, which may not exist yet.
    async fn fill(&mut self, from: &Namespace, to: &Namespace) -> StoreResult<()> {
        if one_in(&*self.random, 2) && !self.exists(to).await? {
            self.database.create_collection(to, CollectionOptions::default()).await?;
            self.tally.collections_changed += 1;
        }
        let filter = rawdoc! { "_id": { "$gte": below(&*self.random, 64) } };
        let find = Find { limit: Some(MOVED_AT_ONCE), ..Find::new(from.clone(), filter) };
        for document in self.database.find_all(find).await? {
            self.move_one(from, to, &document).await?;
        }
        Ok(())
    }

    /// Moves one document in a transaction that reads it again.
    async fn move_one(&self, from: &Namespace, to: &Namespace, seen: &RawDocumentBuf) -> StoreResult<()> {
        let Ok(id) = seen.get_i64("_id") else { return Ok(()) };
        let tx = self.database.begin().await.map_err(StoreError::from)?;
        let Some(document) = tx.find_one(from, rawdoc! { "_id": id }).await? else { return Ok(()) };
        tx.delete_one(from, rawdoc! { "_id": id }).await?;
        tx.insert_one(to, document).await?;
        tx.commit().await.map(drop).map_err(StoreError::from)
    }

    /// Moves all documents out of a collection and drops it.
    async fn empty(&mut self, from: &Namespace, to: &Namespace) -> StoreResult<()> {
        for _ in 0..ATTEMPTS_MAX {
            let Some(document) = self.database.find_one(from, rawdoc! {}).await? else {
                self.tally.collections_changed += u64::from(self.database.drop_collection(from).await?);
                return Ok(());
            };
            match self.move_one(from, to, &document).await.map_err(Error::of_store) {
                Ok(()) => {}
                Err(Error::Conflict(_)) => tokio::time::sleep(PAUSE).await,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Renames a collection. Replaces the target, if that is empty.
    async fn rename(&mut self, from: &Namespace, to: &Namespace) -> StoreResult<()> {
        if from == to || !self.exists(from).await? || self.database.count_matching(to, rawdoc! {}).await? > 0 {
            return Ok(());
        }
        let request = RenameCollection { from: from.clone(), to: to.clone(), drop_target: true };
        self.database.rename_collection(request).await?;
        self.tally.collections_changed += 1;
        Ok(())
    }

    /// Creates an index, or drops it if it exists.
    async fn index(&mut self, namespace: &Namespace) -> StoreResult<()> {
        let index = IndexSpec::new(rawdoc! { "key": 1 });
        if !self.exists(namespace).await? {
            return Ok(());
        }
        let indexes = self.database.list_indexes(namespace).await?;
        match indexes.iter().any(|info| info.spec.name == index.name) {
            false => self.database.create_index(namespace, index).await?,
            true => {
                let selector = IndexSelector::Names(vec![index.name]);
                self.database.drop_indexes(DropIndexes { namespace: namespace.clone(), selector }).await?;
            }
        }
        self.tally.indexes_changed += 1;
        Ok(())
    }

    async fn exists(&self, namespace: &Namespace) -> StoreResult<bool> {
        let listed = self.database.list_collections(namespace.database()).await?;
        Ok(listed.iter().any(|info| info.name == namespace.collection()))
    }
}
