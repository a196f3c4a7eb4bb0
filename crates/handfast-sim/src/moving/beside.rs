//! What happens beside the transactions of clients: a document comes and goes that some queries fail for, and collections are made,
//! filled, indexed, renamed, emptied and dropped.
//!
//! Nothing is lost by that. Documents are moved from one collection to another one as clients move them, and a collection is dropped when
//! it is empty; that stays so, as clients insert into the first collection only, which is never dropped, and put into the others
//! what they have taken from the same place. Older snapshots have the documents that were there before.

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

/// Commits of clients from one change to the next: where the catalog changes without a pause, nobody comes to a commit.
const COMMITS_BETWEEN: u64 = 3;
/// More than so many, and clients wait for the change.
const COMMITS_AHEAD_MAX: u64 = 2;
/// Documents that are moved at a time.
const MOVED_AT_ONCE: u64 = 3;
/// Attempts to take a document out of a collection that is to be dropped.
const ATTEMPTS_MAX: u32 = 60;
/// Turns of the others between two looks at whether they have gone on..
const TURNS: u32 = 200;
/// ..and a pause, in case they all wait for something.
const PAUSE: Duration = Duration::from_millis(1);

/// Lets others go on until something is so.
pub(super) async fn until(is_so: impl Fn() -> bool) {
    loop {
        for _ in 0..TURNS {
            if is_so() {
                return;
            }
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The document that some queries fail for.
pub fn odd() -> RawDocumentBuf {
    rawdoc! { "_id": "odd" }
}

/// Somebody who changes what clients only use.
pub struct Beside {
    client: MovingClient,
    database: Database,
    random: Arc<dyn Random>,
    tally: Tally,
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.client.wait_after(u64::MAX);
    }
}

impl Beside {
    /// On a database over the store that the client uses.
    pub fn new(client: MovingClient, database: Database, random: Arc<dyn Random>) -> Self {
        Beside { client, database, random, tally: Tally::default() }
    }

    /// Goes on until it is told to stop; returns what was done.
    ///
    /// # Errors
    /// The store does what is not expected of it.
    pub async fn run(mut self, stop: Arc<AtomicBool>) -> Result<Tally, Failure> {
        let mut next = COMMITS_BETWEEN;
        while !stop.load(Ordering::Relaxed) {
            self.client.wait_after(next + COMMITS_AHEAD_MAX);
            until(|| self.client.commits() >= next || stop.load(Ordering::Relaxed)).await;
            match self.act().await.map_err(database::step_failure) {
                // Somebody else was in the way: the next one will do.
                Ok(()) | Err(Failure::Conflict(_)) => {}
                Err(failure) => return Err(failure),
            }
            next = self.client.commits() + COMMITS_BETWEEN;
        }
        Ok(self.tally)
    }

    async fn act(&mut self) -> StoreResult<()> {
        let collections = self.client.collections().to_vec();
        let [first, others @ ..] = &*collections else { return Ok(()) };
        let any = || &others[usize::try_from(below(&*self.random, others.len() as i64)).unwrap_or(0)];
        if others.is_empty() || one_in(&*self.random, 3) {
            return self.let_odd_come_or_go(first).await;
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

    async fn let_odd_come_or_go(&self, first: &Namespace) -> StoreResult<()> {
        match self.database.delete_one(first, odd()).await? {
            true => Ok(()),
            false => self.database.insert_one(first, odd()).await,
        }
    }

    /// Moves some documents; makes the collection if need be.
    async fn fill(&mut self, from: &Namespace, to: &Namespace) -> StoreResult<()> {
        if one_in(&*self.random, 2) && !self.exists(to).await? {
            self.database.create_collection(to, CollectionOptions::default()).await?;
            self.tally.collections_changed += 1;
        }
        let some = rawdoc! { "_id": { "$gte": below(&*self.random, 64) } };
        let find = Find { limit: Some(MOVED_AT_ONCE), ..Find::new(from.clone(), some) };
        for document in self.database.find_all(find).await? {
            self.move_one(from, to, &document).await?;
        }
        Ok(())
    }

    /// Moves one document, as somebody else may have changed it.
    async fn move_one(&self, from: &Namespace, to: &Namespace, seen: &RawDocumentBuf) -> StoreResult<()> {
        let Ok(place) = seen.get_i64("_id") else { return Ok(()) };
        let tx = self.database.begin().await.map_err(StoreError::from)?;
        let Some(document) = tx.find_one(from, rawdoc! { "_id": place }).await? else { return Ok(()) };
        tx.delete_one(from, rawdoc! { "_id": place }).await?;
        tx.insert_one(to, document).await?;
        tx.commit().await.map(drop).map_err(StoreError::from)
    }

    /// Moves all documents out of a collection, and drops it.
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

    /// Gives a collection another name; what has that name now is dropped, so it has to be empty.
    async fn rename(&mut self, from: &Namespace, to: &Namespace) -> StoreResult<()> {
        if from == to || !self.exists(from).await? || self.database.count_matching(to, rawdoc! {}).await? > 0 {
            return Ok(());
        }
        let request = RenameCollection { from: from.clone(), to: to.clone(), drop_target: true };
        self.database.rename_collection(request).await?;
        self.tally.collections_changed += 1;
        Ok(())
    }

    /// Makes an index or drops it.
    async fn index(&mut self, namespace: &Namespace) -> StoreResult<()> {
        let index = IndexSpec::new(rawdoc! { "key": 1 });
        if !self.exists(namespace).await? {
            return Ok(());
        }
        let there = self.database.list_indexes(namespace).await?;
        match there.iter().any(|info| info.spec.name == index.name) {
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
