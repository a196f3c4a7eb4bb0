//! What a store answers.

use bson::{RawBson, RawDocumentBuf};

use crate::{CollectionOptions, Error, IndexSpec};

/// One statement of a request that failed, by its place in the request.
#[derive(Clone, Debug)]
pub struct WriteError {
    /// The statement's or document's place in the request, from 0.
    pub index: usize,
    /// Why it failed.
    pub error: Error,
}

/// What an insert did.
#[derive(Clone, Debug, Default)]
pub struct InsertOutcome {
    /// How many documents are in.
    pub inserted: u64,
    /// Those that are not. With `ordered`, at most one, and nothing after it was tried.
    pub errors: Vec<WriteError>,
}

/// One document was inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inserted;

/// Whether one document was deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deleted(pub bool);

/// What became of one document of an update.
#[derive(Clone, Debug, PartialEq)]
pub enum Changed {
    /// None matched.
    Nothing,
    /// It matched, and is as it was.
    Same,
    /// It is different now.
    Modified,
    /// None matched; one with this `_id` was inserted.
    Upserted(RawBson),
}

/// What an update did, all its statements together.
#[derive(Clone, Debug, Default)]
pub struct UpdateOutcome {
    /// Documents that matched a filter; an upserted one does not count.
    pub matched: u64,
    /// Documents that are different now.
    pub modified: u64,
    /// The `_id` of each document that was upserted, with its statement's place.
    pub upserted: Vec<(usize, RawBson)>,
    /// Statements that failed.
    pub errors: Vec<WriteError>,
}

impl UpdateOutcome {
    /// Adds what became of one document of the statement at this place.
    pub fn count(&mut self, place: usize, changed: Changed) {
        match changed {
            Changed::Nothing => {}
            Changed::Same => self.matched += 1,
            Changed::Modified => {
                self.matched += 1;
                self.modified += 1;
            }
            Changed::Upserted(id) => self.upserted.push((place, id)),
        }
    }
}

/// What a delete did, all its statements together.
#[derive(Clone, Debug, Default)]
pub struct DeleteOutcome {
    /// Documents that are gone.
    pub deleted: u64,
    /// Statements that failed.
    pub errors: Vec<WriteError>,
}

/// What a find-and-modify did.
#[derive(Clone, Debug, Default)]
pub struct FindAndModifyOutcome {
    /// The document before or after the change, as asked for, projected; none if nothing matched (or if an upsert was
    /// asked for the document before).
    pub value: Option<RawDocumentBuf>,
    /// Whether a document that existed was changed or removed.
    pub matched: bool,
    /// The `_id` of a document that was upserted.
    pub upserted: Option<RawBson>,
}

/// Some results of a cursor.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The documents, in order.
    pub documents: Vec<RawDocumentBuf>,
    /// No further page has documents.
    pub exhausted: bool,
}

/// An index of a collection.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexInfo {
    /// Its definition.
    pub spec: IndexSpec,
}

/// A collection as `listCollections` shows it.
#[derive(Clone, Debug)]
pub struct CollectionInfo {
    /// Its name within the database.
    pub name: String,
    /// How it was created.
    pub options: CollectionOptions,
    /// An id that a collection of the same name created later does not share.
    pub uuid: [u8; 16],
}

/// Counts and sizes.
#[derive(Clone, Debug, Default)]
pub struct CollectionStats {
    /// Whether the collection exists.
    pub exists: bool,
    /// Documents.
    pub count: u64,
    /// Bytes of BSON of all documents.
    pub size_bytes: u64,
    /// Bytes on disk, as far as the backend can tell.
    pub storage_bytes: u64,
    /// Bytes of each index, by name.
    pub index_bytes: Vec<(String, u64)>,
}

/// Whether the documents of a collection and its indexes agree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectionCheck {
    /// Documents that were read.
    pub documents: u64,
    /// Its indexes, `_id_` first.
    pub indexes: Vec<IndexCheck>,
    /// What is not as it should be, for people.
    pub errors: Vec<String>,
    /// How many of them are about documents.
    pub documents_damaged: u64,
}

/// What was found of one index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexCheck {
    /// Its name.
    pub name: String,
    /// Keys that it holds.
    pub keys: u64,
    /// Whether it holds the keys of all documents, and no others.
    pub valid: bool,
}

/// A moment in the order of commits of one store: 0 is before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommitTimestamp(pub u64);
