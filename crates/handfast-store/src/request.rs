//! What a store can be asked: one struct a request, `new` with what is needed, the rest at its default.

mod atomic;
mod namespace;

pub use atomic::{AtomicBatch, BatchWrite, Before, Creation, DocumentWrite, Read};
pub use namespace::{DATABASE_NAME_BYTES_MAX, NAMESPACE_BYTES_MAX, Namespace, check_database_name};

use bson::{RawBson, RawDocumentBuf, rawdoc};

use crate::Ticket;

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Once it is synced to disk. Concurrent writers share one sync.
    #[default]
    Journaled,
    /// Once it is applied, before the sync: a crash may take back the last moments.
    Memory,
}

/// Inserts documents.
#[derive(Clone, Debug)]
pub struct Insert {
    /// Where to.
    pub namespace: Namespace,
    /// What, in order.
    pub documents: Vec<RawDocumentBuf>,
    /// Stop at the first error.
    pub ordered: bool,
    /// When to acknowledge.
    pub durability: Durability,
    /// Makes the request exactly once, on a store that is an [`AtomicStore`](crate::AtomicStore). Its statements
    /// change one document each.
    pub ticket: Option<Ticket>,
}

impl Insert {
    /// An ordered, journaled insert.
    pub fn new(namespace: Namespace, documents: Vec<RawDocumentBuf>) -> Self {
        Insert { namespace, documents, ordered: true, durability: Durability::default(), ticket: None }
    }
}

/// How a query may use indexes.
#[derive(Clone, Debug, PartialEq)]
pub enum Hint {
    /// The index of this name.
    Name(String),
    /// The index with this key; `{$natural: 1}` scans the collection, `{$natural: -1}` backwards.
    Key(RawDocumentBuf),
}

/// Finds documents.
#[derive(Clone, Debug)]
pub struct Find {
    /// Where.
    pub namespace: Namespace,
    /// Which; empty for all.
    pub filter: RawDocumentBuf,
    /// Which fields; empty for all.
    pub projection: RawDocumentBuf,
    /// In which order; empty for the store's own.
    pub sort: RawDocumentBuf,
    /// How many to pass over.
    pub skip: u64,
    /// How many at most; `None` for all.
    pub limit: Option<u64>,
    /// Which index.
    pub hint: Option<Hint>,
    /// Bounds on the hinted index: from `min` (inclusive) to `max` (exclusive).
    pub min: Option<RawDocumentBuf>,
    /// See `min`.
    pub max: Option<RawDocumentBuf>,
    /// Return only the index keys.
    pub return_key: bool,
    /// Add the store's own record id as `$recordId`; not to keys, which are all that `return_key` shows.
    pub show_record_id: bool,
    /// The variables of `let`, for `$expr`: values ([`Sources::evaluate`](crate::Sources::evaluate)), not expressions.
    pub variables: RawDocumentBuf,
}

impl Find {
    /// Finds all that match.
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
        }
    }
}

/// How much a page may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimit {
    /// Documents at most.
    pub documents: usize,
    /// Bytes of BSON at most; the first document is returned whatever its size.
    pub bytes: usize,
}

impl BatchLimit {
    /// No bound but the bytes of one protocol reply: 16 MiB.
    pub const REPLY: BatchLimit = BatchLimit { documents: usize::MAX, bytes: 16 * 1024 * 1024 };
}

/// A change to a document: operators, a whole new document, or an aggregation pipeline.
#[derive(Clone, Debug, PartialEq)]
pub enum UpdateSpec {
    /// `{$set: ..}` or a replacement: the first field's name tells.
    Document(RawDocumentBuf),
    /// Stages `$set`, `$unset`, `$project`, `$replaceRoot` and their aliases.
    Pipeline(Vec<RawDocumentBuf>),
}

/// One update statement.
#[derive(Clone, Debug)]
pub struct UpdateStatement {
    /// Which documents.
    pub filter: RawDocumentBuf,
    /// The change.
    pub update: UpdateSpec,
    /// All that match instead of the first.
    pub multi: bool,
    /// Insert if none matches.
    pub upsert: bool,
    /// The conditions behind `$[name]`.
    pub array_filters: Vec<RawDocumentBuf>,
    /// Which of several matching documents is the first; only without `multi`.
    pub sort: RawDocumentBuf,
    /// Which index.
    pub hint: Option<Hint>,
    /// The variables of `c`, for pipelines.
    pub constants: RawDocumentBuf,
}

impl UpdateStatement {
    /// Changes the first document that matches.
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
        }
    }
}

/// Runs update statements.
#[derive(Clone, Debug)]
pub struct Update {
    /// Where.
    pub namespace: Namespace,
    /// What, in order.
    pub statements: Vec<UpdateStatement>,
    /// Stop at the first error.
    pub ordered: bool,
    /// When to acknowledge.
    pub durability: Durability,
    /// The variables of `let`, for `$expr` and pipelines.
    pub variables: RawDocumentBuf,
    /// Makes the request exactly once, on a store that is an [`AtomicStore`](crate::AtomicStore). Its statements
    /// change one document each.
    pub ticket: Option<Ticket>,
}

impl Update {
    /// Ordered, journaled.
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

/// Which form of the document a find-and-modify returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReturnDocument {
    /// As it was.
    #[default]
    Before,
    /// As it became.
    After,
}

/// What a find-and-modify does with the document it finds.
#[derive(Clone, Debug, PartialEq)]
pub enum Modification {
    /// Removes it.
    Remove,
    /// Changes it.
    Update {
        /// The change.
        update: UpdateSpec,
        /// Insert if none matches.
        upsert: bool,
        /// Which form to return.
        returns: ReturnDocument,
        /// The conditions behind `$[name]`.
        array_filters: Vec<RawDocumentBuf>,
    },
}

/// Changes or removes one document and returns it.
#[derive(Clone, Debug)]
pub struct FindAndModify {
    /// Where.
    pub namespace: Namespace,
    /// Which document.
    pub filter: RawDocumentBuf,
    /// Which of several matching documents.
    pub sort: RawDocumentBuf,
    /// Which fields to return.
    pub projection: RawDocumentBuf,
    /// What to do with it.
    pub modification: Modification,
    /// Which index.
    pub hint: Option<Hint>,
    /// When to acknowledge.
    pub durability: Durability,
    /// The variables of `let`.
    pub variables: RawDocumentBuf,
    /// Makes the request exactly once, on a store that is an [`AtomicStore`](crate::AtomicStore). Its statements
    /// change one document each.
    pub ticket: Option<Ticket>,
}

impl FindAndModify {
    /// Journaled, any one document that matches.
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
        }
    }
}

/// One delete statement.
#[derive(Clone, Debug)]
pub struct DeleteStatement {
    /// Which documents.
    pub filter: RawDocumentBuf,
    /// All that match instead of the first.
    pub multi: bool,
    /// Which index.
    pub hint: Option<Hint>,
}

/// Runs delete statements.
#[derive(Clone, Debug)]
pub struct Delete {
    /// Where.
    pub namespace: Namespace,
    /// What, in order.
    pub statements: Vec<DeleteStatement>,
    /// Stop at the first error.
    pub ordered: bool,
    /// When to acknowledge.
    pub durability: Durability,
    /// The variables of `let`.
    pub variables: RawDocumentBuf,
    /// Makes the request exactly once, on a store that is an [`AtomicStore`](crate::AtomicStore). Its statements
    /// change one document each.
    pub ticket: Option<Ticket>,
}

impl Delete {
    /// Ordered, journaled.
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

/// What an aggregation reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AggregateSource {
    /// The documents of a collection.
    Collection(Namespace),
    /// Nothing but what its first stage makes (`aggregate: 1`, with `$documents`).
    Database(String),
}

/// Runs an aggregation pipeline.
#[derive(Clone, Debug)]
pub struct Aggregate {
    /// What it reads.
    pub source: AggregateSource,
    /// The stages.
    pub pipeline: Vec<RawDocumentBuf>,
    /// Which index the first stages use.
    pub hint: Option<Hint>,
    /// The variables of `let`.
    pub variables: RawDocumentBuf,
    /// When `$out` and `$merge` acknowledge.
    pub durability: Durability,
}

impl Aggregate {
    /// Over a collection.
    pub fn new(namespace: Namespace, pipeline: Vec<RawDocumentBuf>) -> Self {
        Aggregate {
            source: AggregateSource::Collection(namespace),
            pipeline,
            hint: None,
            variables: rawdoc! {},
            durability: Durability::default(),
        }
    }
}

/// Counts documents.
#[derive(Clone, Debug)]
pub struct Count {
    /// Where.
    pub namespace: Namespace,
    /// Which.
    pub filter: RawDocumentBuf,
    /// How many to pass over.
    pub skip: u64,
    /// Where to stop counting.
    pub limit: Option<u64>,
    /// Which index.
    pub hint: Option<Hint>,
}

impl Count {
    /// All that match.
    pub fn new(namespace: Namespace, filter: RawDocumentBuf) -> Self {
        Count { namespace, filter, skip: 0, limit: None, hint: None }
    }
}

/// Lists distinct values.
#[derive(Clone, Debug)]
pub struct Distinct {
    /// Where.
    pub namespace: Namespace,
    /// The dotted path.
    pub key: String,
    /// Of which documents.
    pub filter: RawDocumentBuf,
    /// Which index.
    pub hint: Option<Hint>,
}

/// How much an explain does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verbosity {
    /// Plans only.
    #[default]
    QueryPlanner,
    /// Runs the query (a write is judged, not applied) and counts what it examined.
    ExecutionStats,
}

/// What to explain.
#[derive(Clone, Debug)]
pub enum Explained {
    /// A find; also what an update, a delete, a count or a distinct looks for.
    Find(Find),
    /// An aggregation.
    Aggregate(Aggregate),
}

/// Explains a request.
#[derive(Clone, Debug)]
pub struct Explain {
    /// What.
    pub explained: Explained,
    /// How far.
    pub verbosity: Verbosity,
}

/// The definition of an index.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexSpec {
    /// Its name, unique in the collection.
    pub name: String,
    /// Fields and directions, in order: `{a: 1, "b.c": -1}`.
    pub key: RawDocumentBuf,
    /// No two documents share a key.
    pub unique: bool,
    /// Only documents that have one of the fields.
    pub sparse: bool,
    /// Only documents that match.
    pub partial_filter: Option<RawDocumentBuf>,
    /// Documents expire this many seconds after the date in the (only) field.
    pub expire_after_seconds: Option<i64>,
    /// Kept and ignored by the planner.
    pub hidden: bool,
}

impl IndexSpec {
    /// An index with MongoDB's default name: `a_1_b.c_-1`.
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
        }
    }
}

/// The name that MongoDB's drivers give an index: fields and directions joined by `_`.
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
    /// Where.
    pub namespace: Namespace,
    /// Which.
    pub indexes: Vec<IndexSpec>,
}

/// Which indexes to drop.
#[derive(Clone, Debug, PartialEq)]
pub enum IndexSelector {
    /// All but `_id_`.
    All,
    /// Those of these names.
    Names(Vec<String>),
    /// The one with this key.
    Key(RawDocumentBuf),
}

/// Drops indexes.
#[derive(Clone, Debug)]
pub struct DropIndexes {
    /// Where.
    pub namespace: Namespace,
    /// Which.
    pub selector: IndexSelector,
}

/// How a collection was created. Handfast's collections have no options yet; an unknown one is refused by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CollectionOptions {}

/// Changes an index of a collection (`collMod`).
#[derive(Clone, Debug)]
pub struct ModifyCollection {
    /// Where.
    pub namespace: Namespace,
    /// Which index, and its new settings; none to check that the collection is there.
    pub index: Option<ModifyIndex>,
}

/// New settings of an index.
#[derive(Clone, Debug)]
pub struct ModifyIndex {
    /// By name or key.
    pub selector: IndexSelector,
    /// A new lifetime.
    pub expire_after_seconds: Option<i64>,
    /// Hide from the planner, or show.
    pub hidden: Option<bool>,
}

/// Gives a collection another name.
#[derive(Clone, Debug)]
pub struct RenameCollection {
    /// From.
    pub from: Namespace,
    /// To.
    pub to: Namespace,
    /// Drop a collection that is in the way.
    pub drop_target: bool,
}
