//! Snapshots and batches.

use std::sync::Arc;

use async_trait::async_trait;
use bson::{RawBsonRef, RawDocumentBuf};
use handfast_mql::{Code, CompileOptions, Filter};

use super::state::{IndexState, State, id_key};
use super::{MemoryStore, ticketed};
use crate::index::{Addition, Index, addition, key_conflict};
use crate::validation::Validator;
use crate::view::{self, ResolvedView};
use crate::{
    AtomicBatch, AtomicStore, BatchWrite, CommitTimestamp, Creation, Cursor, DocumentWrite, Error, Find, Namespace,
    Read, Result, Snapshot, default_collation, insertion, notation,
};

#[async_trait]
impl AtomicStore for MemoryStore {
    async fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        Ok(Box::new(MemorySnapshot { store: self.clone(), state: self.state() }))
    }

    async fn commit(&self, batch: AtomicBatch) -> Result<CommitTimestamp> {
        let (ticket, now) = (batch.ticket, self.sources().steady_now());
        self.write(|state| {
            ticketed::once(state, ticket, now, || self.sources().uuid(), |state| self.apply(state, batch))
        })
    }
}

impl MemoryStore {
    /// Applies a whole batch to a state; the caller discards the state after an error.
    fn apply(&self, state: &mut State, batch: AtomicBatch) -> Result<CommitTimestamp> {
        for read in &batch.reads {
            self.check_read(state, batch.read_at, read)?;
        }
        for creation in batch.creations {
            create(state, creation)?;
        }
        // All old documents are removed before the new ones are added, as a unique key may move from one document to another.
        let mut records = Vec::with_capacity(batch.writes.len());
        for write in &batch.writes {
            let BatchWrite { namespace, id, .. } = write;
            let key = id_key(id.as_raw_bson_ref());
            if state.changed_at(namespace, &key) > batch.read_at.0 {
                return Err(conflict(namespace, id.as_raw_bson_ref()));
            }
            let removed = state.remove(namespace, &key)?;
            if removed.is_none() && write.is_delete() {
                // The transaction inserted the document and deleted it again.
                state.note_deletion(namespace, &key);
            }
            records.push(removed);
        }
        let context = self.sources().context(&RawDocumentBuf::new());
        for (BatchWrite { namespace, id, write, validation, .. }, removed) in batch.writes.into_iter().zip(records) {
            let DocumentWrite::Put(document) = write else { continue };
            let document = checked(document, id.as_raw_bson_ref())?;
            state.collection_or_new(&namespace, || self.sources().uuid())?;
            let before = removed.as_ref().map(|stored| &*stored.document);
            state.validate(&namespace, before, &document, validation, &context)?;
            let record = removed.map(|stored| stored.record);
            let taken_since = state.keys_were_taken_since(&namespace, &document, batch.read_at.0)?;
            state.add(&namespace, document, record).map_err(|error| match error.code() {
                Code::DuplicateKey if taken_since => key_conflict(&error),
                _ => error,
            })?;
        }
        Ok(CommitTimestamp(state.commit))
    }

    fn check_read(&self, state: &State, read_at: CommitTimestamp, read: &Read) -> Result<()> {
        match read {
            Read::Document(namespace, id) => {
                if state.changed_at(namespace, &id_key(id.as_raw_bson_ref())) > read_at.0 {
                    return Err(conflict(namespace, id.as_raw_bson_ref()));
                }
            }
            Read::Matching { namespace, filter, variables } => {
                let filter = Filter::compile(filter, &CompileOptions::with_variables(variables)?)?;
                let context = self.sources().context(variables);
                // A filter that fails for a changed document counts as another result.
                let matches = |document: &RawDocumentBuf| filter.matches(document, &context).unwrap_or(true);
                if state.answers_differently(namespace, read_at.0, matches) {
                    return Err(ticketed::read_conflict(namespace));
                }
            }
        }
        Ok(())
    }
}

fn create(state: &mut State, creation: Creation) -> Result<()> {
    let Creation { namespace, options, indexes, uuid } = creation;
    if state.collections.contains_key(&namespace) {
        let text = format!("write conflict: the collection {namespace} was created by another client meanwhile");
        return Err(Error::command(Code::WriteConflict, text));
    }
    view::check_definition(state, &namespace, &options)?;
    state.collection_or_new(&namespace, || uuid)?;
    if let Some(collection) = state.collections.get_mut(&namespace) {
        (collection.validator, collection.options) = (Validator::compile(&options)?, options);
        for spec in indexes {
            let index = Index::compile(default_collation::of_index(spec, collection.options.collation.as_ref())?)?;
            if addition(&collection.specs(), index.spec())? == Addition::New {
                collection.indexes.push(IndexState::new(index));
            }
        }
    }
    Ok(())
}

/// Prepares a document of a batch and checks that it has the `_id` of its write.
fn checked(document: RawDocumentBuf, id: RawBsonRef<'_>) -> Result<RawDocumentBuf> {
    insertion::check_id(id)?;
    insertion::check_structure(&document)?;
    insertion::check_size(&document)?;
    let own = document.get("_id").map_err(handfast_mql::Error::from)?;
    match own {
        Some(own) if id_key(own) == id_key(id) => Ok(document),
        _ => Err(Error::command(Code::BadValue, "a document of the batch has another _id than the batch says")),
    }
}

fn conflict(namespace: &Namespace, id: RawBsonRef<'_>) -> Error {
    let id = notation::value(id);
    let text = format!("write conflict: the document with _id {id} in {namespace} has been changed since it was read");
    Error::command(Code::WriteConflict, text)
}

struct MemorySnapshot {
    store: MemoryStore,
    state: State,
}

#[async_trait]
impl Snapshot for MemorySnapshot {
    fn timestamp(&self) -> CommitTimestamp {
        CommitTimestamp(self.state.commit)
    }

    async fn get(&self, namespace: &Namespace, id: RawBsonRef<'_>) -> Result<Option<RawDocumentBuf>> {
        let collection = self.state.collections.get(namespace);
        let stored = collection.and_then(|collection| collection.documents.get(&id_key(id)));
        Ok(stored.map(|stored| stored.document.clone()))
    }

    async fn find(&self, request: Find) -> Result<Box<dyn Cursor>> {
        self.store.find_in(&self.state, &request)
    }

    fn is_unchanged(&self, namespace: &Namespace, id: RawBsonRef<'_>) -> bool {
        self.store.state().changed_at(namespace, &id_key(id)) <= self.state.commit
    }

    fn validator(&self, namespace: &Namespace) -> Option<Arc<Validator>> {
        self.state.collections.get(namespace)?.validator.clone()
    }

    fn default_collation(&self, namespace: &Namespace) -> Option<RawDocumentBuf> {
        self.state.default_collation(namespace).cloned()
    }

    fn view(&self, namespace: &Namespace) -> Result<Option<ResolvedView>> {
        view::resolve(&self.state, namespace)
    }
}
