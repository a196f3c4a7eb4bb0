//! The contract of a store for a transaction.

use std::sync::Arc;

use async_trait::async_trait;
use bson::{RawBson, RawDocumentBuf};
use handfast_mql::collation::with_variable;
use handfast_mql::expression::may_vary;
use handfast_mql::pipeline::{Pipeline, Stage};
use handfast_mql::{Code, CompileOptions};
use handfast_store::distinct::DistinctValues;
use handfast_store::page::IteratorCursor;
use handfast_store::selection::id_alone;
use handfast_store::view::ResolvedView;
use handfast_store::{
    Aggregate, AggregateSource, BatchLimit, CollectionInfo, CollectionOptions, CollectionStats, Count, CreateIndexes,
    Cursor, Delete, DeleteOutcome, Distinct, DocumentStore, DropIndexes, Error, Explain, Find, FindAndModify,
    FindAndModifyOutcome, IndexCounts, IndexInfo, Insert, InsertOutcome, ModifyCollection, Namespace, Read,
    RenameCollection, Result, Ticket, Update, UpdateOutcome, aggregation, default_collation, view,
};

use super::merged::{self, TransactionCursor};
use super::read_set::everything;
use super::{Inner, Transaction, unsupported, unsupported_in};

impl Inner {
    /// Opens a cursor over the documents that the transaction sees.
    pub(super) async fn find(self: &Arc<Self>, request: Find) -> Result<Box<dyn Cursor>> {
        if let Some(id) = request.id_alone() {
            let document = self.end_on_conflict(self.get(&request.namespace, id).await)?;
            let cursor = Box::new(IteratorCursor::new(document.map(Ok).into_iter()));
            return Ok(Box::new(TransactionCursor { cursor, transaction: Arc::clone(self) }));
        }
        let (snapshot, writes, is_made) = self.open(|open| {
            self.note_read(open, || read_of(&request));
            let is_made = open.writes.creation(&request.namespace).is_some();
            Ok((open.snapshot(), open.writes.of(&request.namespace), is_made))
        })?;
        let cursor = if writes.is_empty() && !is_made {
            snapshot.find(request).await
        } else {
            let indexes = match request.hint {
                Some(_) => self.indexes(&request.namespace).await?.unwrap_or_default(),
                None => Vec::new(),
            };
            let snapshot = (!is_made).then_some(&*snapshot);
            merged::open(snapshot, writes, &indexes, request, &self.shared.sources).await
        };
        let cursor = self.end_on_conflict(cursor)?;
        Ok(Box::new(TransactionCursor { cursor, transaction: Arc::clone(self) }))
    }

    /// Returns what a view stands for in the snapshot; `None` if there is none of this name.
    pub(super) fn view(&self, namespace: &Namespace) -> Result<Option<ResolvedView>> {
        self.open(|open| Ok(open.snapshot()))?.view(namespace)
    }

    /// Returns the default collation that a collection has for this transaction.
    pub(super) fn default_collation(&self, namespace: &Namespace) -> Result<Option<RawDocumentBuf>> {
        self.open(|open| match open.writes.creation(namespace) {
            Some(creation) => Ok(creation.options.collation.clone()),
            // This is no read: the first claim of a transaction may still take a newer snapshot.
            None => Ok(open.snapshot.default_collation(namespace)),
        })
    }

    /// Refuses a request that a view cannot carry out.
    pub(super) fn refuse_view(&self, namespace: &Namespace) -> Result<()> {
        match self.view(namespace)? {
            Some(_) => Err(view::not_a_collection(namespace)),
            None => Ok(()),
        }
    }

    /// Calls a function with each document of a find, until it returns `false`.
    async fn each(self: &Arc<Self>, find: Find, mut visit: impl FnMut(RawDocumentBuf) -> Result<bool>) -> Result<()> {
        let mut cursor = self.find(find).await?;
        loop {
            let page = cursor.next_page(BatchLimit::REPLY).await?;
            for document in page.documents {
                if !visit(document)? {
                    return Ok(());
                }
            }
            if page.exhausted {
                return Ok(());
            }
        }
    }
}

/// Returns what a find reads: one document for a filter by `_id`, else all that match. A filter that depends on time or chance cannot be
/// repeated, so it reads the whole collection.
fn read_of(find: &Find) -> Read {
    if let Some(id) = id_alone(&find.filter, &find.variables) {
        return Read::Document(find.namespace.clone(), RawBson::from(id));
    }
    let namespace = find.namespace.clone();
    if may_vary(&find.filter) {
        return everything(namespace);
    }
    let filter = find.filter.clone();
    Read::Matching { namespace, filter, variables: find.variables.clone() }
}

/// Refuses a ticket: in a transaction only the commit carries one.
fn refuse_ticket(ticket: Option<Ticket>) -> Result<()> {
    let text = "a request inside of a transaction carries no ticket: the commit does";
    ticket.map_or(Ok(()), |_| Err(Error::command(Code::InvalidOptions, text)))
}

#[async_trait]
impl DocumentStore for Transaction {
    fn name(&self) -> &'static str {
        "transaction"
    }

    async fn insert(&self, request: Insert) -> Result<InsertOutcome> {
        refuse_ticket(request.ticket)?;
        self.insert_once(request).await
    }

    async fn find(&self, request: Find) -> Result<Box<dyn Cursor>> {
        match self.inner.view(&request.namespace)? {
            Some(view) => view::find(self, view, request).await,
            None => {
                let default = self.inner.default_collation(&request.namespace)?;
                match default_collation::of_find(&request, default.as_ref()) {
                    Some(request) => Ok(default_collation::cursor(self.inner.find(request).await?)),
                    None => self.inner.find(request).await,
                }
            }
        }
    }

    async fn update(&self, request: Update) -> Result<UpdateOutcome> {
        refuse_ticket(request.ticket)?;
        self.update_once(request).await
    }

    async fn find_and_modify(&self, request: FindAndModify) -> Result<FindAndModifyOutcome> {
        refuse_ticket(request.ticket)?;
        self.find_and_modify_once(request).await
    }

    async fn delete(&self, request: Delete) -> Result<DeleteOutcome> {
        refuse_ticket(request.ticket)?;
        self.delete_once(request).await
    }

    async fn aggregate(&self, request: Aggregate) -> Result<Box<dyn Cursor>> {
        let options = CompileOptions::with_variables(&request.variables)?;
        let pipeline = Pipeline::compile(&request.pipeline, &options)?;
        if let Some(stage) = pipeline.stages().iter().find(|stage| matches!(stage, Stage::Out(_) | Stage::Merge(_))) {
            return Err(unsupported(stage.name()));
        }
        let request = match &request.source {
            AggregateSource::Collection(namespace) => match self.inner.view(namespace)? {
                Some(view) => view.aggregate(request)?,
                None => {
                    let default = self.inner.default_collation(namespace)?;
                    let variables = default_collation::with_default(request.variables, default.as_ref());
                    Aggregate { variables, ..request }
                }
            },
            AggregateSource::Database(_) => request,
        };
        view::check_views_read(&request, &|namespace| self.inner.view(namespace))?;
        aggregation::open(Arc::new(self.clone()), &self.inner.shared.sources, request).await
    }

    async fn count(&self, request: Count) -> Result<u64> {
        if let Some(view) = self.inner.view(&request.namespace)? {
            return view::count(self, view, request).await;
        }
        let limit = request.limit;
        let mut find = Find::new(request.namespace, request.filter);
        (find.skip, find.limit, find.hint) = (request.skip, limit, request.hint);
        let collation = request.collation.or(self.inner.default_collation(&find.namespace)?);
        find.variables = with_variable(find.variables, collation.as_deref());
        let mut counted = 0;
        let counting = self.inner.each(find, |_| {
            counted += 1;
            Ok(true)
        });
        counting.await?;
        Ok(counted)
    }

    async fn distinct(&self, request: Distinct) -> Result<Vec<RawBson>> {
        if let Some(view) = self.inner.view(&request.namespace)? {
            return view::distinct(self, view, request).await;
        }
        let collation = request.collation.clone().or(self.inner.default_collation(&request.namespace)?);
        let request = Distinct { collation, ..request };
        let mut values = DistinctValues::of(&request)?;
        let variables = with_variable(RawDocumentBuf::new(), request.collation.as_deref());
        let find = Find { hint: request.hint, variables, ..Find::new(request.namespace, request.filter) };
        let collecting = self.inner.each(find, |document| {
            values.add(&document)?;
            Ok(true)
        });
        collecting.await?;
        Ok(values.finish())
    }

    /// Explains how the store would carry the request out, without the transaction's own writes.
    async fn explain(&self, request: Explain) -> Result<RawDocumentBuf> {
        self.inner.open(|_| Ok(()))?;
        self.inner.shared.engine.catalog().explain(request).await
    }

    async fn create_indexes(&self, request: CreateIndexes) -> Result<IndexCounts> {
        self.inner.run_write(self.inner.add_indexes(request)).await
    }

    async fn drop_indexes(&self, request: DropIndexes) -> Result<u32> {
        Err(unsupported_in("dropIndexes", &request.namespace))
    }

    async fn list_indexes(&self, namespace: &Namespace) -> Result<Vec<IndexInfo>> {
        self.inner.list_indexes(namespace).await
    }

    async fn create_collection(&self, namespace: &Namespace, options: CollectionOptions) -> Result<()> {
        self.inner.run_write(self.inner.create(namespace, options)).await
    }

    async fn modify_collection(&self, request: ModifyCollection) -> Result<RawDocumentBuf> {
        Err(unsupported_in("collMod", &request.namespace))
    }

    async fn rename_collection(&self, request: RenameCollection) -> Result<()> {
        Err(unsupported_in("renameCollection", &request.from))
    }

    async fn drop_collection(&self, namespace: &Namespace) -> Result<bool> {
        Err(unsupported_in("drop", namespace))
    }

    async fn list_collections(&self, database: &str) -> Result<Vec<CollectionInfo>> {
        self.inner.list(database).await
    }

    async fn list_databases(&self) -> Result<Vec<String>> {
        self.inner.databases().await
    }

    async fn drop_database(&self, _database: &str) -> Result<bool> {
        Err(unsupported("dropDatabase"))
    }

    /// Counts what the transaction sees. Sizes on disk are unknown before the commit.
    async fn collection_stats(&self, namespace: &Namespace) -> Result<CollectionStats> {
        let Some(indexes) = self.inner.indexes(namespace).await? else { return Ok(CollectionStats::default()) };
        let index_bytes = indexes.into_iter().map(|spec| (spec.name, 0)).collect();
        let mut stats = CollectionStats { exists: true, index_bytes, ..CollectionStats::default() };
        let counting = self.inner.each(Find::new(namespace.clone(), RawDocumentBuf::new()), |document| {
            stats.count += 1;
            stats.size_bytes += document.as_bytes().len() as u64;
            Ok(true)
        });
        counting.await?;
        Ok(stats)
    }

    /// Does nothing: the durability of the commit counts.
    async fn flush(&self) -> Result<()> {
        self.inner.open(|_| Ok(()))
    }
}
