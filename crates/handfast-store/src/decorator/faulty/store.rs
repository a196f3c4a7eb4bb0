//! Each operation of the contract, through the plan of faults.

use std::sync::Arc;

use async_trait::async_trait;
use bson::{RawBson, RawBsonRef, RawDocumentBuf};

use super::{Faulty, Injector};
use crate::decorator::Operation;
use crate::*;

#[async_trait]
impl<S: DocumentStore + ?Sized> DocumentStore for Faulty<S> {
    fn name(&self) -> &'static str {
        self.store.name()
    }

    async fn insert(&self, request: Insert) -> Result<InsertOutcome> {
        self.run(Operation::Insert, move |store: Arc<S>| {
            let request = request.clone();
            Box::pin(async move { store.insert(request).await })
        })
        .await
    }

    async fn find(&self, request: Find) -> Result<Box<dyn Cursor>> {
        let cursor = self
            .run(Operation::Find, move |store: Arc<S>| {
                let request = request.clone();
                Box::pin(async move { store.find(request).await })
            })
            .await?;
        Ok(self.wrap(cursor))
    }

    async fn update(&self, request: Update) -> Result<UpdateOutcome> {
        self.run(Operation::Update, move |store: Arc<S>| {
            let request = request.clone();
            Box::pin(async move { store.update(request).await })
        })
        .await
    }

    async fn find_and_modify(&self, request: FindAndModify) -> Result<FindAndModifyOutcome> {
        self.run(Operation::FindAndModify, move |store: Arc<S>| {
            let request = request.clone();
            Box::pin(async move { store.find_and_modify(request).await })
        })
        .await
    }

    async fn delete(&self, request: Delete) -> Result<DeleteOutcome> {
        self.run(Operation::Delete, move |store: Arc<S>| {
            let request = request.clone();
            Box::pin(async move { store.delete(request).await })
        })
        .await
    }

    async fn aggregate(&self, request: Aggregate) -> Result<Box<dyn Cursor>> {
        let cursor = self
            .run(Operation::Aggregate, move |store: Arc<S>| {
                let request = request.clone();
                Box::pin(async move { store.aggregate(request).await })
            })
            .await?;
        Ok(self.wrap(cursor))
    }

    async fn count(&self, request: Count) -> Result<u64> {
        self.run(Operation::Count, move |store: Arc<S>| {
            let request = request.clone();
            Box::pin(async move { store.count(request).await })
        })
        .await
    }

    async fn distinct(&self, request: Distinct) -> Result<Vec<RawBson>> {
        self.run(Operation::Distinct, move |store: Arc<S>| {
            let request = request.clone();
            Box::pin(async move { store.distinct(request).await })
        })
        .await
    }

    async fn explain(&self, request: Explain) -> Result<RawDocumentBuf> {
        self.run(Operation::Explain, move |store: Arc<S>| {
            let request = request.clone();
            Box::pin(async move { store.explain(request).await })
        })
        .await
    }

    async fn create_indexes(&self, request: CreateIndexes) -> Result<(u32, u32)> {
        self.run(Operation::CreateIndexes, move |store: Arc<S>| {
            let request = request.clone();
            Box::pin(async move { store.create_indexes(request).await })
        })
        .await
    }

    async fn drop_indexes(&self, request: DropIndexes) -> Result<u32> {
        self.run(Operation::DropIndexes, move |store: Arc<S>| {
            let request = request.clone();
            Box::pin(async move { store.drop_indexes(request).await })
        })
        .await
    }

    async fn list_indexes(&self, namespace: &Namespace) -> Result<Vec<IndexInfo>> {
        let namespace = namespace.clone();
        self.run(Operation::ListIndexes, move |store: Arc<S>| {
            let namespace = namespace.clone();
            Box::pin(async move { store.list_indexes(&namespace).await })
        })
        .await
    }

    async fn create_collection(&self, namespace: &Namespace, options: CollectionOptions) -> Result<()> {
        let namespace = namespace.clone();
        self.run(Operation::CreateCollection, move |store: Arc<S>| {
            let namespace = namespace.clone();
            let options = options.clone();
            Box::pin(async move { store.create_collection(&namespace, options).await })
        })
        .await
    }

    async fn modify_collection(&self, request: ModifyCollection) -> Result<RawDocumentBuf> {
        self.run(Operation::ModifyCollection, move |store: Arc<S>| {
            let request = request.clone();
            Box::pin(async move { store.modify_collection(request).await })
        })
        .await
    }

    fn check_rename(&self, from: &Namespace, to: &Namespace) -> Result<()> {
        self.store.check_rename(from, to)
    }

    async fn rename_collection(&self, request: RenameCollection) -> Result<()> {
        self.run(Operation::RenameCollection, move |store: Arc<S>| {
            let request = request.clone();
            Box::pin(async move { store.rename_collection(request).await })
        })
        .await
    }

    async fn drop_collection(&self, namespace: &Namespace) -> Result<bool> {
        let namespace = namespace.clone();
        self.run(Operation::DropCollection, move |store: Arc<S>| {
            let namespace = namespace.clone();
            Box::pin(async move { store.drop_collection(&namespace).await })
        })
        .await
    }

    async fn list_collections(&self, database: &str) -> Result<Vec<CollectionInfo>> {
        let database = database.to_owned();
        self.run(Operation::ListCollections, move |store: Arc<S>| {
            let database = database.clone();
            Box::pin(async move { store.list_collections(&database).await })
        })
        .await
    }

    async fn list_databases(&self) -> Result<Vec<String>> {
        self.run(Operation::ListDatabases, |store: Arc<S>| Box::pin(async move { store.list_databases().await })).await
    }

    async fn drop_database(&self, database: &str) -> Result<bool> {
        let database = database.to_owned();
        self.run(Operation::DropDatabase, move |store: Arc<S>| {
            let database = database.clone();
            Box::pin(async move { store.drop_database(&database).await })
        })
        .await
    }

    async fn collection_stats(&self, namespace: &Namespace) -> Result<CollectionStats> {
        let namespace = namespace.clone();
        self.run(Operation::CollectionStats, move |store: Arc<S>| {
            let namespace = namespace.clone();
            Box::pin(async move { store.collection_stats(&namespace).await })
        })
        .await
    }

    async fn flush(&self) -> Result<()> {
        self.run(Operation::Flush, |store: Arc<S>| Box::pin(async move { store.flush().await })).await
    }
}

#[async_trait]
impl<S: AtomicStore + ?Sized> AtomicStore for Faulty<S> {
    async fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        let call = |store: Arc<S>| -> super::BoxFuture<_> { Box::pin(async move { store.snapshot().await }) };
        let snapshot = self.run(Operation::Snapshot, call).await?;
        Ok(Box::new(FaultySnapshot { snapshot, injector: Arc::clone(&self.injector) }))
    }

    async fn commit(&self, batch: AtomicBatch) -> Result<CommitTimestamp> {
        self.run(Operation::Commit, move |store: Arc<S>| {
            let batch = batch.clone();
            Box::pin(async move { store.commit(batch).await })
        })
        .await
    }
}

struct FaultySnapshot {
    snapshot: Box<dyn Snapshot>,
    injector: Arc<Injector>,
}

#[async_trait]
impl Snapshot for FaultySnapshot {
    fn timestamp(&self) -> CommitTimestamp {
        self.snapshot.timestamp()
    }

    async fn get(&self, namespace: &Namespace, id: RawBsonRef<'_>) -> Result<Option<RawDocumentBuf>> {
        self.injector.read(Operation::SnapshotGet, self.snapshot.get(namespace, id)).await
    }

    async fn find(&self, request: Find) -> Result<Box<dyn Cursor>> {
        let cursor = self.injector.read(Operation::SnapshotFind, self.snapshot.find(request)).await?;
        Ok(Box::new(FaultyCursor { cursor, injector: Arc::clone(&self.injector) }))
    }

    fn is_unchanged(&self, namespace: &Namespace, id: RawBsonRef<'_>) -> bool {
        self.snapshot.is_unchanged(namespace, id)
    }
}

pub(super) struct FaultyCursor {
    pub(super) cursor: Box<dyn Cursor>,
    pub(super) injector: Arc<Injector>,
}

#[async_trait]
impl Cursor for FaultyCursor {
    async fn next_page(&mut self, limit: BatchLimit) -> Result<Page> {
        self.injector.read(Operation::NextPage, self.cursor.next_page(limit)).await
    }
}
