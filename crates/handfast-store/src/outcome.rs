//! The results of requests.

use bson::{RawBson, RawDocumentBuf};

use crate::{CollectionOptions, Error, IndexSpec};

/// The error of one statement or document of a request.
#[derive(Clone, Debug)]
pub struct WriteError {
    /// The index of the statement or document in the request, from 0.
    pub index: usize,
    /// The error.
    pub error: Error,
}

/// The outcome of an insert.
#[derive(Clone, Debug, Default)]
pub struct InsertOutcome {
    /// The number of documents that were inserted.
    pub inserted: u64,
    /// The errors of the others. An ordered request has at most one, and the documents after it were not tried.
    pub errors: Vec<WriteError>,
}

/// The result of inserting one document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inserted;

/// The result of deleting one document: whether there was one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deleted(pub bool);

/// The effect of an update statement on one document.
#[derive(Clone, Debug, PartialEq)]
pub enum Changed {
    /// The filter matched no document.
    Nothing,
    /// The document matched and did not change.
    Same,
    /// The document was changed.
    Modified,
    /// The filter matched no document, and one with this `_id` was inserted.
    Upserted(RawBson),
}

/// The outcome of an update, the sum of its statements.
#[derive(Clone, Debug, Default)]
pub struct UpdateOutcome {
    /// The number of documents that matched a filter, without upserted ones.
    pub matched: u64,
    /// The number of documents that were changed.
    pub modified: u64,
    /// The `_id` of each upserted document, with the index of its statement.
    pub upserted: Vec<(usize, RawBson)>,
    /// The errors of the statements that failed.
    pub errors: Vec<WriteError>,
}

impl UpdateOutcome {
    /// Adds the effect on one document of the statement at this index.
    pub fn count(&mut self, index: usize, changed: Changed) {
        match changed {
            Changed::Nothing => {}
            Changed::Same => self.matched += 1,
            Changed::Modified => {
                self.matched += 1;
                self.modified += 1;
            }
            Changed::Upserted(id) => self.upserted.push((index, id)),
        }
    }
}

/// The outcome of a delete, the sum of its statements.
#[derive(Clone, Debug, Default)]
pub struct DeleteOutcome {
    /// The number of deleted documents.
    pub deleted: u64,
    /// The errors of the statements that failed.
    pub errors: Vec<WriteError>,
}

/// The outcome of a find-and-modify.
#[derive(Clone, Debug, Default)]
pub struct FindAndModifyOutcome {
    /// The projected document before or after the change, as requested; `None` if nothing matched, or if an upsert was to return
    /// the document before.
    pub value: Option<RawDocumentBuf>,
    /// Whether an existing document was changed or removed.
    pub matched: bool,
    /// The `_id` of the upserted document.
    pub upserted: Option<RawBson>,
}

/// A page of the results of a cursor.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The documents in order.
    pub documents: Vec<RawDocumentBuf>,
    /// Whether no further page has documents.
    pub exhausted: bool,
}

/// The events of a change stream.
#[derive(Clone, Debug)]
pub struct ChangePage {
    /// The events in order, as the stages of the stream have made them.
    pub events: Vec<RawDocumentBuf>,
    /// The token behind these events, and behind others that the stream does not show.
    pub resume_token: RawDocumentBuf,
    /// Whether the stream has ended: its collection or database is gone, and the last event says so.
    pub is_ended: bool,
}

/// An index of a collection as `listIndexes` shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexInfo {
    /// The definition.
    pub spec: IndexSpec,
}

/// How many indexes a collection had before `createIndexes`, and has after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexCounts {
    /// The number before.
    pub before: u32,
    /// The number after.
    pub after: u32,
}

impl IndexCounts {
    /// Creates the counts; a number beyond 32 bits becomes the largest one.
    pub fn new(before: usize, after: usize) -> Self {
        let count = |count| u32::try_from(count).unwrap_or(u32::MAX);
        IndexCounts { before: count(before), after: count(after) }
    }
}

/// A collection as `listCollections` shows it.
#[derive(Clone, Debug)]
pub struct CollectionInfo {
    /// The name without the database.
    pub name: String,
    /// The options that it was created with.
    pub options: CollectionOptions,
    /// An id that no other collection has, also not a later one of the same name.
    pub uuid: [u8; 16],
}

/// The counts and sizes of a collection.
#[derive(Clone, Debug, Default)]
pub struct CollectionStats {
    /// Whether the collection exists.
    pub exists: bool,
    /// The number of documents.
    pub count: u64,
    /// The size of all documents as BSON, in bytes.
    pub size_bytes: u64,
    /// The size on disk in bytes, as far as the backend knows.
    pub storage_bytes: u64,
    /// The size of each index in bytes, by name.
    pub index_bytes: Vec<(String, u64)>,
}

/// The result of checking the documents of a collection against its indexes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectionCheck {
    /// The number of documents that were read.
    pub documents: u64,
    /// The results for the indexes, `_id_` first.
    pub indexes: Vec<IndexCheck>,
    /// Descriptions of the errors.
    pub errors: Vec<String>,
    /// The number of errors about documents.
    pub documents_damaged: u64,
}

/// The result for one index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexCheck {
    /// The name of the index.
    pub name: String,
    /// The number of its keys.
    pub keys: u64,
    /// Whether it has the keys of all documents and no others.
    pub valid: bool,
}

/// The position of a commit in the order of one store; 0 is before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommitTimestamp(pub u64);
