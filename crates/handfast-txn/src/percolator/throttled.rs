//! A store that has a bounded number of requests under way, however much is asked of it.
//!
//! A store behind a network has a bounded number of connections, and who asks for one more waits in a line. With fewer requests
//! under way than connections, what must not wait for data (timestamps, signs of life) goes past that line: it is sent to the
//! store itself.

use std::sync::Arc;

use async_trait::async_trait;
use bson::RawBson;
use handfast_store::decorator::DelegatingStore;
use handfast_store::{
    Aggregate, BatchLimit, Count, Cursor, Delete, DeleteOutcome, Distinct, DocumentStore, Find, FindAndModify,
    FindAndModifyOutcome, Insert, InsertOutcome, Page, Result as StoreResult, Update, UpdateOutcome,
};
use tokio::sync::{Semaphore, SemaphorePermit};

/// A store in front of which requests stand in line, first come, first served. What concerns collections and indexes is rare,
/// and passes.
pub(super) struct Throttled {
    store: Arc<dyn DocumentStore>,
    free: Arc<Semaphore>,
}

/// Results whose pages are requests, too.
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

/// Waits for a turn, which ends with what is returned. (The semaphore is never closed.)
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
