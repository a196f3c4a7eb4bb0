//! The requests to a store: one struct each, with a `new` that takes the required fields and sets the others to defaults.

mod atomic;
mod collection_options;
mod namespace;
mod watch;

pub use atomic::{AtomicBatch, BatchWrite, Before, Creation, DocumentWrite, Read, WriteKind};
pub use collection_options::{
    CollectionOptions, ModifyValidator, ModifyView, Validation, ValidationAction, ValidationLevel, ViewDefinition,
};
pub use namespace::{DATABASE_NAME_BYTES_MAX, NAMESPACE_BYTES_MAX, Namespace, check_database_name};
pub use watch::{FullDocument, FullDocumentBefore, Watch, WatchScope, WatchStart};

use bson::raw::CStr;
use bson::{RawBson, RawBsonRef, RawDocumentBuf, rawdoc};

use crate::Ticket;

/// The moment at which a write is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// After the write is synced to disk. Concurrent writers share one sync.
    #[default]
    Journaled,
    /// After the write is applied, before the sync: a crash may undo the newest writes.
    Memory,
}

/// Inserts documents.
#[derive(Clone, Debug)]
pub struct Insert {
    /// The collection.
    pub namespace: Namespace,
    /// The documents, in order.
    pub documents: Vec<RawDocumentBuf>,
    /// Whether the request stops at its first error.
    pub ordered: bool,
    /// The moment of the acknowledgement.
    pub durability: Durability,
    /// A ticket for exactly-once execution by an [`AtomicStore`](crate::AtomicStore). Each statement must change one document
    /// only.
    pub ticket: Option<Ticket>,
    /// Whether the validator of the collection is applied.
    pub validation: Validation,
}

impl Insert {
    /// Creates an ordered, journaled insert.
    pub fn new(namespace: Namespace, documents: Vec<RawDocumentBuf>) -> Self {
        Insert {
            namespace,
            documents,
            ordered: true,
            durability: Durability::default(),
            ticket: None,
            validation: Validation::default(),
        }
    }
}

/// The index that a query must use.
#[derive(Clone, Debug, PartialEq)]
pub enum Hint {
    /// The index with this name.
    Name(String),
    /// The index with this key; `{$natural: 1}` scans the collection, `{$natural: -1}` backwards.
    Key(RawDocumentBuf),
}

/// Finds documents.
#[derive(Clone, Debug)]
pub struct Find {
    /// The collection.
    pub namespace: Namespace,
    /// The filter; empty for all documents.
    pub filter: RawDocumentBuf,
    /// The projection; empty for whole documents.
    pub projection: RawDocumentBuf,
    /// The sort; empty for the order of the store.
    pub sort: RawDocumentBuf,
    /// The number of documents to skip.
    pub skip: u64,
    /// The maximum number of documents; `None` for all.
    pub limit: Option<u64>,
    /// The index to use.
    pub hint: Option<Hint>,
    /// The inclusive lower bound on the hinted index.
    pub min: Option<RawDocumentBuf>,
    /// The exclusive upper bound on the hinted index.
    pub max: Option<RawDocumentBuf>,
    /// Whether only the index keys are returned.
    pub return_key: bool,
    /// Whether the record id of the store is added as `$recordId`; it has no effect with `return_key`.
    pub show_record_id: bool,
    /// The variables of `let`, for `$expr`, and the collation
    /// ([`handfast_mql::collation::VARIABLE`]): values ([`Sources::evaluate`](crate::Sources::evaluate)), not expressions.
    pub variables: RawDocumentBuf,
    /// Whether a sort may write to a file what exceeds its memory.
    pub allow_disk_use: bool,
}

impl Find {
    /// Creates a find of all matching documents.
    pub fn new(namespace: Namespace, filter: RawDocumentBuf) -> Self {
        Find {
            namespace,
            filter,
            projection: rawdoc! {},
            sort: rawdoc! {},
            skip: 0,
            limit: None,
            hint: None,
            min: None,
            max: None,
            return_key: false,
            show_record_id: false,
            variables: rawdoc! {},
            allow_disk_use: true,
        }
    }
}

/// The limits of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimit {
    /// The maximum number of documents.
    pub documents: usize,
    /// The maximum size in bytes; the first document is returned whatever its size.
    pub bytes: usize,
}

impl BatchLimit {
    /// The size of one reply of the protocol, 16 MiB, and any number of documents.
    pub const REPLY: BatchLimit = BatchLimit { documents: usize::MAX, bytes: 16 * 1024 * 1024 };
}

/// A change to a document: operators, a whole new document, or an aggregation pipeline.
#[derive(Clone, Debug, PartialEq)]
pub enum UpdateSpec {
    /// Update operators such as `{$set: ..}`, or a replacement, depending on the name of the first field.
    Document(RawDocumentBuf),
    /// Stages `$set`, `$unset`, `$project`, `$replaceRoot` and their aliases.
    Pipeline(Vec<RawDocumentBuf>),
}

/// An update statement.
#[derive(Clone, Debug)]
pub struct UpdateStatement {
    /// The filter.
    pub filter: RawDocumentBuf,
    /// The change.
    pub update: UpdateSpec,
    /// Whether all matching documents are affected, not only the first.
    pub multi: bool,
    /// Whether a document is inserted if none matches.
    pub upsert: bool,
    /// The conditions of `$[name]`.
    pub array_filters: Vec<RawDocumentBuf>,
    /// The order that decides which matching document is the first; only without `multi`.
    pub sort: RawDocumentBuf,
    /// The index to use.
    pub hint: Option<Hint>,
    /// The variables of `c`, for pipelines.
    pub constants: RawDocumentBuf,
    /// Whether empty timestamps of a replacement, or of a document that is inserted, are stored as they are. Otherwise they become
    /// the current time.
    pub keep_empty_timestamps: bool,
    /// Whether the validator of the collection is applied.
    pub validation: Validation,
}

impl UpdateStatement {
    /// Creates a statement that changes the first matching document.
    pub fn one(filter: RawDocumentBuf, update: UpdateSpec) -> Self {
        UpdateStatement {
            filter,
            update,
            multi: false,
            upsert: false,
            array_filters: Vec::new(),
            sort: rawdoc! {},
            hint: None,
            constants: rawdoc! {},
            keep_empty_timestamps: false,
            validation: Validation::default(),
        }
    }
}

/// Runs update statements.
#[derive(Clone, Debug)]
pub struct Update {
    /// The collection.
    pub namespace: Namespace,
    /// The statements, in order.
    pub statements: Vec<UpdateStatement>,
    /// Whether the request stops at its first error.
    pub ordered: bool,
    /// The moment of the acknowledgement.
    pub durability: Durability,
    /// The variables of `let`, for `$expr` and pipelines.
    pub variables: RawDocumentBuf,
    /// A ticket for exactly-once execution by an [`AtomicStore`](crate::AtomicStore). Each statement must change one document
    /// only.
    pub ticket: Option<Ticket>,
}

impl Update {
    /// Creates an ordered, journaled request.
    pub fn new(namespace: Namespace, statements: Vec<UpdateStatement>) -> Self {
        Update {
            namespace,
            statements,
            ordered: true,
            durability: Durability::default(),
            variables: rawdoc! {},
            ticket: None,
        }
    }
}

/// The version of the document that a find-and-modify returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReturnDocument {
    /// The document before the change.
    #[default]
    Before,
    /// The document after the change.
    After,
}

/// The effect of a find-and-modify on the document that it finds.
#[derive(Clone, Debug, PartialEq)]
pub enum Modification {
    /// Removes it.
    Remove,
    /// Changes it.
    Update {
        /// The change.
        update: UpdateSpec,
        /// Whether a document is inserted if none matches.
        upsert: bool,
        /// The version to return.
        returns: ReturnDocument,
        /// The conditions of `$[name]`.
        array_filters: Vec<RawDocumentBuf>,
    },
}

/// Changes or removes one document and returns it.
#[derive(Clone, Debug)]
pub struct FindAndModify {
    /// The collection.
    pub namespace: Namespace,
    /// The filter.
    pub filter: RawDocumentBuf,
    /// The order that decides which matching document is taken.
    pub sort: RawDocumentBuf,
    /// The projection of the returned document.
    pub projection: RawDocumentBuf,
    /// The change or removal.
    pub modification: Modification,
    /// The index to use.
    pub hint: Option<Hint>,
    /// The moment of the acknowledgement.
    pub durability: Durability,
    /// The variables of `let`.
    pub variables: RawDocumentBuf,
    /// A ticket for exactly-once execution by an [`AtomicStore`](crate::AtomicStore). Each statement must change one document
    /// only.
    pub ticket: Option<Ticket>,
    /// Whether empty timestamps of a replacement, or of a document that is inserted, are stored as they are. Otherwise they become
    /// the current time.
    pub keep_empty_timestamps: bool,
    /// Whether the validator of the collection is applied.
    pub validation: Validation,
}

impl FindAndModify {
    /// Creates a journaled request for any one matching document.
    pub fn new(namespace: Namespace, filter: RawDocumentBuf, modification: Modification) -> Self {
        FindAndModify {
            namespace,
            filter,
            sort: rawdoc! {},
            projection: rawdoc! {},
            modification,
            hint: None,
            durability: Durability::default(),
            variables: rawdoc! {},
            ticket: None,
            keep_empty_timestamps: false,
            validation: Validation::default(),
        }
    }
}

/// A delete statement.
#[derive(Clone, Debug)]
pub struct DeleteStatement {
    /// The filter.
    pub filter: RawDocumentBuf,
    /// Whether all matching documents are affected, not only the first.
    pub multi: bool,
    /// The index to use.
    pub hint: Option<Hint>,
}

/// Runs delete statements.
#[derive(Clone, Debug)]
pub struct Delete {
    /// The collection.
    pub namespace: Namespace,
    /// The statements, in order.
    pub statements: Vec<DeleteStatement>,
    /// Whether the request stops at its first error.
    pub ordered: bool,
    /// The moment of the acknowledgement.
    pub durability: Durability,
    /// The variables of `let`.
    pub variables: RawDocumentBuf,
    /// A ticket for exactly-once execution by an [`AtomicStore`](crate::AtomicStore). Each statement must change one document
    /// only.
    pub ticket: Option<Ticket>,
}

impl Delete {
    /// Creates an ordered, journaled request.
    pub fn new(namespace: Namespace, statements: Vec<DeleteStatement>) -> Self {
        Delete {
            namespace,
            statements,
            ordered: true,
            durability: Durability::default(),
            variables: rawdoc! {},
            ticket: None,
        }
    }
}

/// The input of an aggregation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AggregateSource {
    /// The documents of a collection.
    Collection(Namespace),
    /// The output of the first stage, such as `$documents` (`aggregate: 1`), in this database.
    Database(String),
}

impl AggregateSource {
    /// Returns the database, whose collections the stages read.
    pub fn database(&self) -> &str {
        match self {
            AggregateSource::Collection(namespace) => namespace.database(),
            AggregateSource::Database(database) => database,
        }
    }
}

/// Runs an aggregation pipeline.
#[derive(Clone, Debug)]
pub struct Aggregate {
    /// The input.
    pub source: AggregateSource,
    /// The stages.
    pub pipeline: Vec<RawDocumentBuf>,
    /// The index that the first stages use.
    pub hint: Option<Hint>,
    /// The variables of `let`.
    pub variables: RawDocumentBuf,
    /// The moment of the acknowledgement of `$out` and `$merge`.
    pub durability: Durability,
    /// Whether the validator of the collection that `$out` and `$merge` write to is applied.
    pub validation: Validation,
    /// Whether stages may write to files what exceeds their memory.
    pub allow_disk_use: bool,
}

impl Aggregate {
    /// Creates an aggregation over a collection.
    pub fn new(namespace: Namespace, pipeline: Vec<RawDocumentBuf>) -> Self {
        Aggregate {
            source: AggregateSource::Collection(namespace),
            pipeline,
            hint: None,
            variables: rawdoc! {},
            durability: Durability::default(),
            validation: Validation::default(),
            allow_disk_use: true,
        }
    }

    /// Returns whether a stage writes: `$out` or `$merge`.
    pub fn writes(&self) -> bool {
        let writes = |(name, _): (&CStr, RawBsonRef<'_>)| matches!(name.as_str(), "$out" | "$merge");
        self.pipeline.iter().any(|stage| stage.iter().flatten().any(writes))
    }
}

/// Counts documents.
#[derive(Clone, Debug)]
pub struct Count {
    /// The collection.
    pub namespace: Namespace,
    /// The filter; empty for all documents.
    pub filter: RawDocumentBuf,
    /// The number of documents to skip.
    pub skip: u64,
    /// The number at which counting stops.
    pub limit: Option<u64>,
    /// The index to use.
    pub hint: Option<Hint>,
    /// The collation.
    pub collation: Option<RawDocumentBuf>,
}

impl Count {
    /// Creates a count of all matching documents.
    pub fn new(namespace: Namespace, filter: RawDocumentBuf) -> Self {
        Count { namespace, filter, skip: 0, limit: None, hint: None, collation: None }
    }
}

/// Lists distinct values.
#[derive(Clone, Debug)]
pub struct Distinct {
    /// The collection.
    pub namespace: Namespace,
    /// The dotted path.
    pub key: String,
    /// The filter.
    pub filter: RawDocumentBuf,
    /// The index to use.
    pub hint: Option<Hint>,
    /// The collation.
    pub collation: Option<RawDocumentBuf>,
}

/// The depth of an explanation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verbosity {
    /// Explains the plan.
    #[default]
    QueryPlanner,
    /// Runs the query, without applying writes, and counts the keys and documents that it examined.
    ExecutionStats,
}

/// The request to explain.
#[derive(Clone, Debug)]
pub enum Explained {
    /// A find, or the query of an update, a delete, a count or a distinct.
    Find(Find),
    /// An aggregation.
    Aggregate(Aggregate),
}

/// Explains a request.
#[derive(Clone, Debug)]
pub struct Explain {
    /// The request to explain.
    pub explained: Explained,
    /// The depth of the explanation.
    pub verbosity: Verbosity,
}

/// The definition of an index.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexSpec {
    /// The name, unique in the collection.
    pub name: String,
    /// Fields and directions, in order: `{a: 1, "b.c": -1}`.
    pub key: RawDocumentBuf,
    /// Whether two documents may not share a key.
    pub unique: bool,
    /// Whether the index omits documents that have none of the fields.
    pub sparse: bool,
    /// The filter of the documents in the index.
    pub partial_filter: Option<RawDocumentBuf>,
    /// The lifetime of documents in seconds after the date in the only field.
    pub expire_after_seconds: Option<i64>,
    /// Whether the planner ignores the index.
    pub hidden: bool,
    /// The collation of the keys, with all of its fields; `None` keeps strings in the order of their bytes.
    pub collation: Option<RawDocumentBuf>,
    /// MongoDB's obsolete option, which has no effect. It is shown as it was given.
    pub background: Option<bool>,
}

impl IndexSpec {
    /// Creates a definition with MongoDB's default name: `a_1_b.c_-1`.
    pub fn new(key: RawDocumentBuf) -> Self {
        let name = default_index_name(&key);
        IndexSpec {
            name,
            key,
            unique: false,
            sparse: false,
            partial_filter: None,
            expire_after_seconds: None,
            hidden: false,
            collation: None,
            background: None,
        }
    }
}

/// Returns the name that MongoDB's drivers give an index: fields and directions joined by `_`.
pub fn default_index_name(key: &bson::RawDocument) -> String {
    let mut name = String::new();
    for element in key.iter().flatten() {
        if !name.is_empty() {
            name.push('_');
        }
        name.push_str(element.0.as_str());
        name.push('_');
        match RawBson::from(element.1) {
            RawBson::String(kind) => name.push_str(&kind),
            RawBson::Int32(direction) => name.push_str(&direction.to_string()),
            RawBson::Int64(direction) => name.push_str(&direction.to_string()),
            RawBson::Double(direction) => name.push_str(&direction.to_string()),
            _ => {}
        }
    }
    name
}

/// Creates indexes.
#[derive(Clone, Debug)]
pub struct CreateIndexes {
    /// The collection.
    pub namespace: Namespace,
    /// The definitions of the indexes.
    pub indexes: Vec<IndexSpec>,
}

/// A choice of indexes.
#[derive(Clone, Debug, PartialEq)]
pub enum IndexSelector {
    /// All indexes except `_id_`.
    All,
    /// The indexes with these names.
    Names(Vec<String>),
    /// The index with this key.
    Key(RawDocumentBuf),
}

/// Drops indexes.
#[derive(Clone, Debug)]
pub struct DropIndexes {
    /// The collection.
    pub namespace: Namespace,
    /// The indexes to drop.
    pub selector: IndexSelector,
}

/// Changes an index, or the validator, of a collection, or the definition of a view (`collMod`).
#[derive(Clone, Debug)]
pub struct ModifyCollection {
    /// The collection.
    pub namespace: Namespace,
    /// The new settings of an index.
    pub index: Option<ModifyIndex>,
    /// The new settings of the validator.
    pub validator: ModifyValidator,
    /// The new definition of a view.
    pub view: ModifyView,
}

impl ModifyCollection {
    /// Creates a request that only checks that the collection exists.
    pub fn new(namespace: Namespace) -> Self {
        ModifyCollection { namespace, index: None, validator: ModifyValidator::default(), view: ModifyView::default() }
    }
}

/// New settings of an index.
#[derive(Clone, Debug)]
pub struct ModifyIndex {
    /// The index, by name or key.
    pub selector: IndexSelector,
    /// The new lifetime of a TTL index, in seconds.
    pub expire_after_seconds: Option<i64>,
    /// Whether the planner ignores the index from now on.
    pub hidden: Option<bool>,
}

/// Gives a collection another name.
#[derive(Clone, Debug)]
pub struct RenameCollection {
    /// The old name.
    pub from: Namespace,
    /// The new name.
    pub to: Namespace,
    /// Whether a collection with the new name is dropped.
    pub drop_target: bool,
}
