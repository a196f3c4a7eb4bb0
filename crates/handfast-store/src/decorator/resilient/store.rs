//! Each operation of the contract, and what a second try of it needs.

use std::sync::Arc;

use async_trait::async_trait;
use bson::{RawBson, RawDocumentBuf};

use super::cursor::{Opening, ResilientCursor};
use super::repeat::{self, Repeat};
use super::{Resilient, broken_off, is_repeated_by_caller};
use crate::decorator::Operation;
use crate::*;

#[async_trait]
impl<S: DocumentStore + ?Sized> DocumentStore for Resilient<S> {
    fn name(&self) -> &'static str {
        self.store.name()
    }

    async fn insert(&self, request: Insert) -> Result<InsertOutcome> {
        if request.ticket.is_some() || is_repeated_by_caller() {
            return self.always(Operation::Insert, || self.store.insert(request.clone())).await;
        }
        self.insert_twice(request).await
    }

    async fn find(&self, request: Find) -> Result<Box<dyn Cursor>> {
        self.open(Operation::Find, Opening::Find(request)).await
    }

    async fn update(&self, request: Update) -> Result<UpdateOutcome> {
        self.run(
            Operation::Update,
            || self.store.update(request.clone()),
            |outcome| broken_off(&outcome.errors),
            || self.judge(&request.namespace, |is_unique| repeat::of_update(&request, is_unique)),
            |outcome| outcome.matched > 0 || !outcome.upserted.is_empty(),
        )
        .await
    }

    async fn find_and_modify(&self, request: FindAndModify) -> Result<FindAndModifyOutcome> {
        self.run(
            Operation::FindAndModify,
            || self.store.find_and_modify(request.clone()),
            |_| None,
            || self.judge(&request.namespace, |is_unique| repeat::of_find_and_modify(&request, is_unique)),
            |outcome| outcome.matched || outcome.upserted.is_some(),
        )
        .await
    }

    async fn delete(&self, request: Delete) -> Result<DeleteOutcome> {
        self.run(
            Operation::Delete,
            || self.store.delete(request.clone()),
            |outcome| broken_off(&outcome.errors),
            || self.judge(&request.namespace, |is_unique| repeat::of_delete(&request, is_unique)),
            |outcome| outcome.deleted > 0,
        )
        .await
    }

    async fn aggregate(&self, request: Aggregate) -> Result<Box<dyn Cursor>> {
        if repeat::of_aggregate(&request) == Repeat::Never {
            return self.unless_applied(Operation::Aggregate, || self.store.aggregate(request.clone())).await;
        }
        self.open(Operation::Aggregate, Opening::Aggregate(request)).await
    }

    async fn count(&self, request: Count) -> Result<u64> {
        self.always(Operation::Count, || self.store.count(request.clone())).await
    }

    async fn distinct(&self, request: Distinct) -> Result<Vec<RawBson>> {
        self.always(Operation::Distinct, || self.store.distinct(request.clone())).await
    }

    async fn explain(&self, request: Explain) -> Result<RawDocumentBuf> {
        self.always(Operation::Explain, || self.store.explain(request.clone())).await
    }

    async fn create_indexes(&self, request: CreateIndexes) -> Result<(u32, u32)> {
        self.always(Operation::CreateIndexes, || self.store.create_indexes(request.clone())).await
    }

    async fn drop_indexes(&self, request: DropIndexes) -> Result<u32> {
        self.unless_applied(Operation::DropIndexes, || self.store.drop_indexes(request.clone())).await
    }

    async fn list_indexes(&self, namespace: &Namespace) -> Result<Vec<IndexInfo>> {
        self.always(Operation::ListIndexes, || self.store.list_indexes(namespace)).await
    }

    async fn create_collection(&self, namespace: &Namespace, options: CollectionOptions) -> Result<()> {
        self.always(Operation::CreateCollection, || self.store.create_collection(namespace, options.clone())).await
    }

    async fn modify_collection(&self, request: ModifyCollection) -> Result<RawDocumentBuf> {
        self.always(Operation::ModifyCollection, || self.store.modify_collection(request.clone())).await
    }

    fn check_rename(&self, from: &Namespace, to: &Namespace) -> Result<()> {
        self.store.check_rename(from, to)
    }

    async fn rename_collection(&self, request: RenameCollection) -> Result<()> {
        self.unless_applied(Operation::RenameCollection, || self.store.rename_collection(request.clone())).await
    }

    async fn drop_collection(&self, namespace: &Namespace) -> Result<bool> {
        self.unless_applied(Operation::DropCollection, || self.store.drop_collection(namespace)).await
    }

    async fn list_collections(&self, database: &str) -> Result<Vec<CollectionInfo>> {
        self.always(Operation::ListCollections, || self.store.list_collections(database)).await
    }

    async fn list_databases(&self) -> Result<Vec<String>> {
        self.always(Operation::ListDatabases, || self.store.list_databases()).await
    }

    async fn drop_database(&self, database: &str) -> Result<bool> {
        self.unless_applied(Operation::DropDatabase, || self.store.drop_database(database)).await
    }

    async fn collection_stats(&self, namespace: &Namespace) -> Result<CollectionStats> {
        self.always(Operation::CollectionStats, || self.store.collection_stats(namespace)).await
    }

    async fn flush(&self) -> Result<()> {
        self.always(Operation::Flush, || self.store.flush()).await
    }
}

impl<S: DocumentStore + ?Sized> Resilient<S> {
    async fn open(&self, operation: Operation, opening: Opening) -> Result<Box<dyn Cursor>> {
        let cursor = self.always(operation, || opening.open(&*self.store)).await?;
        Ok(Box::new(ResilientCursor { store: Arc::clone(&self.store), opening, cursor, settled: false }))
    }
}
