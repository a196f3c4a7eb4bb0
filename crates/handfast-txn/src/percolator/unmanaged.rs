//! A store for programs that change documents without the engine. It refuses the engine's collections.
//!
//! A write that passes the engine by leaves the versions in a document (`_hf`) unchanged. A transaction that has read the document before
//! then commits over it, and the write is lost:
//!
//! ```text
//! transaction of the engine   read Ann 50                         commit Ann 40, shop 10
//! a write to the store                     Ann 50 - 30, Bob + 30                          80 in all, 50 before
//! ```
//!
//! So a program that changes single documents of such a store (the patterns of `handfast-patterns`) checks first ([`ensure_unmanaged`]), or
//! uses the store through [`Unmanaged`]. A collection is the engine's if the oracle exists, and the collection has a document or an index
//! with the field `_hf`. Reads are refused, too: of a locked document they may show an old version. Other collections of the same database
//! are not refused: a program may have its accounts in transactions, and its jobs without.
//!
//! Without an oracle the check is one find. With it, a collection without an index on `_hf` is scanned. The result is remembered: an engine
//! that uses the collection later is not noticed.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bson::{RawBson, RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_store::decorator::DelegatingStore;
use handfast_store::{
    Aggregate, AggregateSource, CollectionCheck, CollectionOptions, CollectionStats, Count, CreateIndexes, Cursor,
    Delete, DeleteOutcome, Distinct, DocumentStore, DropIndexes, Error as StoreError, Explain, Explained, Find,
    FindAndModify, FindAndModifyOutcome, IndexCounts, IndexInfo, Insert, InsertOutcome, ModifyCollection, Namespace,
    RenameCollection, Result as StoreResult, StoreExt, Update, UpdateOutcome,
};

use super::{DATABASE, ORACLE, own_indexes};

/// Refuses a collection of this store that the engine writes to.
///
/// # Errors
/// `IllegalOperation` (20) for such a collection.
pub async fn ensure_unmanaged<S: DocumentStore + ?Sized>(store: &S, namespace: &Namespace) -> StoreResult<()> {
    let oracle = Namespace::new(DATABASE, ORACLE)?;
    if store.find_one(&oracle, rawdoc! { "_id": ORACLE }).await?.is_none() {
        return Ok(());
    }
    match namespace.database() == DATABASE || is_managed(store, namespace).await? {
        true => Err(managed(namespace)),
        false => Ok(()),
    }
}

async fn is_managed<S: DocumentStore + ?Sized>(store: &S, namespace: &Namespace) -> StoreResult<bool> {
    let indexes = match store.list_indexes(namespace).await {
        Err(error) if error.code() == Code::NamespaceNotFound => return Ok(false),
        indexes => indexes?,
    };
    if indexes.iter().any(|index| own_indexes::is_own(&index.spec)) {
        return Ok(true);
    }
    Ok(store.find_one(namespace, rawdoc! { "_hf": { "$exists": true } }).await?.is_some())
}

fn managed(namespace: &Namespace) -> StoreError {
    let text = format!(
        "a Handfast in front of this store writes to {namespace} (it has its field or its indexes), and its transactions would not \
         notice what is written beside it: name that server (`handfast serve --store`), not the store"
    );
    StoreError::command(Code::IllegalOperation, text)
}

/// A store that refuses the engine's collections. See the module's documentation.
pub struct Unmanaged {
    store: Arc<dyn DocumentStore>,
    /// The collections that were checked.
    unmanaged: Mutex<HashSet<Namespace>>,
}

impl Unmanaged {
    /// Returns a decorator around a store.
    pub fn new(store: Arc<dyn DocumentStore>) -> Self {
        Unmanaged { store, unmanaged: Mutex::default() }
    }

    async fn check(&self, namespace: &Namespace) -> StoreResult<()> {
        let known = |collections: &HashSet<Namespace>| collections.contains(namespace);
        if known(&self.unmanaged.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(());
        }
        ensure_unmanaged(&*self.store, namespace).await?;
        self.unmanaged.lock().unwrap_or_else(PoisonError::into_inner).insert(namespace.clone());
        Ok(())
    }

    async fn check_source(&self, source: &AggregateSource) -> StoreResult<()> {
        match source {
            AggregateSource::Collection(namespace) => self.check(namespace).await,
            AggregateSource::Database(_) => Ok(()),
        }
    }
}

#[async_trait]
impl DelegatingStore for Unmanaged {
    type Inner = dyn DocumentStore;

    fn inner(&self) -> &Self::Inner {
        &*self.store
    }

    async fn insert(&self, request: Insert) -> StoreResult<InsertOutcome> {
        self.check(&request.namespace).await?;
        self.store.insert(request).await
    }

    async fn find(&self, request: Find) -> StoreResult<Box<dyn Cursor>> {
        self.check(&request.namespace).await?;
        self.store.find(request).await
    }

    async fn update(&self, request: Update) -> StoreResult<UpdateOutcome> {
        self.check(&request.namespace).await?;
        self.store.update(request).await
    }

    async fn find_and_modify(&self, request: FindAndModify) -> StoreResult<FindAndModifyOutcome> {
        self.check(&request.namespace).await?;
        self.store.find_and_modify(request).await
    }

    async fn delete(&self, request: Delete) -> StoreResult<DeleteOutcome> {
        self.check(&request.namespace).await?;
        self.store.delete(request).await
    }

    async fn aggregate(&self, request: Aggregate) -> StoreResult<Box<dyn Cursor>> {
        self.check_source(&request.source).await?;
        self.store.aggregate(request).await
    }

    async fn count(&self, request: Count) -> StoreResult<u64> {
        self.check(&request.namespace).await?;
        self.store.count(request).await
    }

    async fn distinct(&self, request: Distinct) -> StoreResult<Vec<RawBson>> {
        self.check(&request.namespace).await?;
        self.store.distinct(request).await
    }

    async fn explain(&self, request: Explain) -> StoreResult<RawDocumentBuf> {
        match &request.explained {
            Explained::Find(find) => self.check(&find.namespace).await?,
            Explained::Aggregate(aggregate) => self.check_source(&aggregate.source).await?,
        }
        self.store.explain(request).await
    }

    async fn create_indexes(&self, request: CreateIndexes) -> StoreResult<IndexCounts> {
        self.check(&request.namespace).await?;
        self.store.create_indexes(request).await
    }

    async fn drop_indexes(&self, request: DropIndexes) -> StoreResult<u32> {
        self.check(&request.namespace).await?;
        self.store.drop_indexes(request).await
    }

    async fn list_indexes(&self, namespace: &Namespace) -> StoreResult<Vec<IndexInfo>> {
        self.check(namespace).await?;
        self.store.list_indexes(namespace).await
    }

    async fn create_collection(&self, namespace: &Namespace, options: CollectionOptions) -> StoreResult<()> {
        self.check(namespace).await?;
        self.store.create_collection(namespace, options).await
    }

    async fn modify_collection(&self, request: ModifyCollection) -> StoreResult<RawDocumentBuf> {
        self.check(&request.namespace).await?;
        self.store.modify_collection(request).await
    }

    async fn rename_collection(&self, request: RenameCollection) -> StoreResult<()> {
        self.check(&request.from).await?;
        self.check(&request.to).await?;
        self.store.rename_collection(request).await
    }

    async fn drop_collection(&self, namespace: &Namespace) -> StoreResult<bool> {
        self.check(namespace).await?;
        self.store.drop_collection(namespace).await
    }

    async fn drop_database(&self, database: &str) -> StoreResult<bool> {
        for info in self.store.list_collections(database).await? {
            self.check(&Namespace::new(database, info.name)?).await?;
        }
        self.store.drop_database(database).await
    }

    async fn collection_stats(&self, namespace: &Namespace) -> StoreResult<CollectionStats> {
        self.check(namespace).await?;
        self.store.collection_stats(namespace).await
    }

    async fn check_collection(&self, namespace: &Namespace) -> StoreResult<CollectionCheck> {
        self.check(namespace).await?;
        self.store.check_collection(namespace).await
    }
}
