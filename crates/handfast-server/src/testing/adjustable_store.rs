//! A store in memory that a test can slow down or let fail.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use handfast_store::decorator::DelegatingStore;
use handfast_store::*;

use crate::lock::lock;

/// A store in memory whose delays, errors and checks a test sets.
pub(crate) struct AdjustableStore {
    store: MemoryStore,
    /// The delay of each insert, find, count and aggregation.
    pub(crate) delay: Mutex<Duration>,
    /// The delay of each page of a cursor.
    pub(crate) page_delay: Arc<Mutex<Duration>>,
    /// The error of every insert.
    pub(crate) failure: Mutex<Option<Error>>,
    /// The result of every check of a collection, in place of the real one.
    pub(crate) check: Mutex<Option<CollectionCheck>>,
    /// The durability of each finished insert.
    pub(crate) inserts: Mutex<Vec<Durability>>,
}

impl Default for AdjustableStore {
    fn default() -> Self {
        AdjustableStore {
            store: MemoryStore::new(Sources::seeded(1)),
            delay: Mutex::default(),
            page_delay: Arc::default(),
            failure: Mutex::default(),
            check: Mutex::default(),
            inserts: Mutex::default(),
        }
    }
}

impl AdjustableStore {
    fn slow(&self, cursor: Box<dyn Cursor>) -> Box<dyn Cursor> {
        Box::new(SlowCursor { cursor, delay: Arc::clone(&self.page_delay) })
    }
}

async fn wait(delay: &Mutex<Duration>) {
    let delay = *lock(delay);
    if delay > Duration::ZERO {
        tokio::time::sleep(delay).await;
    }
}

struct SlowCursor {
    cursor: Box<dyn Cursor>,
    delay: Arc<Mutex<Duration>>,
}

#[async_trait]
impl Cursor for SlowCursor {
    async fn next_page(&mut self, limit: BatchLimit) -> Result<Page> {
        wait(&self.delay).await;
        self.cursor.next_page(limit).await
    }
}

#[async_trait]
impl DelegatingStore for AdjustableStore {
    type Inner = MemoryStore;

    fn inner(&self) -> &MemoryStore {
        &self.store
    }

    async fn insert(&self, request: Insert) -> Result<InsertOutcome> {
        wait(&self.delay).await;
        if let Some(error) = lock(&self.failure).clone() {
            return Err(error);
        }
        let durability = request.durability;
        let outcome = self.store.insert(request).await?;
        lock(&self.inserts).push(durability);
        Ok(outcome)
    }

    async fn find(&self, request: Find) -> Result<Box<dyn Cursor>> {
        wait(&self.delay).await;
        Ok(self.slow(self.store.find(request).await?))
    }

    async fn aggregate(&self, request: Aggregate) -> Result<Box<dyn Cursor>> {
        wait(&self.delay).await;
        Ok(self.slow(self.store.aggregate(request).await?))
    }

    async fn count(&self, request: Count) -> Result<u64> {
        wait(&self.delay).await;
        self.store.count(request).await
    }

    /// Adds sizes on disk, which a store in memory does not have.
    async fn collection_stats(&self, namespace: &Namespace) -> Result<CollectionStats> {
        let stats = self.store.collection_stats(namespace).await?;
        Ok(CollectionStats { storage_bytes: 4096, index_bytes: vec![("_id_".to_owned(), 100)], ..stats })
    }

    async fn flush(&self) -> Result<()> {
        let failure = lock(&self.failure).clone();
        match failure {
            Some(error) => Err(error),
            None => self.store.flush().await,
        }
    }

    async fn check_collection(&self, namespace: &Namespace) -> Result<CollectionCheck> {
        let check = lock(&self.check).clone();
        match check {
            Some(check) => Ok(check),
            None => self.store.check_collection(namespace).await,
        }
    }
}
