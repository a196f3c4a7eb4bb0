//! The operations whose results have a check beyond the error codes.

use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use bson::{RawBson, RawBsonRef, RawDocumentBuf};
use handfast_mql::collation::compares_text;
use handfast_mql::{Collation, order};

use super::cursor::{CheckedCursor, Expected};
use super::outcome::{self, FindAndModifyShape, Shape};
use super::{Breaches, Checked, require};
use crate::decorator::{DelegatingStore, Operation};
use crate::validation::Validator;
use crate::view::ResolvedView;
use crate::{
    Aggregate, AtomicBatch, AtomicStore, CollectionInfo, CollectionStats, CommitTimestamp, Count, CreateIndexes,
    Cursor, Delete, DeleteOutcome, Distinct, DocumentStore, DropIndexes, Explain, Find, FindAndModify,
    FindAndModifyOutcome, IndexCounts, IndexInfo, Insert, InsertOutcome, Modification, Namespace, Result,
    ReturnDocument, Snapshot, Sources, Update, UpdateOutcome, UpdateStatement, index, insertion,
};

impl<S: DocumentStore> Checked<S> {
    fn checked_cursor(&self, cursor: Box<dyn Cursor>, expected: Expected) -> Box<dyn Cursor> {
        let breaches = Arc::clone(&self.breaches);
        Box::new(CheckedCursor { cursor, breaches, store: self.store.name(), expected })
    }
}

#[async_trait]
impl<S: DocumentStore> DelegatingStore for Checked<S> {
    type Inner = S;

    fn inner(&self) -> &S {
        &self.store
    }

    /// Checks the error codes of the operations that have no check of their own.
    #[allow(clippy::manual_async_fn, reason = "async_trait would make it another signature")]
    fn run<T: Send>(
        &self,
        operation: Operation,
        call: impl Future<Output = Result<T>> + Send,
    ) -> impl Future<Output = Result<T>> + Send {
        async move { self.check(operation, call.await, |_| Ok(())) }
    }

    async fn insert(&self, request: Insert) -> Result<InsertOutcome> {
        let (count, ordered) = (request.documents.len(), request.ordered);
        let result = self.store.insert(request).await;
        self.check(Operation::Insert, result, |answer| outcome::insert(count, ordered, answer))
    }

    async fn find(&self, request: Find) -> Result<Box<dyn Cursor>> {
        let expected = Expected::of_find(&request, &self.sources);
        let cursor = self.check(Operation::Find, self.store.find(request).await, |_| Ok(()))?;
        let expected = if cursor.depends_on_catalog() { expected.of_limit() } else { expected };
        Ok(self.checked_cursor(cursor, expected))
    }

    async fn update(&self, request: Update) -> Result<UpdateOutcome> {
        let shape = |statement: &UpdateStatement| Shape { multi: statement.multi, upsert: statement.upsert };
        let shapes: Vec<_> = request.statements.iter().map(shape).collect();
        let ordered = request.ordered;
        let result = self.store.update(request).await;
        self.check(Operation::Update, result, |answer| outcome::update(&shapes, ordered, answer))
    }

    async fn find_and_modify(&self, request: FindAndModify) -> Result<FindAndModifyOutcome> {
        let asked = match &request.modification {
            Modification::Remove => FindAndModifyShape { remove: true, upsert: false, after: false },
            Modification::Update { upsert, returns, .. } => {
                FindAndModifyShape { remove: false, upsert: *upsert, after: *returns == ReturnDocument::After }
            }
        };
        let result = self.store.find_and_modify(request).await;
        self.check(Operation::FindAndModify, result, |answer| outcome::find_and_modify(asked, answer))
    }

    async fn delete(&self, request: Delete) -> Result<DeleteOutcome> {
        let multi: Vec<_> = request.statements.iter().map(|statement| statement.multi).collect();
        let ordered = request.ordered;
        let result = self.store.delete(request).await;
        self.check(Operation::Delete, result, |answer| outcome::delete(&multi, ordered, answer))
    }

    async fn aggregate(&self, request: Aggregate) -> Result<Box<dyn Cursor>> {
        let cursor = self.check(Operation::Aggregate, self.store.aggregate(request).await, |_| Ok(()))?;
        Ok(self.checked_cursor(cursor, Expected::default()))
    }

    async fn count(&self, request: Count) -> Result<u64> {
        let limit = request.limit;
        let result = self.store.count(request).await;
        self.check(Operation::Count, result, |count| {
            require!(limit.is_none_or(|limit| *count <= limit), "{count} with a limit of {limit:?}");
            Ok(())
        })
    }

    async fn distinct(&self, request: Distinct) -> Result<Vec<RawBson>> {
        let may_have_default = request.collation.is_none();
        let collation = request.collation.as_deref().and_then(|given| Collation::parse(given).ok().flatten());
        let result = self.store.distinct(request).await;
        self.check(Operation::Distinct, result, |values| {
            for pair in values.windows(2) {
                let (one, next) = (pair[0].as_raw_bson_ref(), pair[1].as_raw_bson_ref());
                if may_have_default && compares_text(one) && compares_text(next) {
                    continue;
                }
                let order = order::compare_under(one, next, collation.as_ref());
                require!(order.is_lt(), "{:?} after {:?}", pair[1], pair[0]);
            }
            Ok(())
        })
    }

    async fn explain(&self, request: Explain) -> Result<RawDocumentBuf> {
        let result = self.store.explain(request).await;
        self.check(Operation::Explain, result, |shown| {
            require!(!shown.is_empty(), "an empty explanation");
            Ok(())
        })
    }

    async fn create_indexes(&self, request: CreateIndexes) -> Result<IndexCounts> {
        let wanted = request.indexes.len();
        let result = self.store.create_indexes(request).await;
        self.check(Operation::CreateIndexes, result, |IndexCounts { before, after }| {
            require!(before <= after, "{after} indexes where {before} were");
            require!((after - before) as usize <= wanted + 1, "{} more for {wanted} asked for", after - before);
            require!(*after >= 1 && *after as usize <= index::INDEXES_MAX, "{after} indexes");
            Ok(())
        })
    }

    async fn drop_indexes(&self, request: DropIndexes) -> Result<u32> {
        let result = self.store.drop_indexes(request).await;
        self.check(Operation::DropIndexes, result, |before| {
            require!(*before >= 1, "there was not even the index on _id");
            Ok(())
        })
    }

    async fn list_indexes(&self, namespace: &Namespace) -> Result<Vec<IndexInfo>> {
        let result = self.store.list_indexes(namespace).await;
        self.check(Operation::ListIndexes, result, |indexes| outcome::indexes(indexes))
    }

    async fn list_collections(&self, database: &str) -> Result<Vec<CollectionInfo>> {
        let result = self.store.list_collections(database).await;
        self.check(Operation::ListCollections, result, |infos| {
            outcome::names(infos.iter().map(|info| info.name.as_str()))
        })
    }

    async fn list_databases(&self) -> Result<Vec<String>> {
        let result = self.store.list_databases().await;
        self.check(Operation::ListDatabases, result, |names| outcome::names(names.iter().map(String::as_str)))
    }

    async fn collection_stats(&self, namespace: &Namespace) -> Result<CollectionStats> {
        let result = self.store.collection_stats(namespace).await;
        self.check(Operation::CollectionStats, result, outcome::stats)
    }
}

#[async_trait]
impl<S: AtomicStore> AtomicStore for Checked<S> {
    async fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        let snapshot = self.check(Operation::Snapshot, self.store.snapshot().await, |_| Ok(()))?;
        let (breaches, sources) = (Arc::clone(&self.breaches), self.sources.clone());
        Ok(Box::new(CheckedSnapshot { snapshot, breaches, sources, store: self.store.name() }))
    }

    async fn commit(&self, batch: AtomicBatch) -> Result<CommitTimestamp> {
        let (read_at, writes, ticket) = (batch.read_at, batch.writes.len(), batch.ticket);
        let result = self.store.commit(batch).await;
        self.check(Operation::Commit, result, |at| {
            let later = *at > read_at || (writes == 0 && *at >= read_at);
            // A batch whose ticket was used returns the timestamp of its first commit.
            require!(later || ticket.is_some(), "committed at {at:?}, read at {read_at:?}");
            Ok(())
        })
    }
}

struct CheckedSnapshot {
    snapshot: Box<dyn Snapshot>,
    breaches: Arc<Breaches>,
    sources: Sources,
    store: &'static str,
}

#[async_trait]
impl Snapshot for CheckedSnapshot {
    fn timestamp(&self) -> CommitTimestamp {
        self.snapshot.timestamp()
    }

    async fn get(&self, namespace: &Namespace, id: RawBsonRef<'_>) -> Result<Option<RawDocumentBuf>> {
        let result = self.snapshot.get(namespace, id).await;
        self.breaches.check(self.store, Operation::SnapshotGet, result, |document| {
            let Some(document) = document else { return Ok(()) };
            let found = insertion::id(document).map_err(|error| error.to_string())?;
            require!(order::compare(found, id).is_eq(), "_id {id:?} was asked for, {found:?} came");
            Ok(())
        })
    }

    async fn find(&self, request: Find) -> Result<Box<dyn Cursor>> {
        let expected = Expected::of_find(&request, &self.sources);
        let result = self.snapshot.find(request).await;
        let cursor = self.breaches.check(self.store, Operation::SnapshotFind, result, |_| Ok(()))?;
        let breaches = Arc::clone(&self.breaches);
        Ok(Box::new(CheckedCursor { cursor, breaches, store: self.store, expected }))
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
