//! Collections and indexes: looked at here, then defined on the server, in turn.

use std::sync::Arc;

use bson::RawDocumentBuf;
use handfast_mql::Code;
use handfast_store::{
    CollectionStats, CreateIndexes, DocumentStore, DropIndexes, Error, IndexSelector, IndexSpec, ModifyCollection,
    Namespace, RenameCollection, Result,
};

use super::image::Image;
use super::{Inner, JudgedStore};
use crate::needs;

impl JudgedStore {
    /// Runs a definition in turn; whatever becomes of it, the indexes are looked at anew.
    pub(super) async fn define<T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
        &self,
        define: impl FnOnce(Arc<Inner>) -> F + Send + 'static,
    ) -> Result<T> {
        let inner = Arc::clone(&self.inner);
        self.in_turn(async move {
            inner.forget_indexes();
            let result = define(Arc::clone(&inner)).await;
            inner.forget_indexes();
            result
        })
        .await
    }
}

impl Inner {
    pub(super) async fn create_indexes(&self, request: CreateIndexes) -> Result<(u32, u32)> {
        let namespace = &request.namespace;
        let image = self.whole(namespace).await?;
        let before = specs(&image, namespace).await?;
        let counts = image.store.create_indexes(request.clone()).await?;
        let indexes: Vec<_> = specs(&image, namespace)
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
        let image = self.whole(namespace).await?;
        let before = specs(&image, namespace).await?;
        let count = image.store.drop_indexes(request.clone()).await?;
        let left = specs(&image, namespace).await?;
        for index in before.into_iter().filter(|index| !left.contains(index)) {
            let selector = IndexSelector::Names(vec![index.name]);
            self.direct.drop_indexes(DropIndexes { namespace: namespace.clone(), selector }).await?;
        }
        Ok(count)
    }

    pub(super) async fn modify_collection(&self, request: ModifyCollection) -> Result<RawDocumentBuf> {
        let image = self.whole(&request.namespace).await?;
        let answer = image.store.modify_collection(request.clone()).await?;
        // A server that could have such an index, could change it: the image would have it.
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

    /// The databases that hold a collection; a server may list others.
    pub(super) async fn list_databases(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for name in self.direct.list_databases().await? {
            if !self.direct.list_collections(&name).await?.is_empty() {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Counts and bytes of the documents themselves; what the server says are those of its own tables.
    pub(super) async fn collection_stats(&self, namespace: &Namespace) -> Result<CollectionStats> {
        let stats = self.whole(namespace).await?.store.collection_stats(namespace).await?;
        if !stats.exists {
            return Ok(stats);
        }
        let storage_bytes = self.direct.collection_stats(namespace).await?.storage_bytes;
        Ok(CollectionStats { storage_bytes, ..stats })
    }
}

/// The indexes in the image; none of a collection that does not exist.
async fn specs(image: &Image, namespace: &Namespace) -> Result<Vec<IndexSpec>> {
    match image.store.list_indexes(namespace).await {
        Ok(infos) => Ok(infos.into_iter().map(|info| info.spec).collect()),
        Err(error) if error.code() == Code::NamespaceNotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
