//! What an [`AtomicStore`](crate::AtomicStore) commits at once.

use std::sync::Arc;

use bson::{RawBson, RawDocumentBuf};

use super::{CollectionOptions, Durability, IndexSpec, Namespace};
use crate::{CommitTimestamp, Ticket};

/// The new state of one document.
#[derive(Clone, Debug, PartialEq)]
pub enum DocumentWrite {
    /// The document, with its `_id`.
    Put(RawDocumentBuf),
    /// No document.
    Delete,
}

/// What the snapshot has in the place of a write.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Before {
    /// The writer has not read it, or does not say.
    #[default]
    Unread,
    /// No document.
    Nothing,
    /// This document.
    Document(Arc<RawDocumentBuf>),
}

/// A write of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchWrite {
    /// Where.
    pub namespace: Namespace,
    /// The `_id` of the document.
    pub id: RawBson,
    /// Its new state.
    pub write: DocumentWrite,
    /// What the snapshot has in its place, as the snapshot's `get` answered. A store that knows that nobody has written there since
    /// need not read it again.
    pub before: Before,
}

impl BatchWrite {
    /// A write that does not say what was there before.
    pub fn new(namespace: Namespace, id: impl Into<RawBson>, write: DocumentWrite) -> Self {
        BatchWrite { namespace, id: id.into(), write, before: Before::Unread }
    }

    /// The same, with what the snapshot has in its place.
    #[must_use]
    pub fn after(self, before: Before) -> Self {
        BatchWrite { before, ..self }
    }

    /// Whether no document is left.
    pub fn is_delete(&self) -> bool {
        self.write == DocumentWrite::Delete
    }
}

/// What a batch was decided from, beside the documents that it writes.
#[derive(Clone, Debug, PartialEq)]
pub enum Read {
    /// One document, there or not.
    Document(Namespace, RawBson),
    /// All documents that match, and that there are no others. The filter is asked again at the commit, so it is one
    /// whose answer depends on the documents alone, not on time or chance.
    Matching {
        /// Where.
        namespace: Namespace,
        /// Which.
        filter: RawDocumentBuf,
        /// The variables of `let`, for `$expr`.
        variables: RawDocumentBuf,
    },
}

/// A collection that a batch makes, with its indexes.
#[derive(Clone, Debug, PartialEq)]
pub struct Creation {
    /// Where; nothing may be there yet.
    pub namespace: Namespace,
    /// How.
    pub options: CollectionOptions,
    /// Those besides `_id_`.
    pub indexes: Vec<IndexSpec>,
    /// Its id, which no other collection has.
    pub uuid: [u8; 16],
}

/// Writes to apply all or not at all.
#[derive(Clone, Debug)]
pub struct AtomicBatch {
    /// The snapshot that the writes were made from.
    pub read_at: CommitTimestamp,
    /// What must not have changed since then. What the batch writes is looked at without being listed.
    pub reads: Vec<Read>,
    /// Collections to make first.
    pub creations: Vec<Creation>,
    /// What it writes. An `_id` comes up at most once in a namespace.
    pub writes: Vec<BatchWrite>,
    /// A batch whose ticket was used is not applied again: it answers the timestamp of the first commit.
    pub ticket: Option<Ticket>,
    /// When to acknowledge.
    pub durability: Durability,
}

impl AtomicBatch {
    /// Nothing, made from a snapshot of this timestamp.
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
