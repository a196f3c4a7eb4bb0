//! Short forms of the contract's requests, for every store.

use async_trait::async_trait;
use bson::RawDocumentBuf;

use crate::{
    Aggregate, BatchLimit, CollectionOptions, Count, CreateIndexes, Cursor, Delete, DeleteStatement, DocumentStore,
    Find, IndexSpec, Insert, Namespace, Result, Update, UpdateOutcome, UpdateSpec, UpdateStatement, WriteError,
};

#[cfg(test)]
mod tests;

/// Short forms of requests for one statement, and finds that are read to their end. A [`WriteError`] of the outcome is returned
/// as the error of the call.
#[async_trait]
pub trait StoreExt: DocumentStore {
    /// Inserts one document, durably. A caller that may have to repeat the insert sets the `_id` before.
    ///
    /// # Errors
    /// `DuplicateKey` (11000), and the errors of [`insertion::prepare`](crate::insertion::prepare).
    async fn insert_one(&self, namespace: &Namespace, document: RawDocumentBuf) -> Result<()> {
        only(self.insert(Insert::new(namespace.clone(), vec![document])).await?.errors)
    }

    /// Returns all matching documents at once, for results that are known to be small.
    async fn find_all(&self, find: Find) -> Result<Vec<RawDocumentBuf>> {
        read_all(self.find(find).await?).await
    }

    /// Returns all documents of an aggregation at once, for results that are known to be small.
    async fn aggregate_all(&self, request: Aggregate) -> Result<Vec<RawDocumentBuf>> {
        read_all(self.aggregate(request).await?).await
    }

    /// Returns the first matching document.
    async fn find_one(&self, namespace: &Namespace, filter: RawDocumentBuf) -> Result<Option<RawDocumentBuf>> {
        let find = Find { limit: Some(1), ..Find::new(namespace.clone(), filter) };
        Ok(self.find_all(find).await?.into_iter().next())
    }

    /// Returns the options of a collection or view; the defaults if it does not exist.
    async fn collection_options(&self, namespace: &Namespace) -> Result<CollectionOptions> {
        let collections = self.list_collections(namespace.database()).await?;
        let info = collections.into_iter().find(|info| info.name == namespace.collection());
        Ok(info.map(|info| info.options).unwrap_or_default())
    }

    /// Changes the first matching document, durably.
    ///
    /// # Errors
    /// `DuplicateKey` (11000), and the errors of the language.
    async fn update_one(
        &self,
        namespace: &Namespace,
        filter: RawDocumentBuf,
        change: RawDocumentBuf,
    ) -> Result<UpdateOutcome> {
        let statement = UpdateStatement::one(filter, UpdateSpec::Document(change));
        run_update(self, namespace, statement).await
    }

    /// Changes all matching documents, each atomically, durably. After an error, the documents before the one that failed stay
    /// changed.
    async fn update_many(
        &self,
        namespace: &Namespace,
        filter: RawDocumentBuf,
        change: RawDocumentBuf,
    ) -> Result<UpdateOutcome> {
        let statement = UpdateStatement::one(filter, UpdateSpec::Document(change));
        run_update(self, namespace, UpdateStatement { multi: true, ..statement }).await
    }

    /// Changes the first matching document, or inserts one, durably.
    async fn upsert_one(
        &self,
        namespace: &Namespace,
        filter: RawDocumentBuf,
        change: RawDocumentBuf,
    ) -> Result<UpdateOutcome> {
        let statement = UpdateStatement::one(filter, UpdateSpec::Document(change));
        run_update(self, namespace, UpdateStatement { upsert: true, ..statement }).await
    }

    /// Deletes the first matching document, durably; returns whether there was one.
    async fn delete_one(&self, namespace: &Namespace, filter: RawDocumentBuf) -> Result<bool> {
        let statement = DeleteStatement { filter, multi: false, hint: None };
        let outcome = self.delete(Delete::new(namespace.clone(), vec![statement])).await?;
        only(outcome.errors).map(|()| outcome.deleted > 0)
    }

    /// Deletes all matching documents, each atomically, durably; returns how many.
    async fn delete_many(&self, namespace: &Namespace, filter: RawDocumentBuf) -> Result<u64> {
        let statement = DeleteStatement { filter, multi: true, hint: None };
        let outcome = self.delete(Delete::new(namespace.clone(), vec![statement])).await?;
        only(outcome.errors).map(|()| outcome.deleted)
    }

    /// Counts the matching documents.
    async fn count_matching(&self, namespace: &Namespace, filter: RawDocumentBuf) -> Result<u64> {
        self.count(Count::new(namespace.clone(), filter)).await
    }

    /// Creates an index.
    async fn create_index(&self, namespace: &Namespace, index: IndexSpec) -> Result<()> {
        self.create_indexes(CreateIndexes { namespace: namespace.clone(), indexes: vec![index] }).await.map(|_| ())
    }
}

impl<S: DocumentStore + ?Sized> StoreExt for S {}

async fn read_all(mut cursor: Box<dyn Cursor>) -> Result<Vec<RawDocumentBuf>> {
    let mut documents = Vec::new();
    loop {
        let page = cursor.next_page(BatchLimit::REPLY).await?;
        documents.extend(page.documents);
        if page.exhausted {
            return Ok(documents);
        }
    }
}

async fn run_update<S: DocumentStore + ?Sized>(
    store: &S,
    namespace: &Namespace,
    statement: UpdateStatement,
) -> Result<UpdateOutcome> {
    let mut outcome = store.update(Update::new(namespace.clone(), vec![statement])).await?;
    only(std::mem::take(&mut outcome.errors)).map(|()| outcome)
}

/// Returns the error of the only statement, if it failed.
fn only(errors: Vec<WriteError>) -> Result<()> {
    match errors.into_iter().next() {
        Some(refused) => Err(refused.error),
        None => Ok(()),
    }
}
