//! The implementation of `DocumentStore` with mapped namespaces.

use async_trait::async_trait;
use bson::{RawBson, RawDocumentBuf};
use handfast_store::{
    Aggregate, AggregateSource, CollectionInfo, CollectionOptions, CollectionStats, Count, CreateIndexes, Cursor,
    Delete, DeleteOutcome, Distinct, DocumentStore, DropIndexes, Explain, Explained, Find, FindAndModify,
    FindAndModifyOutcome, IndexCounts, IndexInfo, Insert, InsertOutcome, ModifyCollection, Namespace, RenameCollection,
    Result, Update, UpdateOutcome,
};

use super::{HANDFAST_DATABASE, NamespaceMapping, is_system_database, mapped};

fn mapped_source(source: AggregateSource) -> Result<AggregateSource> {
    Ok(match source {
        AggregateSource::Collection(namespace) => AggregateSource::Collection(mapped(namespace)?),
        AggregateSource::Database(database) if is_system_database(&database) => {
            AggregateSource::Database(HANDFAST_DATABASE.to_owned())
        }
        other => other,
    })
}

fn mapped_explained(explained: Explained) -> Result<Explained> {
    Ok(match explained {
        Explained::Find(find) => Explained::Find(Find { namespace: mapped(find.namespace)?, ..find }),
        Explained::Aggregate(aggregate) => {
            Explained::Aggregate(Aggregate { source: mapped_source(aggregate.source)?, ..aggregate })
        }
    })
}

#[async_trait]
impl<S: DocumentStore> DocumentStore for NamespaceMapping<S> {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    async fn insert(&self, request: Insert) -> Result<InsertOutcome> {
        self.0.insert(Insert { namespace: mapped(request.namespace)?, ..request }).await
    }

    async fn find(&self, request: Find) -> Result<Box<dyn Cursor>> {
        self.0.find(Find { namespace: mapped(request.namespace)?, ..request }).await
    }

    async fn update(&self, request: Update) -> Result<UpdateOutcome> {
        self.0.update(Update { namespace: mapped(request.namespace)?, ..request }).await
    }

    async fn find_and_modify(&self, request: FindAndModify) -> Result<FindAndModifyOutcome> {
        self.0.find_and_modify(FindAndModify { namespace: mapped(request.namespace)?, ..request }).await
    }

    async fn delete(&self, request: Delete) -> Result<DeleteOutcome> {
        self.0.delete(Delete { namespace: mapped(request.namespace)?, ..request }).await
    }

    async fn aggregate(&self, request: Aggregate) -> Result<Box<dyn Cursor>> {
        self.0.aggregate(Aggregate { source: mapped_source(request.source)?, ..request }).await
    }

    async fn count(&self, request: Count) -> Result<u64> {
        self.0.count(Count { namespace: mapped(request.namespace)?, ..request }).await
    }

    async fn distinct(&self, request: Distinct) -> Result<Vec<RawBson>> {
        self.0.distinct(Distinct { namespace: mapped(request.namespace)?, ..request }).await
    }

    async fn explain(&self, request: Explain) -> Result<RawDocumentBuf> {
        self.0.explain(Explain { explained: mapped_explained(request.explained)?, ..request }).await
    }

    async fn create_indexes(&self, request: CreateIndexes) -> Result<IndexCounts> {
        self.0.create_indexes(CreateIndexes { namespace: mapped(request.namespace)?, ..request }).await
    }

    async fn drop_indexes(&self, request: DropIndexes) -> Result<u32> {
        self.0.drop_indexes(DropIndexes { namespace: mapped(request.namespace)?, ..request }).await
    }

    async fn list_indexes(&self, namespace: &Namespace) -> Result<Vec<IndexInfo>> {
        self.0.list_indexes(&mapped(namespace.clone())?).await
    }

    async fn create_collection(&self, namespace: &Namespace, options: CollectionOptions) -> Result<()> {
        self.0.create_collection(&mapped(namespace.clone())?, options).await
    }

    async fn modify_collection(&self, request: ModifyCollection) -> Result<RawDocumentBuf> {
        self.0.modify_collection(ModifyCollection { namespace: mapped(request.namespace)?, ..request }).await
    }

    async fn rename_collection(&self, request: RenameCollection) -> Result<()> {
        let (from, to) = (mapped(request.from)?, mapped(request.to)?);
        self.0.rename_collection(RenameCollection { from, to, ..request }).await
    }

    async fn drop_collection(&self, namespace: &Namespace) -> Result<bool> {
        self.0.drop_collection(&mapped(namespace.clone())?).await
    }

    async fn list_collections(&self, database: &str) -> Result<Vec<CollectionInfo>> {
        self.list(database).await
    }

    async fn list_databases(&self) -> Result<Vec<String>> {
        self.databases().await
    }

    async fn drop_database(&self, database: &str) -> Result<bool> {
        self.drop_database_mapped(database).await
    }

    async fn collection_stats(&self, namespace: &Namespace) -> Result<CollectionStats> {
        self.0.collection_stats(&mapped(namespace.clone())?).await
    }

    async fn flush(&self) -> Result<()> {
        self.0.flush().await
    }
}
