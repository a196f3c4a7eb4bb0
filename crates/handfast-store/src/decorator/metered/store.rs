//! The operations of the contract, counted and timed.

use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use bson::{RawBsonRef, RawDocumentBuf};

use super::{Metered, Meters};
use crate::decorator::{DelegatingStore, Operation};
use crate::validation::Validator;
use crate::view::ResolvedView;
use crate::{
    Aggregate, AtomicBatch, AtomicStore, BatchLimit, CommitTimestamp, Cursor, DocumentStore, Find, Namespace, Page,
    Result, Snapshot,
};

#[async_trait]
impl<S: DocumentStore> DelegatingStore for Metered<S> {
    type Inner = S;

    fn inner(&self) -> &S {
        &self.store
    }

    fn run<T: Send>(
        &self,
        operation: Operation,
        call: impl Future<Output = Result<T>> + Send,
    ) -> impl Future<Output = Result<T>> + Send {
        self.meters.time(operation, call)
    }

    async fn find(&self, request: Find) -> Result<Box<dyn Cursor>> {
        let cursor = self.meters.time(Operation::Find, self.store.find(request)).await?;
        Ok(self.wrap(cursor))
    }

    async fn aggregate(&self, request: Aggregate) -> Result<Box<dyn Cursor>> {
        let cursor = self.meters.time(Operation::Aggregate, self.store.aggregate(request)).await?;
        Ok(self.wrap(cursor))
    }
}

#[async_trait]
impl<S: AtomicStore> AtomicStore for Metered<S> {
    async fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        let snapshot = self.meters.time(Operation::Snapshot, self.store.snapshot()).await?;
        Ok(Box::new(MeteredSnapshot { snapshot, meters: Arc::clone(&self.meters) }))
    }

    async fn commit(&self, batch: AtomicBatch) -> Result<CommitTimestamp> {
        self.meters.time(Operation::Commit, self.store.commit(batch)).await
    }
}

struct MeteredSnapshot {
    snapshot: Box<dyn Snapshot>,
    meters: Arc<Meters>,
}

#[async_trait]
impl Snapshot for MeteredSnapshot {
    fn timestamp(&self) -> CommitTimestamp {
        self.snapshot.timestamp()
    }

    async fn get(&self, namespace: &Namespace, id: RawBsonRef<'_>) -> Result<Option<RawDocumentBuf>> {
        self.meters.time(Operation::SnapshotGet, self.snapshot.get(namespace, id)).await
    }

    async fn find(&self, request: Find) -> Result<Box<dyn Cursor>> {
        let cursor = self.meters.time(Operation::SnapshotFind, self.snapshot.find(request)).await?;
        Ok(Box::new(MeteredCursor { cursor, meters: Arc::clone(&self.meters) }))
    }

    fn is_unchanged(&self, namespace: &Namespace, id: RawBsonRef<'_>) -> bool {
        self.snapshot.is_unchanged(namespace, id)
    }

    fn validator(&self, namespace: &Namespace) -> Option<Arc<Validator>> {
        self.snapshot.validator(namespace)
    }

    fn default_collation(&self, namespace: &Namespace) -> Option<RawDocumentBuf> {
        self.snapshot.default_collation(namespace)
    }

    fn view(&self, namespace: &Namespace) -> Result<Option<ResolvedView>> {
        self.snapshot.view(namespace)
    }
}

pub(super) struct MeteredCursor {
    pub(super) cursor: Box<dyn Cursor>,
    pub(super) meters: Arc<Meters>,
}

#[async_trait]
impl Cursor for MeteredCursor {
    async fn next_page(&mut self, limit: BatchLimit) -> Result<Page> {
        self.meters.time(Operation::NextPage, self.cursor.next_page(limit)).await
    }

    fn depends_on_catalog(&self) -> bool {
        self.cursor.depends_on_catalog()
    }
}
