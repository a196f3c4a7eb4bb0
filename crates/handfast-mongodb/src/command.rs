//! Builds commands from requests, with pure functions.
//!
//! A command has only the fields that its request sets. The variables of a request are values, and those of a command are
//! expressions, so each value becomes a `$literal`.

use bson::raw::{CStr, CString, cstr};
use bson::{RawArrayBuf, RawBson, RawDocument, RawDocumentBuf, rawdoc};
use handfast_mql::collation::{VARIABLE, is_simple, simple};
use handfast_store::{
    Aggregate, AggregateSource, Count, CreateIndexes, DeleteStatement, Distinct, DropIndexes, Explain, Explained, Find,
    FindAndModify, Hint, IndexSelector, IndexSpec, Modification, ModifyCollection, Namespace, RenameCollection,
    ReturnDocument, UpdateSpec, UpdateStatement, Validation, Verbosity,
};

#[cfg(test)]
mod tests;

/// A command under construction.
pub(crate) struct Command(RawDocumentBuf);

impl Command {
    fn on(name: &CStr, namespace: &Namespace) -> Self {
        Command::new(name, namespace.collection())
    }

    pub(crate) fn new(name: &CStr, value: impl Into<RawBson>) -> Self {
        let mut document = RawDocumentBuf::new();
        document.append(name, value.into());
        Command(document)
    }

    pub(crate) fn put(mut self, name: &CStr, value: impl Into<RawBson>) -> Self {
        self.0.append(name, value.into());
        self
    }

    pub(crate) fn put_some(self, name: &CStr, value: Option<impl Into<RawBson>>) -> Self {
        match value {
            Some(value) => self.put(name, value),
            None => self,
        }
    }

    /// Adds a document unless it is empty.
    fn put_filled(self, name: &CStr, document: &RawDocument) -> Self {
        if document.is_empty() { self } else { self.put(name, document.to_owned()) }
    }

    /// Adds a flag if it is set.
    fn put_set(self, name: &CStr, flag: bool) -> Self {
        if flag { self.put(name, true) } else { self }
    }

    /// Adds the option by which the server stores empty timestamps as they are. Servers before MongoDB 8.0 refuse it by its name.
    pub(crate) fn put_keep_empty_timestamps(self, keep: bool) -> Self {
        self.put_set(cstr!("bypassEmptyTsReplacement"), keep)
    }

    /// Adds the option by which the server does not apply the validator of the collection.
    pub(crate) fn put_validation(self, validation: Validation) -> Self {
        self.put_set(cstr!("bypassDocumentValidation"), validation == Validation::Bypass)
    }

    fn put_hint(self, hint: Option<&Hint>) -> Self {
        match hint {
            None => self,
            Some(Hint::Name(name)) => self.put(cstr!("hint"), name.as_str()),
            Some(Hint::Key(key)) => self.put(cstr!("hint"), key.clone()),
        }
    }

    fn put_variables(self, variables: &RawDocument) -> Self {
        let literals = literals(variables);
        if literals.is_empty() { self } else { self.put(cstr!("let"), literals) }
    }

    /// Adds the collation among these variables.
    fn put_collation(self, variables: &RawDocument) -> Self {
        if is_simple(variables) {
            return self;
        }
        self.put_some(cstr!("collation"), variables.get_document(VARIABLE.as_str()).ok().map(RawDocument::to_owned))
    }

    pub(crate) fn done(self) -> RawDocumentBuf {
        self.0
    }
}

/// Returns the variables with each value as a `$literal`, without the collation.
fn literals(variables: &RawDocument) -> RawDocumentBuf {
    let mut expressions = RawDocumentBuf::new();
    for (name, value) in variables.iter().flatten().filter(|(name, _)| *name != VARIABLE) {
        let name: CString = name.into();
        expressions.append(name, rawdoc! { "$literal": RawBson::from(value) });
    }
    expressions
}

fn array(documents: &[RawDocumentBuf]) -> RawArrayBuf {
    documents.iter().cloned().collect()
}

/// Converts a skip and a limit for a server, which takes an int64 for both together, and 0 for no limit.
///
/// A limit of 0 documents becomes 1; the caller drops the document of the answer.
fn bounds(skip: u64, limit: Option<u64>) -> (Option<i64>, Option<i64>) {
    let skip = i64::try_from(skip).unwrap_or(i64::MAX);
    let room = i64::MAX - skip;
    let limit = limit.map(|limit| i64::try_from(limit.max(1)).unwrap_or(i64::MAX)).filter(|limit| *limit < room);
    ((skip > 0).then_some(skip), limit)
}

pub(crate) fn insert(namespace: &Namespace, documents: &[RawDocumentBuf], ordered: bool) -> Command {
    Command::on(cstr!("insert"), namespace).put(cstr!("documents"), array(documents)).put(cstr!("ordered"), ordered)
}

pub(crate) fn find(request: &Find) -> Command {
    let (skip, limit) = bounds(request.skip, request.limit);
    Command::on(cstr!("find"), &request.namespace)
        .put(cstr!("filter"), request.filter.clone())
        .put_filled(cstr!("projection"), &request.projection)
        .put_filled(cstr!("sort"), &request.sort)
        .put_some(cstr!("skip"), skip)
        .put_some(cstr!("limit"), limit)
        .put_hint(request.hint.as_ref())
        .put_some(cstr!("min"), request.min.clone())
        .put_some(cstr!("max"), request.max.clone())
        .put_set(cstr!("returnKey"), request.return_key)
        .put_set(cstr!("showRecordId"), request.show_record_id)
        .put_some(cstr!("allowDiskUse"), (!request.allow_disk_use).then_some(false))
        .put_variables(&request.variables)
        .put_collation(&request.variables)
}

fn change(update: &UpdateSpec) -> RawBson {
    match update {
        UpdateSpec::Document(document) => document.clone().into(),
        UpdateSpec::Pipeline(stages) => array(stages).into(),
    }
}

/// Builds a statement of an update, with the collation among the variables of its request.
pub(crate) fn update_statement(statement: &UpdateStatement, variables: &RawDocument) -> RawDocumentBuf {
    let filters = (!statement.array_filters.is_empty()).then(|| array(&statement.array_filters));
    Command::new(cstr!("q"), statement.filter.clone())
        .put(cstr!("u"), change(&statement.update))
        .put_set(cstr!("multi"), statement.multi)
        .put_set(cstr!("upsert"), statement.upsert)
        .put_some(cstr!("arrayFilters"), filters)
        .put_filled(cstr!("sort"), &statement.sort)
        .put_hint(statement.hint.as_ref())
        .put_filled(cstr!("c"), &statement.constants)
        .put_collation(variables)
        .done()
}

pub(crate) fn update(
    namespace: &Namespace,
    statements: &[RawDocumentBuf],
    ordered: bool,
    variables: &RawDocument,
) -> Command {
    Command::on(cstr!("update"), namespace)
        .put(cstr!("updates"), array(statements))
        .put(cstr!("ordered"), ordered)
        .put_variables(variables)
}

/// Builds a statement of a delete, with the collation among the variables of its request.
pub(crate) fn delete_statement(statement: &DeleteStatement, variables: &RawDocument) -> RawDocumentBuf {
    Command::new(cstr!("q"), statement.filter.clone())
        .put(cstr!("limit"), i32::from(!statement.multi))
        .put_hint(statement.hint.as_ref())
        .put_collation(variables)
        .done()
}

pub(crate) fn delete(
    namespace: &Namespace,
    statements: &[RawDocumentBuf],
    ordered: bool,
    variables: &RawDocument,
) -> Command {
    Command::on(cstr!("delete"), namespace)
        .put(cstr!("deletes"), array(statements))
        .put(cstr!("ordered"), ordered)
        .put_variables(variables)
}

pub(crate) fn find_and_modify(request: &FindAndModify) -> Command {
    let command = Command::on(cstr!("findAndModify"), &request.namespace)
        .put(cstr!("query"), request.filter.clone())
        .put_filled(cstr!("sort"), &request.sort)
        .put_filled(cstr!("fields"), &request.projection)
        .put_hint(request.hint.as_ref())
        .put_variables(&request.variables)
        .put_collation(&request.variables)
        .put_validation(request.validation)
        .put_keep_empty_timestamps(request.keep_empty_timestamps);
    match &request.modification {
        Modification::Remove => command.put(cstr!("remove"), true),
        Modification::Update { update, upsert, returns, array_filters } => command
            .put(cstr!("update"), change(update))
            .put_set(cstr!("upsert"), *upsert)
            .put_set(cstr!("new"), *returns == ReturnDocument::After)
            .put_some(cstr!("arrayFilters"), (!array_filters.is_empty()).then(|| array(array_filters))),
    }
}

pub(crate) fn aggregate(request: &Aggregate) -> Command {
    let command = match &request.source {
        AggregateSource::Collection(namespace) => Command::on(cstr!("aggregate"), namespace),
        AggregateSource::Database(_) => Command::new(cstr!("aggregate"), 1),
    };
    command
        .put(cstr!("pipeline"), array(&request.pipeline))
        .put(cstr!("cursor"), rawdoc! {})
        .put_some(cstr!("allowDiskUse"), (!request.allow_disk_use).then_some(false))
        .put_validation(request.validation)
        .put_hint(request.hint.as_ref())
        .put_variables(&request.variables)
        .put_collation(&request.variables)
}

pub(crate) fn count(request: &Count) -> Command {
    let (skip, limit) = bounds(request.skip, request.limit);
    Command::on(cstr!("count"), &request.namespace)
        .put(cstr!("query"), request.filter.clone())
        .put_some(cstr!("skip"), skip)
        .put_some(cstr!("limit"), limit)
        .put_hint(request.hint.as_ref())
        .put_some(cstr!("collation"), request.collation.clone().filter(|collation| *collation != simple()))
}

pub(crate) fn distinct(request: &Distinct) -> Command {
    Command::on(cstr!("distinct"), &request.namespace)
        .put(cstr!("key"), request.key.as_str())
        .put(cstr!("query"), request.filter.clone())
        .put_hint(request.hint.as_ref())
        .put_some(cstr!("collation"), request.collation.clone().filter(|collation| *collation != simple()))
}

pub(crate) fn explain(request: &Explain) -> Command {
    let explained = match &request.explained {
        Explained::Find(request) => find(request),
        Explained::Aggregate(request) => aggregate(request),
    };
    let verbosity = match request.verbosity {
        Verbosity::QueryPlanner => "queryPlanner",
        Verbosity::ExecutionStats => "executionStats",
    };
    Command::new(cstr!("explain"), explained.done()).put(cstr!("verbosity"), verbosity)
}

pub(crate) fn create_index(namespace: &Namespace, spec: &IndexSpec) -> Command {
    Command::on(cstr!("createIndexes"), namespace).put(cstr!("indexes"), array(&[index(spec)]))
}

pub(crate) fn create_indexes(request: &CreateIndexes) -> Command {
    let indexes: RawArrayBuf = request.indexes.iter().map(index).collect();
    Command::on(cstr!("createIndexes"), &request.namespace).put(cstr!("indexes"), indexes)
}

/// Builds the definition of an index, without a version, which the server chooses.
fn index(spec: &IndexSpec) -> RawDocumentBuf {
    let mut index = RawDocumentBuf::new();
    let is_sent = |name: &str| name != "v" && (name != "collation" || spec.collation != Some(simple()));
    for (name, value) in spec.to_document().iter().flatten().filter(|(name, _)| is_sent(name.as_str())) {
        let name: CString = name.into();
        index.append(name, value);
    }
    index
}

pub(crate) fn drop_indexes(request: &DropIndexes) -> Command {
    let index: RawBson = match &request.selector {
        IndexSelector::All => "*".into(),
        IndexSelector::Names(names) => match names.as_slice() {
            [name] => name.as_str().into(),
            names => names.iter().map(String::as_str).collect::<RawArrayBuf>().into(),
        },
        IndexSelector::Key(key) => key.clone().into(),
    };
    Command::on(cstr!("dropIndexes"), &request.namespace).put(cstr!("index"), index)
}

pub(crate) fn list_indexes(namespace: &Namespace) -> Command {
    Command::on(cstr!("listIndexes"), namespace).put(cstr!("cursor"), rawdoc! {})
}

pub(crate) fn create(namespace: &Namespace) -> Command {
    Command::on(cstr!("create"), namespace)
}

pub(crate) fn modify_collection(request: &ModifyCollection) -> Command {
    let index = request.index.as_ref().map(|index| {
        let selected = match &index.selector {
            IndexSelector::Key(key) => Command::new(cstr!("keyPattern"), key.clone()),
            IndexSelector::Names(names) => Command::new(cstr!("name"), names.first().cloned().unwrap_or_default()),
            IndexSelector::All => Command::new(cstr!("name"), "*"),
        };
        selected
            .put_some(cstr!("expireAfterSeconds"), index.expire_after_seconds)
            .put_some(cstr!("hidden"), index.hidden)
            .done()
    });
    Command::on(cstr!("collMod"), &request.namespace).put_some(cstr!("index"), index)
}

pub(crate) fn rename(request: &RenameCollection) -> Command {
    Command::new(cstr!("renameCollection"), request.from.to_string())
        .put(cstr!("to"), request.to.to_string())
        .put_set(cstr!("dropTarget"), request.drop_target)
}

pub(crate) fn drop(namespace: &Namespace) -> Command {
    Command::on(cstr!("drop"), namespace)
}

pub(crate) fn drop_database() -> Command {
    Command::new(cstr!("dropDatabase"), 1)
}

pub(crate) fn list_collections() -> Command {
    Command::new(cstr!("listCollections"), 1).put(cstr!("cursor"), rawdoc! {})
}

pub(crate) fn list_databases() -> Command {
    Command::new(cstr!("listDatabases"), 1).put(cstr!("nameOnly"), true)
}

pub(crate) fn stats(namespace: &Namespace) -> Command {
    Command::on(cstr!("collStats"), namespace)
}
