//! Creating and dropping indexes.
//!
//! An index on a collection that has documents is built beside the writers: first it is put into the catalog,
//! incomplete, and from then on every write keeps it up to date; then the documents that were there before are indexed,
//! some at a time, each in its newest state; then it is complete, and queries may use it. If a document cannot be
//! indexed (two of them share a unique key), the index is dropped again. A store that was killed in between drops the
//! incomplete index when it is opened: nobody was told that it exists.

use std::ops::Bound;
use std::sync::Arc;

use bson::raw::cstr;
use bson::{RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_store::index::{Addition, Index, addition, check_expiry_seconds, dropped, selected};
use handfast_store::{
    CreateIndexes, DropIndexes, Error as StoreError, IndexInfo, IndexSpec, ModifyCollection, Namespace,
    Result as StoreResult,
};

use crate::catalog::{Collection, CollectionIndex};
use crate::committer::{Answer, Writer};
use crate::engine::{Direction, Keyspace};
use crate::format::{CollectionId, IndexId, MetadataKey, collection_prefix};
use crate::store::EmbeddedStore;

/// How many indexes there were and are, and which must be built.
pub(crate) struct Added {
    before: u32,
    after: u32,
    build: Vec<(CollectionId, IndexId)>,
}

impl EmbeddedStore {
    pub(crate) async fn add_indexes(&self, request: CreateIndexes) -> StoreResult<(u32, u32)> {
        let uuid = self.uuid();
        let namespace = request.namespace.clone();
        let indexes = request.indexes.into_iter().map(Index::compile).collect::<StoreResult<Vec<_>>>()?;
        let added = self.change_catalog(move |writer| add_to_catalog(writer, &namespace, uuid, indexes)).await?;
        for (place, (collection, index)) in added.build.iter().enumerate() {
            if let Err(error) = self.build(*collection, *index).await {
                for (collection, index) in added.build[place..].iter().copied() {
                    self.change_catalog(move |writer| drop_index(writer, collection, index)).await?;
                }
                self.removal_is_due();
                return Err(error);
            }
        }
        Ok((added.before, added.after))
    }

    /// Indexes the documents that were there before the index.
    async fn build(&self, collection: CollectionId, index: IndexId) -> StoreResult<()> {
        let mut after = None;
        loop {
            let keys = self.next_documents(collection, after.take()).await?;
            let Some(last) = keys.last().cloned() else {
                break;
            };
            let bytes = keys.iter().map(Vec::len).sum();
            let step = move |writer: &mut Writer<'_>| build_step(writer, collection, index, &keys);
            self.inner.committer.submit(Answer::Applied, bytes, step).await?;
            after = Some(last);
        }
        self.change_catalog(move |writer| {
            change_index(writer, collection, index, |entry| entry.complete = true);
            Ok(())
        })
        .await
    }

    /// The `_id` keys of some documents after a key, in the newest state.
    async fn next_documents(&self, collection: CollectionId, after: Option<Vec<u8>>) -> StoreResult<Vec<Vec<u8>>> {
        let view = self.latest().view;
        let count = self.inner.options.step_documents_max.max(1);
        let keys = tokio::task::spawn_blocking(move || {
            let prefix = collection_prefix(collection);
            let start = match after {
                Some(id_key) => Bound::Excluded([&prefix[..], &id_key].concat()),
                None => Bound::Included(prefix.to_vec()),
            };
            let range = (start, crate::engine::after_prefix(&prefix));
            let rows = view.range(Keyspace::Documents, range, Direction::Forward);
            rows.take(count).map(|row| row.map(|(key, _)| key[4..].to_vec())).collect::<crate::Result<Vec<_>>>()
        });
        let keys = keys.await.map_err(|error| crate::Error::Engine(error.to_string()))?;
        Ok(keys?)
    }

    pub(crate) async fn remove_indexes(&self, request: DropIndexes) -> StoreResult<u32> {
        let before = self
            .change_catalog(move |writer| {
                let collection = existing(writer, &request.namespace)?;
                let specs = collection.index_specs();
                let places = dropped(&request.namespace, &specs, &request.selector)?;
                for place in places {
                    // Place 0 is `_id_`, which is refused above.
                    if let Some(index) = place.checked_sub(1).and_then(|place| collection.indexes.get(place)) {
                        drop_index(writer, collection.id, index.id)?;
                    }
                }
                Ok(specs.len())
            })
            .await?;
        self.removal_is_due();
        Ok(u32::try_from(before).unwrap_or(u32::MAX))
    }

    pub(crate) fn indexes_of(&self, namespace: &Namespace) -> StoreResult<Vec<IndexInfo>> {
        let snapshot = self.snapshot_now();
        let collection = self.collection(&snapshot, namespace).ok_or_else(|| not_found(namespace))?;
        let complete = collection.indexes.iter().filter(|index| index.complete);
        let specs = std::iter::once(IndexSpec::id()).chain(complete.map(|index| index.spec().clone()));
        Ok(specs.map(|spec| IndexInfo { spec }).collect())
    }

    pub(crate) async fn modify(&self, request: ModifyCollection) -> StoreResult<RawDocumentBuf> {
        self.change_catalog(move |writer| {
            let collection = existing(writer, &request.namespace)?;
            let Some(change) = request.index else {
                return Ok(rawdoc! {});
            };
            let place = selected(&request.namespace, &collection.index_specs(), &change.selector)?;
            let Some(index) = place.checked_sub(1).and_then(|place| collection.indexes.get(place)) else {
                let text = "the index on _id can be neither hidden nor given a lifetime";
                return Err(StoreError::command(Code::BadValue, text));
            };
            let mut spec = index.spec().clone();
            let mut answer = RawDocumentBuf::new();
            if let Some(seconds) = change.expire_after_seconds {
                check_expiry_seconds(seconds)?;
                if let Some(old) = spec.expire_after_seconds {
                    answer.append(cstr!("expireAfterSeconds_old"), old);
                }
                answer.append(cstr!("expireAfterSeconds_new"), seconds);
                spec.expire_after_seconds = Some(seconds);
            }
            if let Some(hidden) = change.hidden.filter(|hidden| *hidden != spec.hidden) {
                answer.append(cstr!("hidden_old"), spec.hidden);
                answer.append(cstr!("hidden_new"), hidden);
                spec.hidden = hidden;
            }
            let changed = Index::compile(spec)?;
            change_index(writer, collection.id, index.id, |entry| entry.index = changed);
            Ok(answer)
        })
        .await
    }
}

fn existing(writer: &Writer<'_>, namespace: &Namespace) -> StoreResult<Arc<Collection>> {
    writer.collection(namespace).ok_or_else(|| not_found(namespace))
}

fn not_found(namespace: &Namespace) -> StoreError {
    StoreError::command(Code::NamespaceNotFound, format!("ns does not exist: {namespace}"))
}

/// Puts indexes into the catalog; those of a collection with documents are still to be built.
pub(crate) fn add_to_catalog(
    writer: &mut Writer<'_>,
    namespace: &Namespace,
    uuid: [u8; 16],
    indexes: Vec<Index>,
) -> StoreResult<Added> {
    let collection = writer.ensure_collection(namespace, uuid)?;
    let is_empty = writer.catalog().counts(collection.id).documents == 0;
    let mut changed = Collection::clone(&collection);
    let before = changed.index_specs().len();
    let mut build = Vec::new();
    for index in indexes {
        if addition(&changed.index_specs(), index.spec())? == Addition::New {
            let id = changed.add_index(index, is_empty);
            if !is_empty {
                build.push((collection.id, id));
            }
        }
    }
    let after = changed.index_specs().len();
    if after != before {
        writer.put_collection(Arc::new(changed));
    }
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    Ok(Added { before: count(before), after: count(after), build })
}

fn build_step(
    writer: &mut Writer<'_>,
    collection: CollectionId,
    index: IndexId,
    id_keys: &[Vec<u8>],
) -> StoreResult<()> {
    for id_key in id_keys {
        let Some((found, entry)) = find_index(writer, collection, index) else {
            let text = "the index, or its collection, was dropped while the index was built";
            return Err(StoreError::command(Code::IndexNotFound, text));
        };
        // A document that is gone since needs no entry; one that was changed since has it already, and gets it again.
        if let Some(stored) = writer.get(collection, id_key)? {
            writer.index_document(&found, &entry, id_key, stored.document()?)?;
        }
    }
    Ok(())
}

fn find_index(
    writer: &Writer<'_>,
    collection: CollectionId,
    index: IndexId,
) -> Option<(Arc<Collection>, Arc<CollectionIndex>)> {
    let collection = writer.catalog().by_id(collection)?.clone();
    let entry = collection.indexes.iter().find(|entry| entry.id == index)?.clone();
    Some((collection, entry))
}

fn change_index(
    writer: &mut Writer<'_>,
    collection: CollectionId,
    index: IndexId,
    change: impl FnOnce(&mut CollectionIndex),
) {
    if let Some((collection, _)) = find_index(writer, collection, index) {
        let mut changed = Collection::clone(&collection);
        if let Some(entry) = changed.indexes.iter_mut().find(|entry| entry.id == index) {
            change(Arc::make_mut(entry));
        }
        writer.put_collection(Arc::new(changed));
    }
}

/// Takes an index out of the catalog, if it is there; its entries are removed later.
pub(crate) fn drop_index(writer: &mut Writer<'_>, collection: CollectionId, index: IndexId) -> StoreResult<()> {
    if let Some((collection, _)) = find_index(writer, collection, index) {
        let mut changed = Collection::clone(&collection);
        changed.indexes.retain(|entry| entry.id != index);
        let id = collection.id;
        writer.put_collection(Arc::new(changed));
        writer.note_dropped(MetadataKey::DroppedIndex(id, index));
    }
    Ok(())
}
