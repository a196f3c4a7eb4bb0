//! Definitions of collections and indexes: checks them on a copy, then sends them to the server.

use std::sync::Arc;

use bson::RawDocumentBuf;
use handfast_mql::Code;
use handfast_store::{
    CollectionStats, CreateIndexes, DocumentStore, DropIndexes, Error, IndexCounts, IndexSelector, IndexSpec,
    ModifyCollection, Namespace, RenameCollection, Result,
};

use super::working_copy::WorkingCopy;
use super::{ClientSideStore, Inner};
use crate::needs;

impl ClientSideStore {
    /// Runs a definition while no write runs, and clears the cache of indexes before and after it.
    pub(super) async fn define<T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
        &self,
        define: impl FnOnce(Arc<Inner>) -> F + Send + 'static,
    ) -> Result<T> {
        let inner = Arc::clone(&self.inner);
        self.run_serially(async move {
            inner.forget_indexes();
            let result = define(Arc::clone(&inner)).await;
            inner.forget_indexes();
            result
        })
        .await
    }
}

impl Inner {
    pub(super) async fn create_indexes(&self, request: CreateIndexes) -> Result<IndexCounts> {
        let namespace = &request.namespace;
        let copy = self.copy_collection(namespace).await?;
        let before = specs(&copy, namespace).await?;
        let counts = copy.store.create_indexes(request.clone()).await?;
        let indexes: Vec<_> = specs(&copy, namespace)
            .await?
            .into_iter()
            .filter(|index| !before.contains(index) && !index.is_id())
            .collect();
        let new = CreateIndexes { namespace: namespace.clone(), indexes };
        needs::check(&new, &self.direct.server().capabilities)?;
        if new.indexes.is_empty() {
            self.direct.create_collection(namespace, handfast_store::CollectionOptions::default()).await?;
        } else {
            self.direct.create_indexes(new).await?;
        }
        Ok(counts)
    }

    pub(super) async fn drop_indexes(&self, request: DropIndexes) -> Result<u32> {
        let namespace = &request.namespace;
        let copy = self.copy_collection(namespace).await?;
        let before = specs(&copy, namespace).await?;
        let count = copy.store.drop_indexes(request.clone()).await?;
        let left = specs(&copy, namespace).await?;
        for index in before.into_iter().filter(|index| !left.contains(index)) {
            let selector = IndexSelector::Names(vec![index.name]);
            self.direct.drop_indexes(DropIndexes { namespace: namespace.clone(), selector }).await?;
        }
        Ok(count)
    }

    pub(super) async fn modify_collection(&self, request: ModifyCollection) -> Result<RawDocumentBuf> {
        let copy = self.copy_collection(&request.namespace).await?;
        let answer = copy.store.modify_collection(request.clone()).await?;
        // An index that the server can create and not change is found here, after the copy has accepted the change.
        needs::check(&request, &self.direct.server().capabilities)?;
        if request.index.is_some() {
            self.direct.modify_collection(request).await?;
        }
        Ok(answer)
    }

    pub(super) async fn rename_collection(&self, request: RenameCollection) -> Result<()> {
        if request.from == request.to {
            return Err(Error::command(Code::IllegalOperation, "can't rename a collection to itself"));
        }
        needs::check(&request, &self.direct.server().capabilities)?;
        self.direct.rename_collection(request).await
    }

    pub(super) async fn drop_collection(&self, namespace: &Namespace) -> Result<bool> {
        let infos = self.direct.list_collections(namespace.database()).await?;
        if !infos.iter().any(|info| info.name == namespace.collection()) {
            return Ok(false);
        }
        self.direct.drop_collection(namespace).await?;
        Ok(true)
    }

    /// Lists the databases that have a collection; a server may list others.
    pub(super) async fn list_databases(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for name in self.direct.list_databases().await? {
            if !self.direct.list_collections(&name).await?.is_empty() {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Returns counts and sizes of the documents; the server reports those of its own tables.
    pub(super) async fn collection_stats(&self, namespace: &Namespace) -> Result<CollectionStats> {
        let stats = self.copy_collection(namespace).await?.store.collection_stats(namespace).await?;
        if !stats.exists {
            return Ok(stats);
        }
        let storage_bytes = self.direct.collection_stats(namespace).await?.storage_bytes;
        Ok(CollectionStats { storage_bytes, ..stats })
    }
}

/// Returns the indexes in the copy; none if the collection does not exist.
async fn specs(copy: &WorkingCopy, namespace: &Namespace) -> Result<Vec<IndexSpec>> {
    match copy.store.list_indexes(namespace).await {
        Ok(infos) => Ok(infos.into_iter().map(|info| info.spec).collect()),
        Err(error) if error.code() == Code::NamespaceNotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
