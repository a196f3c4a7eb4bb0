//! A store with a bound on requests under way.
//!
//! A store behind a network has a bounded number of connections, for which requests wait in a queue. With fewer data requests under way than
//! connections, timestamps and heartbeats need not wait: they are sent to the store directly.

use std::sync::Arc;

use async_trait::async_trait;
use bson::RawBson;
use handfast_store::decorator::DelegatingStore;
use handfast_store::{
    Aggregate, BatchLimit, Count, Cursor, Delete, DeleteOutcome, Distinct, DocumentStore, Find, FindAndModify,
    FindAndModifyOutcome, Insert, InsertOutcome, Page, Result as StoreResult, Update, UpdateOutcome,
};
use tokio::sync::{Semaphore, SemaphorePermit};

/// A store in front of which data requests wait in order of arrival. Requests about collections and indexes are rare and pass.
pub(super) struct Throttled {
    store: Arc<dyn DocumentStore>,
    free: Arc<Semaphore>,
}

/// A cursor whose pages count as requests.
struct ThrottledCursor {
    cursor: Box<dyn Cursor>,
    free: Arc<Semaphore>,
}

impl Throttled {
    pub(super) fn new(store: Arc<dyn DocumentStore>, requests_max: usize) -> Self {
        Throttled { store, free: Arc::new(Semaphore::new(requests_max.max(1))) }
    }

    fn wrap(&self, cursor: Box<dyn Cursor>) -> Box<dyn Cursor> {
        Box::new(ThrottledCursor { cursor, free: Arc::clone(&self.free) })
    }
}

/// Waits for a permit. (The semaphore is never closed.)
async fn turn(free: &Semaphore) -> Option<SemaphorePermit<'_>> {
    free.acquire().await.ok()
}

#[async_trait]
impl Cursor for ThrottledCursor {
    async fn next_page(&mut self, limit: BatchLimit) -> StoreResult<Page> {
        let _turn = turn(&self.free).await;
        self.cursor.next_page(limit).await
    }
}

#[async_trait]
impl DelegatingStore for Throttled {
    type Inner = dyn DocumentStore;

    fn inner(&self) -> &Self::Inner {
        &*self.store
    }

    async fn insert(&self, request: Insert) -> StoreResult<InsertOutcome> {
        let _turn = turn(&self.free).await;
        self.store.insert(request).await
    }

    async fn find(&self, request: Find) -> StoreResult<Box<dyn Cursor>> {
        let _turn = turn(&self.free).await;
        Ok(self.wrap(self.store.find(request).await?))
    }

    async fn update(&self, request: Update) -> StoreResult<UpdateOutcome> {
        let _turn = turn(&self.free).await;
        self.store.update(request).await
    }

    async fn find_and_modify(&self, request: FindAndModify) -> StoreResult<FindAndModifyOutcome> {
        let _turn = turn(&self.free).await;
        self.store.find_and_modify(request).await
    }

    async fn delete(&self, request: Delete) -> StoreResult<DeleteOutcome> {
        let _turn = turn(&self.free).await;
        self.store.delete(request).await
    }

    async fn aggregate(&self, request: Aggregate) -> StoreResult<Box<dyn Cursor>> {
        let _turn = turn(&self.free).await;
        Ok(self.wrap(self.store.aggregate(request).await?))
    }

    async fn count(&self, request: Count) -> StoreResult<u64> {
        let _turn = turn(&self.free).await;
        self.store.count(request).await
    }

    async fn distinct(&self, request: Distinct) -> StoreResult<Vec<RawBson>> {
        let _turn = turn(&self.free).await;
        self.store.distinct(request).await
    }
}
