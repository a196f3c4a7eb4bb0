//! Each operation of the contract, counted and timed.

use std::sync::Arc;

use async_trait::async_trait;
use bson::{RawBson, RawBsonRef, RawDocumentBuf};

use super::{Metered, Meters};
use crate::decorator::Operation;
use crate::*;

#[async_trait]
impl<S: DocumentStore> DocumentStore for Metered<S> {
    fn name(&self) -> &'static str {
        self.store.name()
    }

    async fn insert(&self, request: Insert) -> Result<InsertOutcome> {
        self.meters.time(Operation::Insert, self.store.insert(request)).await
    }

    async fn find(&self, request: Find) -> Result<Box<dyn Cursor>> {
        let cursor = self.meters.time(Operation::Find, self.store.find(request)).await?;
        Ok(self.wrap(cursor))
    }

    async fn update(&self, request: Update) -> Result<UpdateOutcome> {
        self.meters.time(Operation::Update, self.store.update(request)).await
    }

    async fn find_and_modify(&self, request: FindAndModify) -> Result<FindAndModifyOutcome> {
        self.meters.time(Operation::FindAndModify, self.store.find_and_modify(request)).await
    }

    async fn delete(&self, request: Delete) -> Result<DeleteOutcome> {
        self.meters.time(Operation::Delete, self.store.delete(request)).await
    }

    async fn aggregate(&self, request: Aggregate) -> Result<Box<dyn Cursor>> {
        let cursor = self.meters.time(Operation::Aggregate, self.store.aggregate(request)).await?;
        Ok(self.wrap(cursor))
    }

    async fn count(&self, request: Count) -> Result<u64> {
        self.meters.time(Operation::Count, self.store.count(request)).await
    }

    async fn distinct(&self, request: Distinct) -> Result<Vec<RawBson>> {
        self.meters.time(Operation::Distinct, self.store.distinct(request)).await
    }

    async fn explain(&self, request: Explain) -> Result<RawDocumentBuf> {
        self.meters.time(Operation::Explain, self.store.explain(request)).await
    }

    async fn create_indexes(&self, request: CreateIndexes) -> Result<(u32, u32)> {
        self.meters.time(Operation::CreateIndexes, self.store.create_indexes(request)).await
    }

    async fn drop_indexes(&self, request: DropIndexes) -> Result<u32> {
        self.meters.time(Operation::DropIndexes, self.store.drop_indexes(request)).await
    }

    async fn list_indexes(&self, namespace: &Namespace) -> Result<Vec<IndexInfo>> {
        self.meters.time(Operation::ListIndexes, self.store.list_indexes(namespace)).await
    }

    async fn create_collection(&self, namespace: &Namespace, options: CollectionOptions) -> Result<()> {
        self.meters.time(Operation::CreateCollection, self.store.create_collection(namespace, options)).await
    }

    async fn modify_collection(&self, request: ModifyCollection) -> Result<RawDocumentBuf> {
        self.meters.time(Operation::ModifyCollection, self.store.modify_collection(request)).await
    }

    fn check_rename(&self, from: &Namespace, to: &Namespace) -> Result<()> {
        self.store.check_rename(from, to)
    }

    async fn rename_collection(&self, request: RenameCollection) -> Result<()> {
        self.meters.time(Operation::RenameCollection, self.store.rename_collection(request)).await
    }

    async fn drop_collection(&self, namespace: &Namespace) -> Result<bool> {
        self.meters.time(Operation::DropCollection, self.store.drop_collection(namespace)).await
    }

    async fn list_collections(&self, database: &str) -> Result<Vec<CollectionInfo>> {
        self.meters.time(Operation::ListCollections, self.store.list_collections(database)).await
    }

    async fn list_databases(&self) -> Result<Vec<String>> {
        self.meters.time(Operation::ListDatabases, self.store.list_databases()).await
    }

    async fn drop_database(&self, database: &str) -> Result<bool> {
        self.meters.time(Operation::DropDatabase, self.store.drop_database(database)).await
    }

    async fn collection_stats(&self, namespace: &Namespace) -> Result<CollectionStats> {
        self.meters.time(Operation::CollectionStats, self.store.collection_stats(namespace)).await
    }

    async fn check_collection(&self, namespace: &Namespace) -> Result<CollectionCheck> {
        self.store.check_collection(namespace).await
    }

    async fn flush(&self) -> Result<()> {
        self.meters.time(Operation::Flush, self.store.flush()).await
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
}
