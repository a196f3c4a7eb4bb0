//! The implementation of `DocumentStore`: turns each request into a command, and each answer into an outcome.

use async_trait::async_trait;
use bson::raw::cstr;
use bson::{RawBson, RawDocument, RawDocumentBuf};
use handfast_mql::{Code, Collation, order};
use handfast_store::page::IteratorCursor;
use handfast_store::{
    Aggregate, AggregateSource, CollectionInfo, CollectionOptions, CollectionStats, Count, CreateIndexes, Cursor,
    Delete, DeleteOutcome, Distinct, DocumentStore, DropIndexes, Explain, Explained, Find, FindAndModify,
    FindAndModifyOutcome, IndexCounts, IndexInfo, Insert, InsertOutcome, ModifyCollection, Namespace, RenameCollection,
    Result, Update, UpdateOutcome,
};

use super::DirectStore;
use crate::command;
use crate::error::{Effect, incomplete};
use crate::namespace_mapping::SYSTEM_DATABASES;
use crate::needs;
use crate::remote::ReplyWait;
use crate::reply;

#[async_trait]
impl DocumentStore for DirectStore {
    fn name(&self) -> &'static str {
        "mongodb"
    }

    async fn insert(&self, request: Insert) -> Result<InsertOutcome> {
        self.run_insert(request, |error, _| error).await
    }

    async fn find(&self, request: Find) -> Result<Box<dyn Cursor>> {
        needs::check(&request, &self.server.capabilities)?;
        let command = self.remote.reading(command::find(&request));
        let database = request.namespace.database();
        let cursor = self.remote.open(database, command, Effect::Nothing, ReplyWait::Limited).await?;
        if request.limit == Some(0) {
            return Ok(Box::new(IteratorCursor::new(std::iter::empty())));
        }
        Ok(Box::new(cursor))
    }

    async fn update(&self, request: Update) -> Result<UpdateOutcome> {
        self.run_update(request).await
    }

    async fn find_and_modify(&self, request: FindAndModify) -> Result<FindAndModifyOutcome> {
        self.run_find_and_modify(request).await
    }

    async fn delete(&self, request: Delete) -> Result<DeleteOutcome> {
        self.run_delete(request).await
    }

    async fn aggregate(&self, request: Aggregate) -> Result<Box<dyn Cursor>> {
        needs::check(&request, &self.server.capabilities)?;
        let (database, writes) = (database_of(&request.source), writes(&request.pipeline));
        let mut command = self.remote.reading(command::aggregate(&request));
        let mut effect = Effect::Nothing;
        if writes {
            command = command.put(cstr!("writeConcern"), self.remote.concerns.write(request.durability));
            effect = Effect::Several;
        }
        let cursor = self.remote.open(database, command, effect, ReplyWait::Unlimited).await?;
        Ok(Box::new(cursor))
    }

    async fn count(&self, request: Count) -> Result<u64> {
        needs::check(&request, &self.server.capabilities)?;
        let command = self.remote.reading(command::count(&request));
        let reply = self.remote.read(request.namespace.database(), command, ReplyWait::Limited).await?;
        let counted = reply::count(&reply, "n").ok_or_else(|| incomplete("there is no n", Effect::Nothing))?;
        Ok(if request.limit == Some(0) { 0 } else { counted })
    }

    async fn distinct(&self, request: Distinct) -> Result<Vec<RawBson>> {
        needs::check(&request, &self.server.capabilities)?;
        let collation = request.collation.as_deref().map(Collation::parse).transpose()?.flatten();
        let command = self.remote.reading(command::distinct(&request));
        let reply = self.remote.read(request.namespace.database(), command, ReplyWait::Limited).await?;
        let values = reply.get_array("values").map_err(|_| incomplete("there are no values", Effect::Nothing))?;
        let mut values: Vec<RawBson> = values.into_iter().flatten().map(RawBson::from).collect();
        let order = |a: &RawBson, b: &RawBson| {
            order::compare_under(a.as_raw_bson_ref(), b.as_raw_bson_ref(), collation.as_ref())
        };
        values.sort_by(&order);
        values.dedup_by(|a, b| order(a, b).is_eq());
        Ok(values)
    }

    async fn explain(&self, request: Explain) -> Result<RawDocumentBuf> {
        let database = match &request.explained {
            Explained::Find(find) => find.namespace.database(),
            Explained::Aggregate(aggregate) => database_of(&aggregate.source),
        };
        self.remote.read(database, command::explain(&request), ReplyWait::Unlimited).await
    }

    async fn create_indexes(&self, request: CreateIndexes) -> Result<IndexCounts> {
        needs::check(&request, &self.server.capabilities)?;
        let reply = self.remote.define(request.namespace.database(), command::create_indexes(&request)).await?;
        let field = |name| {
            let count = reply::count(&reply, name).and_then(|count| u32::try_from(count).ok());
            count.ok_or_else(|| incomplete(&format!("there is no {name}"), Effect::Several))
        };
        Ok(IndexCounts { before: field("numIndexesBefore")?, after: field("numIndexesAfter")? })
    }

    async fn drop_indexes(&self, request: DropIndexes) -> Result<u32> {
        let reply = self.remote.define(request.namespace.database(), command::drop_indexes(&request)).await?;
        let count = reply::count(&reply, "nIndexesWas").and_then(|count| u32::try_from(count).ok());
        count.ok_or_else(|| incomplete("there is no nIndexesWas", Effect::Several))
    }

    async fn list_indexes(&self, namespace: &Namespace) -> Result<Vec<IndexInfo>> {
        let command = command::list_indexes(namespace);
        let cursor = self.remote.open(namespace.database(), command, Effect::Nothing, ReplyWait::Limited).await?;
        let shown = cursor.drain().await?;
        shown.iter().map(|index| Ok(IndexInfo { spec: reply::index(index)? })).collect()
    }

    async fn create_collection(&self, namespace: &Namespace, options: CollectionOptions) -> Result<()> {
        options.refuse_any()?;
        match self.remote.define(namespace.database(), command::create(namespace)).await {
            Ok(_) => Ok(()),
            Err(error) if error.code() == Code::NamespaceExists => {
                // No options are known, so that those of one that exists are the same.
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    async fn modify_collection(&self, request: ModifyCollection) -> Result<RawDocumentBuf> {
        request.validator.refuse_any()?;
        request.view.refuse_any()?;
        needs::check(&request, &self.server.capabilities)?;
        self.remote.define(request.namespace.database(), command::modify_collection(&request)).await
    }

    async fn rename_collection(&self, request: RenameCollection) -> Result<()> {
        needs::check(&request, &self.server.capabilities)?;
        self.remote.define("admin", command::rename(&request)).await.map(|_| ())
    }

    async fn drop_collection(&self, namespace: &Namespace) -> Result<bool> {
        match self.remote.define(namespace.database(), command::drop(namespace)).await {
            // Newer servers find nothing wrong with dropping what is not there, but do not name it.
            Ok(reply) => Ok(reply.get_str("ns").is_ok()),
            Err(error) if error.code() == Code::NamespaceNotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn list_collections(&self, database: &str) -> Result<Vec<CollectionInfo>> {
        let command = command::list_collections();
        let cursor = self.remote.open(database, command, Effect::Nothing, ReplyWait::Limited).await?;
        let mut infos: Vec<_> = cursor.drain().await?.iter().filter_map(|shown| collection(shown)).collect();
        infos.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(infos)
    }

    async fn list_databases(&self) -> Result<Vec<String>> {
        let reply = self.remote.read("admin", command::list_databases(), ReplyWait::Limited).await?;
        let databases =
            reply.get_array("databases").map_err(|_| incomplete("there are no databases", Effect::Nothing))?;
        let names = databases.into_iter().flatten().filter_map(|shown| shown.as_document()?.get_str("name").ok());
        let mut names: Vec<String> = names.filter(|name| !SYSTEM_DATABASES.contains(name)).map(str::to_owned).collect();
        names.sort();
        Ok(names)
    }

    async fn drop_database(&self, database: &str) -> Result<bool> {
        let reply = self.remote.define(database, command::drop_database()).await?;
        Ok(reply.get_str("dropped").is_ok())
    }

    async fn collection_stats(&self, namespace: &Namespace) -> Result<CollectionStats> {
        let reply = self.remote.read(namespace.database(), command::stats(namespace), ReplyWait::Limited).await?;
        Ok(reply::stats(&reply))
    }

    async fn flush(&self) -> Result<()> {
        self.remote.flush().await
    }
}

fn database_of(source: &AggregateSource) -> &str {
    match source {
        AggregateSource::Collection(namespace) => namespace.database(),
        AggregateSource::Database(database) => database,
    }
}

/// Returns whether a pipeline ends with a stage that writes.
fn writes(pipeline: &[RawDocumentBuf]) -> bool {
    let stage = pipeline.last().and_then(|stage| stage.iter().next()?.ok());
    stage.is_some_and(|(name, _)| ["$out", "$merge"].contains(&name.as_str()))
}

/// Reads a collection of `listCollections`; returns `None` for views and collections of the server.
fn collection(shown: &RawDocument) -> Option<CollectionInfo> {
    let name = shown.get_str("name").ok()?;
    let is_plain = shown.get_str("type").is_ok_and(|kind| kind == "collection");
    if !is_plain || name.starts_with("system.") {
        return None;
    }
    let uuid = shown.get_document("info").ok().and_then(|info| info.get_binary("uuid").ok());
    let uuid = uuid.and_then(|uuid| uuid.bytes.try_into().ok()).unwrap_or_default();
    Some(CollectionInfo { name: name.to_owned(), options: CollectionOptions::default(), uuid })
}
