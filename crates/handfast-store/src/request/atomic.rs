//! The batches that an [`AtomicStore`](crate::AtomicStore) commits.

use std::sync::Arc;

use bson::{RawBson, RawDocumentBuf};

use super::{CollectionOptions, Durability, IndexSpec, Namespace, Validation};
use crate::{CommitTimestamp, Ticket};

/// The new state of one document.
#[derive(Clone, Debug, PartialEq)]
pub enum DocumentWrite {
    /// The document with its `_id`.
    Put(RawDocumentBuf),
    /// There is no document.
    Delete,
}

/// The kind of a write to a document that exists, which a change stream shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteKind {
    /// Operators or a pipeline changed fields of the document.
    #[default]
    Update,
    /// Another document took its place.
    Replacement,
}

/// The version of a written document in the snapshot.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Before {
    /// The version is not known.
    #[default]
    Unread,
    /// There is no document.
    Nothing,
    /// The document.
    Document(Arc<RawDocumentBuf>),
}

/// A write of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchWrite {
    /// The collection.
    pub namespace: Namespace,
    /// The `_id` of the document.
    pub id: RawBson,
    /// The new state of the document.
    pub write: DocumentWrite,
    /// The version in the snapshot, as `Snapshot::get` returned it. A store that knows that the document has not changed since
    /// need not read it again.
    pub before: Before,
    /// The kind of the write, if there was a document.
    pub kind: WriteKind,
    /// Its place in the order in which the writes were made. A change stream shows them in this order.
    pub place: u32,
    /// Whether the validator of the collection is applied.
    pub validation: Validation,
}

impl BatchWrite {
    /// Creates a write that does not say which version the snapshot has.
    pub fn new(namespace: Namespace, id: impl Into<RawBson>, write: DocumentWrite) -> Self {
        let (before, kind, validation) = (Before::default(), WriteKind::default(), Validation::default());
        BatchWrite { namespace, id: id.into(), write, before, kind, place: 0, validation }
    }

    /// Adds the version in the snapshot.
    #[must_use]
    pub fn after(self, before: Before) -> Self {
        BatchWrite { before, ..self }
    }

    /// Sets the kind and the place.
    #[must_use]
    pub fn logged_as(self, kind: WriteKind, place: u32) -> Self {
        BatchWrite { kind, place, ..self }
    }

    /// Sets whether the validator of the collection is applied.
    #[must_use]
    pub fn with_validation(self, validation: Validation) -> Self {
        BatchWrite { validation, ..self }
    }

    /// Returns whether the write deletes the document.
    pub fn is_delete(&self) -> bool {
        self.write == DocumentWrite::Delete
    }
}

/// A read that a batch depends on, beside the documents that it writes.
#[derive(Clone, Debug, PartialEq)]
pub enum Read {
    /// A document, or its absence.
    Document(Namespace, RawBson),
    /// The set of matching documents. The commit evaluates the filter again, so its result may depend on the documents alone, not
    /// on time or randomness.
    Matching {
        /// The collection.
        namespace: Namespace,
        /// The filter.
        filter: RawDocumentBuf,
        /// The variables of `let`, for `$expr`.
        variables: RawDocumentBuf,
    },
}

/// A collection that a batch creates, with its indexes.
#[derive(Clone, Debug, PartialEq)]
pub struct Creation {
    /// The collection, which must not exist.
    pub namespace: Namespace,
    /// The options.
    pub options: CollectionOptions,
    /// The indexes besides `_id_`.
    pub indexes: Vec<IndexSpec>,
    /// The id of the collection, which no other one has.
    pub uuid: [u8; 16],
}

/// A batch of writes, which is applied as a whole or not at all.
#[derive(Clone, Debug)]
pub struct AtomicBatch {
    /// The timestamp of the snapshot that the batch has read.
    pub read_at: CommitTimestamp,
    /// The reads that must not have changed since then. The written documents are checked without being listed.
    pub reads: Vec<Read>,
    /// The collections to create first.
    pub creations: Vec<Creation>,
    /// The writes, at most one for each document.
    pub writes: Vec<BatchWrite>,
    /// A ticket for exactly-once execution. A batch whose ticket was used is not applied again and returns the timestamp of the
    /// first commit.
    pub ticket: Option<Ticket>,
    /// The moment of the acknowledgement.
    pub durability: Durability,
}

impl AtomicBatch {
    /// Creates an empty batch that has read the snapshot of this timestamp.
    pub fn new(read_at: CommitTimestamp) -> Self {
        AtomicBatch {
            read_at,
            reads: Vec::new(),
            creations: Vec::new(),
            writes: Vec::new(),
            ticket: None,
            durability: Durability::default(),
        }
    }
}
