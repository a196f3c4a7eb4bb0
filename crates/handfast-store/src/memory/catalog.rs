//! Collections and indexes.

use bson::{RawDocumentBuf, rawdoc};
use handfast_mql::Code;

use super::MemoryStore;
use super::state::{Collection, IndexState, State};
use crate::index::{Addition, Index, addition, check_expiry_seconds, dropped, selected};
use crate::validation::Validator;
use crate::view::{self, ViewCatalog as _};
use crate::{
    CollectionOptions, CollectionStats, CreateIndexes, DropIndexes, Error, IndexCounts, ModifyCollection, Namespace,
    RenameCollection, Result, default_collation, index,
};

impl MemoryStore {
    pub(super) fn create_indexes_now(&self, request: CreateIndexes) -> Result<IndexCounts> {
        let CreateIndexes { namespace, indexes } = request;
        self.write(|state| {
            let default = state.default_collation(&namespace).cloned();
            let compile = |spec| default_collation::of_index(spec, default.as_ref()).and_then(Index::compile);
            let indexes = indexes.into_iter().map(compile).collect::<Result<Vec<_>>>()?;
            state.collection_or_new(&namespace, || self.sources().uuid())?;
            let collection = existing(state, &namespace)?;
            let before = collection.specs().len();
            for index in indexes {
                if addition(&collection.specs(), index.spec())? == Addition::New {
                    let mut built = IndexState::new(index);
                    for (id, stored) in &collection.documents {
                        built.add(&namespace, id, &stored.document)?;
                    }
                    collection.indexes.push(built);
                }
            }
            Ok(IndexCounts::new(before, collection.specs().len()))
        })
    }

    pub(super) fn drop_indexes_now(&self, request: &DropIndexes) -> Result<u32> {
        self.write(|state| {
            state.refuse_view(&request.namespace)?;
            let collection = existing(state, &request.namespace)?;
            let before = count(collection);
            let indexes = dropped(&request.namespace, &collection.specs(), &request.selector)?;
            // The list of definitions begins with `_id_`, which is never dropped and not in `indexes`.
            for index in indexes.into_iter().rev() {
                collection.indexes.remove(index - 1);
            }
            Ok(before)
        })
    }

    pub(super) fn modify_collection_now(&self, request: &ModifyCollection) -> Result<RawDocumentBuf> {
        self.write(|state| {
            let options = modified(state, request)?;
            let collection = existing(state, &request.namespace)?;
            (collection.validator, collection.options) = (Validator::compile(&options)?, options);
            let Some(change) = &request.index else { return Ok(rawdoc! {}) };
            let specs = collection.specs();
            let position = selected(&request.namespace, &specs, &change.selector)?;
            let mut spec = specs[position].clone();
            let mut answer = rawdoc! {};
            if let Some(seconds) = change.expire_after_seconds {
                check_expiry_seconds(seconds)?;
                if let Some(before) = spec.expire_after_seconds.replace(seconds) {
                    answer.append(bson::raw::cstr!("expireAfterSeconds_old"), before);
                }
                answer.append(bson::raw::cstr!("expireAfterSeconds_new"), seconds);
            }
            if let Some(hidden) = change.hidden {
                answer.append(bson::raw::cstr!("hidden_old"), spec.hidden);
                answer.append(bson::raw::cstr!("hidden_new"), hidden);
                spec.hidden = hidden;
            }
            let index = std::sync::Arc::new(Index::compile(spec)?);
            if let Some(state) = position.checked_sub(1).and_then(|position| collection.indexes.get_mut(position)) {
                state.index = index;
            }
            Ok(answer)
        })
    }

    pub(super) fn rename_collection_now(&self, request: &RenameCollection) -> Result<()> {
        let RenameCollection { from, to, drop_target } = request;
        self.write(|state| {
            if !state.collections.contains_key(from) {
                return Err(no_namespace(&format!("source namespace {from} does not exist")));
            }
            view::check_rename(state, from, to)?;
            if from == to {
                return Err(Error::command(Code::IllegalOperation, "Can't rename a collection to itself"));
            }
            if state.collections.contains_key(to) && !drop_target {
                return Err(Error::command(Code::NamespaceExists, "target namespace exists"));
            }
            state.take(to);
            if let Some(collection) = state.take(from) {
                state.give(to, collection);
            }
            Ok(())
        })
    }

    pub(super) fn stats_now(&self, namespace: &Namespace) -> CollectionStats {
        let state = self.state();
        let Some(collection) = state.collections.get(namespace) else { return CollectionStats::default() };
        let keys = collection.documents.keys().map(|key| key.len() as u64).sum();
        let id = (index::ID_INDEX_NAME.to_owned(), keys);
        let others = collection.indexes.iter().map(|index| (index.index.spec().name.clone(), index.bytes));
        CollectionStats {
            exists: true,
            count: collection.documents.len() as u64,
            size_bytes: collection.size_bytes,
            storage_bytes: 0,
            index_bytes: std::iter::once(id).chain(others).collect(),
        }
    }

    /// Returns the collections of a database, ordered by name.
    pub(super) fn collections_of(&self, state: &State, database: &str) -> Vec<Namespace> {
        let of = |namespace: &&Namespace| namespace.database() == database;
        state.collections.keys().filter(of).cloned().collect()
    }
}

/// Returns the options of a collection or view after a change.
fn modified(state: &State, request: &ModifyCollection) -> Result<CollectionOptions> {
    let namespace = &request.namespace;
    let options = state.options(namespace).ok_or_else(|| no_namespace(&format!("ns does not exist: {namespace}")))?;
    let options = view::modified(namespace, options, request)?;
    view::check_definition(state, namespace, &options)?;
    Ok(options)
}

fn existing<'s>(state: &'s mut State, namespace: &Namespace) -> Result<&'s mut Collection> {
    state.collections.get_mut(namespace).ok_or_else(|| no_namespace(&format!("ns does not exist: {namespace}")))
}

pub(super) fn no_namespace(text: &str) -> Error {
    Error::command(Code::NamespaceNotFound, text)
}

/// Counts the indexes, including the one on `_id`.
fn count(collection: &Collection) -> u32 {
    1 + u32::try_from(collection.indexes.len()).unwrap_or(u32::MAX)
}
