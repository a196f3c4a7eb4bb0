//! The contract on several stores.

use std::sync::Arc;

use async_trait::async_trait;
use bson::{RawBson, RawDocumentBuf};
use handfast_mql::collation::is_named;
use handfast_mql::pipeline::Pipeline;
use handfast_mql::{Code, CompileOptions};

use super::Routed;
use crate::{
    Aggregate, AggregateSource, CollectionCheck, CollectionInfo, CollectionOptions, CollectionStats, Count,
    CreateIndexes, Cursor, Delete, DeleteOutcome, Distinct, DocumentStore, DropIndexes, Error, Explain, Explained,
    Find, FindAndModify, FindAndModifyOutcome, IndexCounts, IndexInfo, Insert, InsertOutcome, ModifyCollection,
    ModifyView, Namespace, RenameCollection, Result, StoreExt, Ticket, Update, UpdateOutcome, ViewDefinition,
    aggregation, default_collation, view,
};

/// Refuses a request with a ticket, as no part can record it in the same step.
fn refuse_ticket(ticket: Option<Ticket>) -> Result<()> {
    let text = "stores that are atomic one document at a time keep no tickets: a transaction can";
    ticket.map_or(Ok(()), |_| Err(Error::command(Code::CommandNotSupported, text)))
}

/// Returns whether a pipeline reads and writes no other collection than its source.
fn is_of_one_collection(request: &Aggregate) -> Result<bool> {
    let options = CompileOptions::with_variables(&request.variables)?;
    Ok(Pipeline::compile(&request.pipeline, &options)?.is_pure())
}

impl Routed {
    /// Refuses a view that reads collections of another part than its own, which would find nothing.
    fn check_view(&self, namespace: &Namespace, definition: &ViewDefinition) -> Result<()> {
        let part = self.shared.routing.part(namespace);
        let read = view::namespaces_read(namespace.database(), definition)?;
        match read.iter().find(|read| self.shared.routing.part(read) != part) {
            None => Ok(()),
            Some(read) => {
                let text = format!("the view {namespace} cannot read {read}, which is in another store");
                Err(Error::command(Code::NotImplemented, text))
            }
        }
    }

    /// Returns an aggregation under the collation of the collection or view that it starts from. Stages that run here see no catalog.
    async fn under_default_collation(&self, request: Aggregate) -> Result<Aggregate> {
        let AggregateSource::Collection(namespace) = &request.source else { return Ok(request) };
        if is_named(&request.variables) {
            return Ok(request);
        }
        let CollectionOptions { view, collation, .. } = self.of(namespace).collection_options(namespace).await?;
        let collation = view.map_or(collation, |view| view.collation);
        let variables = default_collation::with_default(request.variables, collation.as_ref());
        Ok(Aggregate { variables, ..request })
    }

    /// Returns the store that can run a whole pipeline, if there is one.
    fn of_pipeline(&self, request: &Aggregate) -> Result<Option<&Arc<dyn DocumentStore>>> {
        match &request.source {
            AggregateSource::Collection(namespace) if is_of_one_collection(request)? => Ok(Some(self.of(namespace))),
            AggregateSource::Collection(_) | AggregateSource::Database(_) => Ok(None),
        }
    }
}

#[async_trait]
impl DocumentStore for Routed {
    fn name(&self) -> &'static str {
        "routed"
    }

    async fn insert(&self, request: Insert) -> Result<InsertOutcome> {
        refuse_ticket(request.ticket)?;
        self.of(&request.namespace).insert(request).await
    }

    async fn find(&self, request: Find) -> Result<Box<dyn Cursor>> {
        self.of(&request.namespace).find(request).await
    }

    async fn update(&self, request: Update) -> Result<UpdateOutcome> {
        refuse_ticket(request.ticket)?;
        self.of(&request.namespace).update(request).await
    }

    async fn find_and_modify(&self, request: FindAndModify) -> Result<FindAndModifyOutcome> {
        refuse_ticket(request.ticket)?;
        self.of(&request.namespace).find_and_modify(request).await
    }

    async fn delete(&self, request: Delete) -> Result<DeleteOutcome> {
        refuse_ticket(request.ticket)?;
        self.of(&request.namespace).delete(request).await
    }

    async fn aggregate(&self, request: Aggregate) -> Result<Box<dyn Cursor>> {
        match self.of_pipeline(&request)? {
            Some(part) => part.aggregate(request).await,
            None => {
                let request = self.under_default_collation(request).await?;
                aggregation::open(Arc::new(self.clone()), &self.shared.sources, request).await
            }
        }
    }

    async fn count(&self, request: Count) -> Result<u64> {
        self.of(&request.namespace).count(request).await
    }

    async fn distinct(&self, request: Distinct) -> Result<Vec<RawBson>> {
        self.of(&request.namespace).distinct(request).await
    }

    async fn explain(&self, request: Explain) -> Result<RawDocumentBuf> {
        let Explain { explained, verbosity } = request;
        match explained {
            Explained::Find(find) => {
                let part = self.of(&find.namespace);
                part.explain(Explain { explained: Explained::Find(find), verbosity }).await
            }
            Explained::Aggregate(aggregate) => match self.of_pipeline(&aggregate)? {
                Some(part) => part.explain(Explain { explained: Explained::Aggregate(aggregate), verbosity }).await,
                None => {
                    let aggregate = self.under_default_collation(aggregate).await?;
                    aggregation::explain(self, aggregate, verbosity).await
                }
            },
        }
    }

    async fn create_indexes(&self, request: CreateIndexes) -> Result<IndexCounts> {
        self.of(&request.namespace).create_indexes(request).await
    }

    async fn drop_indexes(&self, request: DropIndexes) -> Result<u32> {
        self.of(&request.namespace).drop_indexes(request).await
    }

    async fn list_indexes(&self, namespace: &Namespace) -> Result<Vec<IndexInfo>> {
        self.of(namespace).list_indexes(namespace).await
    }

    async fn create_collection(&self, namespace: &Namespace, options: CollectionOptions) -> Result<()> {
        if let Some(definition) = &options.view {
            self.check_view(namespace, definition)?;
        }
        self.of(namespace).create_collection(namespace, options).await
    }

    async fn modify_collection(&self, request: ModifyCollection) -> Result<RawDocumentBuf> {
        let ModifyView { on, pipeline } = request.view.clone();
        let on = on.unwrap_or_else(|| request.namespace.collection().to_owned());
        let definition = ViewDefinition { on, pipeline: pipeline.unwrap_or_default(), collation: None };
        self.check_view(&request.namespace, &definition)?;
        self.of(&request.namespace).modify_collection(request).await
    }

    async fn rename_collection(&self, request: RenameCollection) -> Result<()> {
        self.shared.routing.check_rename(&request.from, &request.to)?;
        self.of(&request.from).rename_collection(request).await
    }

    async fn drop_collection(&self, namespace: &Namespace) -> Result<bool> {
        self.of(namespace).drop_collection(namespace).await
    }

    async fn list_collections(&self, database: &str) -> Result<Vec<CollectionInfo>> {
        let mut all = Vec::new();
        for part in self.shared.routing.parts(database) {
            let infos = self.shared.at(part).list_collections(database).await?;
            all.extend(infos.into_iter().filter(|info| self.shared.is_here(part, database, &info.name)));
        }
        all.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(all)
    }

    async fn list_databases(&self) -> Result<Vec<String>> {
        let mut all = Vec::new();
        for (part, store) in self.shared.stores.iter().enumerate() {
            for database in store.list_databases().await? {
                if self.shared.has_any(part, &database).await? {
                    all.push(database);
                }
            }
        }
        all.sort();
        all.dedup();
        Ok(all)
    }

    async fn drop_database(&self, database: &str) -> Result<bool> {
        let mut any = false;
        for part in self.shared.routing.parts(database) {
            let dropped = self.shared.at(part).drop_database(database).await;
            any |= dropped.map_err(|error| if any { error.in_doubt() } else { error })?;
        }
        Ok(any)
    }

    async fn collection_stats(&self, namespace: &Namespace) -> Result<CollectionStats> {
        self.of(namespace).collection_stats(namespace).await
    }

    async fn check_collection(&self, namespace: &Namespace) -> Result<CollectionCheck> {
        self.of(namespace).check_collection(namespace).await
    }

    /// Flushes all parts, also after one has failed.
    async fn flush(&self) -> Result<()> {
        let mut flushed = Ok(());
        for store in &self.shared.stores {
            flushed = flushed.and(store.flush().await);
        }
        flushed
    }
}

impl super::Shared {
    /// Returns whether a part has a collection of a database that the rule assigns to it.
    async fn has_any(&self, part: usize, database: &str) -> Result<bool> {
        let parts = self.routing.parts(database);
        if !parts.contains(&part) || parts.len() == 1 {
            // The database has no collections in other parts.
            return Ok(parts.contains(&part));
        }
        let infos = self.at(part).list_collections(database).await?;
        Ok(infos.iter().any(|info| self.is_here(part, database, &info.name)))
    }
}
