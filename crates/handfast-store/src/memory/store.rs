//! The contract on the store in memory.

use std::sync::Arc;

use async_trait::async_trait;
use bson::{RawBson, RawDocumentBuf, rawdoc};
use handfast_mql::collation::with_variable;
use handfast_mql::{Code, CompileOptions, Filter};

use super::MemoryStore;
use super::candidates::AccessPath;
use super::catalog::no_namespace;
use super::state::State;
use super::write::no_collection;
use crate::distinct::DistinctValues;
use crate::page::IteratorCursor;
use crate::selection::{BackendGuarantees, Selection};
use crate::validation::Validator;
use crate::view::{self, ResolvedView};
use crate::{
    Aggregate, BatchLimit, CollectionInfo, CollectionOptions, CollectionStats, Count, CreateIndexes, Cursor, Delete,
    DeleteOutcome, Distinct, DocumentStore, DropIndexes, Error, Explain, Explained, Find, FindAndModify,
    FindAndModifyOutcome, IndexCounts, IndexInfo, Insert, InsertOutcome, Inserted, ModifyCollection, Namespace,
    RenameCollection, Result, Update, UpdateOutcome, Verbosity, WriteError, aggregation, default_collation, ticket,
};

impl MemoryStore {
    /// Opens a cursor over a state.
    pub(super) fn find_in(&self, state: &State, find: &Find) -> Result<Box<dyn Cursor>> {
        if let Some(find) = default_collation::of_find(find, state.default_collation(&find.namespace)) {
            return Ok(default_collation::cursor(self.find_in(state, &find)?));
        }
        let selection = Selection::compile(find, self.sources())?;
        let Some(collection) = state.collections.get(&find.namespace) else {
            no_collection::<()>(find.hint.as_ref())?;
            return Ok(Box::new(IteratorCursor::new(std::iter::empty())));
        };
        let path = AccessPath::for_find(collection, &selection.necessary_conditions(), find)?;
        Ok(selection.cursor(path.candidates(find), BackendGuarantees::default()))
    }

    /// Returns what a view stands for; `None` if there is none of this name.
    fn view(&self, namespace: &Namespace) -> Result<Option<ResolvedView>> {
        view::resolve(&self.state(), namespace)
    }

    /// Returns an aggregation of the source of the view that it reads, if it reads one.
    fn of_source(&self, request: Aggregate) -> Result<Aggregate> {
        view::of_source(&self.state(), request)
    }

    /// Returns the variables of a request under the default of its collection.
    fn under_default(&self, namespace: &Namespace, variables: RawDocumentBuf) -> RawDocumentBuf {
        default_collation::with_default(variables, self.state().default_collation(namespace))
    }

    /// Returns the collation of a request, by default that of its collection.
    fn collation_of(&self, namespace: &Namespace, named: Option<RawDocumentBuf>) -> Option<RawDocumentBuf> {
        named.or_else(|| self.state().default_collation(namespace).cloned())
    }

    /// Calls a function with each matching document until it returns `false`.
    fn each(&self, find: &Find, mut visit: impl FnMut(RawDocumentBuf) -> Result<bool>) -> Result<()> {
        let filter = Filter::compile(&find.filter, &CompileOptions::with_variables(&find.variables)?)?;
        let context = self.sources().context(&find.variables);
        let state = self.state();
        let Some(collection) = state.collections.get(&find.namespace) else {
            return no_collection(find.hint.as_ref());
        };
        let path = AccessPath::choose(collection, &filter.necessary_conditions(&context), find.hint.as_ref())?;
        for (stored, _) in path.documents() {
            if filter.matches(&stored.document, &context)? && !visit(stored.document.clone())? {
                break;
            }
        }
        Ok(())
    }
}

#[async_trait]
impl DocumentStore for MemoryStore {
    fn name(&self) -> &'static str {
        "memory"
    }

    async fn insert(&self, request: Insert) -> Result<InsertOutcome> {
        let mut outcome = InsertOutcome::default();
        for (index, document) in request.documents.into_iter().enumerate() {
            let ticket = request.ticket.map(|ticket| ticket.of_statement(index));
            match self.insert_document(&request.namespace, document, request.validation, ticket) {
                Ok(Inserted) => outcome.inserted += 1,
                Err(error) => {
                    outcome.errors.push(WriteError { index, error });
                    if request.ordered {
                        break;
                    }
                }
            }
        }
        Ok(outcome)
    }

    async fn find(&self, request: Find) -> Result<Box<dyn Cursor>> {
        match self.view(&request.namespace)? {
            Some(view) => view::find(self, view, request).await,
            None => self.find_in(&self.state(), &request),
        }
    }

    async fn update(&self, request: Update) -> Result<UpdateOutcome> {
        ticket::check_statements(request.ticket, request.statements.iter().map(|statement| statement.multi))?;
        let variables = self.under_default(&request.namespace, request.variables.clone());
        let request = Update { variables, ..request };
        let mut outcome = UpdateOutcome::default();
        for index in 0..request.statements.len() {
            if let Err(error) = self.update_statement(&request, index, &mut outcome).await {
                outcome.errors.push(WriteError { index, error });
                if request.ordered {
                    break;
                }
            }
        }
        Ok(outcome)
    }

    async fn find_and_modify(&self, request: FindAndModify) -> Result<FindAndModifyOutcome> {
        let variables = self.under_default(&request.namespace, request.variables.clone());
        self.find_and_modify_one(&FindAndModify { variables, ..request })
    }

    async fn delete(&self, request: Delete) -> Result<DeleteOutcome> {
        ticket::check_statements(request.ticket, request.statements.iter().map(|statement| statement.multi))?;
        let variables = self.under_default(&request.namespace, request.variables.clone());
        let request = Delete { variables, ..request };
        let mut outcome = DeleteOutcome::default();
        for index in 0..request.statements.len() {
            if let Err(error) = self.delete_statement(&request, index, &mut outcome.deleted).await {
                outcome.errors.push(WriteError { index, error });
                if request.ordered {
                    break;
                }
            }
        }
        Ok(outcome)
    }

    async fn aggregate(&self, request: Aggregate) -> Result<Box<dyn Cursor>> {
        let request = self.of_source(request)?;
        aggregation::open(Arc::new(self.clone()), self.sources(), request).await
    }

    async fn count(&self, request: Count) -> Result<u64> {
        if let Some(view) = self.view(&request.namespace)? {
            return view::count(self, view, request).await;
        }
        let collation = self.collation_of(&request.namespace, request.collation);
        let variables = with_variable(RawDocumentBuf::new(), collation.as_deref());
        let find = Find { hint: request.hint, variables, ..Find::new(request.namespace, request.filter) };
        let wanted = request.skip.saturating_add(request.limit.unwrap_or(u64::MAX));
        let mut counted = 0_u64;
        self.each(&find, |_| {
            counted += 1;
            Ok(counted < wanted)
        })?;
        Ok(counted.min(wanted).saturating_sub(request.skip))
    }

    async fn distinct(&self, request: Distinct) -> Result<Vec<RawBson>> {
        if let Some(view) = self.view(&request.namespace)? {
            return view::distinct(self, view, request).await;
        }
        let collation = self.collation_of(&request.namespace, request.collation.clone());
        let request = Distinct { collation, ..request };
        let mut values = DistinctValues::of(&request)?;
        let variables = with_variable(RawDocumentBuf::new(), request.collation.as_deref());
        let find = Find { hint: request.hint, variables, ..Find::new(request.namespace, request.filter) };
        self.each(&find, |document| {
            values.add(&document)?;
            Ok(true)
        })?;
        Ok(values.finish())
    }

    async fn explain(&self, request: Explain) -> Result<RawDocumentBuf> {
        let find = match request.explained {
            Explained::Find(find) => match self.view(&find.namespace)? {
                Some(view) => return aggregation::explain(self, view.find(find)?, request.verbosity).await,
                None => find,
            },
            Explained::Aggregate(aggregate) => {
                return aggregation::explain(self, self.of_source(aggregate)?, request.verbosity).await;
            }
        };
        let state = self.state();
        let find = default_collation::of_find(&find, state.default_collation(&find.namespace)).unwrap_or(find);
        let selection = Selection::compile(&find, self.sources())?;
        let (stage, examined) = match state.collections.get(&find.namespace) {
            None => ("EOF", 0),
            Some(collection) => {
                let path = AccessPath::for_find(collection, &selection.necessary_conditions(), &find)?;
                let stage = match &path {
                    AccessPath::Scan { .. } => "COLLSCAN",
                    AccessPath::Ids { .. } => "IDHACK",
                    AccessPath::Index(_) => "IXSCAN",
                };
                (stage, path.documents().count() as i64)
            }
        };
        let mut plan = rawdoc! { "stage": stage };
        plan.append(bson::raw::cstr!("filter"), find.filter.clone());
        let planner = rawdoc! {
            "namespace": find.namespace.to_string(), "winningPlan": plan, "rejectedPlans": bson::RawArrayBuf::new(),
        };
        let mut shown = rawdoc! { "queryPlanner": planner };
        if request.verbosity == Verbosity::ExecutionStats {
            let mut cursor = self.find_in(&state, &find)?;
            let mut returned = 0_i64;
            loop {
                let page = cursor.next_page(BatchLimit::REPLY).await?;
                returned += page.documents.len() as i64;
                if page.exhausted {
                    break;
                }
            }
            let keys = if stage == "IXSCAN" { examined } else { 0 };
            let stats = rawdoc! {
                "executionSuccess": true, "nReturned": returned, "totalKeysExamined": keys,
                "totalDocsExamined": examined,
            };
            shown.append(bson::raw::cstr!("executionStats"), stats);
        }
        Ok(shown)
    }

    async fn create_indexes(&self, request: CreateIndexes) -> Result<IndexCounts> {
        self.create_indexes_now(request)
    }

    async fn drop_indexes(&self, request: DropIndexes) -> Result<u32> {
        self.drop_indexes_now(&request)
    }

    async fn list_indexes(&self, namespace: &Namespace) -> Result<Vec<IndexInfo>> {
        let state = self.state();
        state.refuse_view(namespace)?;
        match state.collections.get(namespace) {
            Some(collection) => Ok(collection.specs().into_iter().map(|spec| IndexInfo { spec }).collect()),
            None => Err(no_namespace(&format!("ns does not exist: {namespace}"))),
        }
    }

    async fn create_collection(&self, namespace: &Namespace, options: CollectionOptions) -> Result<()> {
        self.write(|state| {
            let validator = Validator::compile(&options)?;
            if let Some(collection) = state.collections.get(namespace) {
                if collection.options == options {
                    return Ok(());
                }
                let text = format!("a collection '{namespace}' already exists with different options");
                return Err(Error::command(Code::NamespaceExists, text));
            }
            view::check_definition(state, namespace, &options)?;
            state.collection_or_new(namespace, || self.sources().uuid())?;
            if let Some(collection) = state.collections.get_mut(namespace) {
                (collection.options, collection.validator) = (options, validator);
            }
            Ok(())
        })
    }

    async fn modify_collection(&self, request: ModifyCollection) -> Result<RawDocumentBuf> {
        self.modify_collection_now(&request)
    }

    async fn rename_collection(&self, request: RenameCollection) -> Result<()> {
        self.rename_collection_now(&request)
    }

    async fn drop_collection(&self, namespace: &Namespace) -> Result<bool> {
        self.write(|state| Ok(state.take(namespace).is_some()))
    }

    async fn list_collections(&self, database: &str) -> Result<Vec<CollectionInfo>> {
        let state = self.state();
        let of = state.collections.iter().filter(|(namespace, _)| namespace.database() == database);
        Ok(of
            .map(|(namespace, collection)| CollectionInfo {
                name: namespace.collection().to_owned(),
                options: collection.options.clone(),
                uuid: collection.uuid,
            })
            .collect())
    }

    async fn list_databases(&self) -> Result<Vec<String>> {
        // The namespaces are in order, so the names are as well.
        let mut names: Vec<_> = self.state().collections.keys().map(|name| name.database().to_owned()).collect();
        names.dedup();
        Ok(names)
    }

    async fn drop_database(&self, database: &str) -> Result<bool> {
        self.write(|state| {
            let collections = self.collections_of(state, database);
            for namespace in &collections {
                state.take(namespace);
            }
            Ok(!collections.is_empty())
        })
    }

    async fn collection_stats(&self, namespace: &Namespace) -> Result<CollectionStats> {
        Ok(self.stats_now(namespace))
    }

    async fn flush(&self) -> Result<()> {
        Ok(())
    }
}
