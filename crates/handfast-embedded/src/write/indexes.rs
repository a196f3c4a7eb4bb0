//! Indexes in the catalog: added, changed, dropped. [`index_build`](super::index_build) builds one over existing documents.

use std::sync::Arc;

use bson::raw::cstr;
use bson::{RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_store::change_stream::record;
use handfast_store::index::{Addition, Index, addition, check_expiry_seconds, dropped, selected};
use handfast_store::{
    DropIndexes, Error as StoreError, IndexCounts, IndexInfo, IndexSpec, ModifyCollection, ModifyValidator, Namespace,
    Result as StoreResult, view,
};

use super::context::WriteContext;
use crate::catalog::{Collection, CollectionIndex};
use crate::committer::{Snapshot, Writer};
use crate::format::{CollectionId, IndexId, MetadataKey};

/// The indexes that were added to the catalog.
pub(crate) struct AddedIndexes {
    pub(super) counts: IndexCounts,
    /// Those that must be built.
    pub(super) build: Vec<(CollectionId, IndexId)>,
}

/// Returns the number of indexes before.
pub(crate) async fn drop_indexes(context: &WriteContext, request: DropIndexes) -> StoreResult<u32> {
    let before = context
        .change_catalog(move |writer| {
            let collection = existing(writer, &request.namespace)?;
            view::refuse(&request.namespace, &collection.options)?;
            let specs = collection.index_specs();
            let positions = dropped(&request.namespace, &specs, &request.selector)?;
            let gone: Vec<_> = positions.iter().filter_map(|position| specs.get(*position)).collect();
            if !gone.is_empty() {
                writer.log_catalog(&collection, |collection| {
                    record::of_indexes(&collection.namespace, "dropIndexes", gone)
                });
            }
            for position in positions {
                // Position 0 is `_id_`, which is refused above.
                if let Some(index) = position.checked_sub(1).and_then(|position| collection.indexes.get(position)) {
                    drop_index(writer, collection.id, index.id)?;
                }
            }
            Ok(specs.len())
        })
        .await?;
    context.key_removal.notify_one();
    Ok(u32::try_from(before).unwrap_or(u32::MAX))
}

pub(crate) fn list_indexes(snapshot: &Snapshot, namespace: &Namespace) -> StoreResult<Vec<IndexInfo>> {
    let collection = snapshot.catalog().get(namespace).ok_or_else(|| not_found(namespace))?;
    view::refuse(namespace, &collection.options)?;
    let complete = collection.indexes.iter().filter(|index| index.complete);
    let id = IndexSpec { collation: collection.options.collation.clone(), ..IndexSpec::id() };
    let specs = std::iter::once(id).chain(complete.map(|index| index.spec().clone()));
    Ok(specs.map(|spec| IndexInfo { spec }).collect())
}

pub(crate) async fn modify_collection(
    context: &WriteContext,
    request: ModifyCollection,
) -> StoreResult<RawDocumentBuf> {
    context
        .change_catalog(move |writer| {
            let collection = existing(writer, &request.namespace)?;
            let options = view::modified(&request.namespace, &collection.options, &request)?;
            view::check_definition(&**writer.catalog(), &request.namespace, &options)?;
            let mut description = RawDocumentBuf::new();
            if options != collection.options {
                match &options.view {
                    Some(_) => {
                        writer.log_catalog(&collection, |view| {
                            record::of_view(&view.namespace, "modify", Some(&options))
                        });
                    }
                    None => describe_validator(&request.validator, &mut description),
                }
                writer.set_options(&collection, options)?;
            }
            let Some(change) = request.index else {
                log_modification(writer, &collection, description);
                return Ok(rawdoc! {});
            };
            let position = selected(&request.namespace, &collection.index_specs(), &change.selector)?;
            let Some(index) = position.checked_sub(1).and_then(|position| collection.indexes.get(position)) else {
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
            let name = spec.name.clone();
            let changed = Index::compile(spec)?;
            change_index(writer, collection.id, index.id, |entry| entry.index = changed)?;
            if !answer.is_empty() {
                let mut index = rawdoc! { "name": name };
                if let Some(seconds) = change.expire_after_seconds {
                    index.append(cstr!("expireAfterSeconds"), seconds);
                }
                if let Some(hidden) = change.hidden {
                    index.append(cstr!("hidden"), hidden);
                }
                description.append(cstr!("index"), index);
            }
            log_modification(writer, &collection, description);
            Ok(answer)
        })
        .await
}

/// Adds the settings of a validator that a request sets.
fn describe_validator(request: &ModifyValidator, description: &mut RawDocumentBuf) {
    if let Some(validator) = &request.validator {
        description.append(cstr!("validator"), validator.clone());
    }
    if let Some(level) = request.level {
        description.append(cstr!("validationLevel"), level.name());
    }
    if let Some(action) = request.action {
        description.append(cstr!("validationAction"), action.name());
    }
}

/// Logs what was changed, if anything was.
fn log_modification(writer: &mut Writer<'_>, collection: &Arc<Collection>, description: RawDocumentBuf) {
    if !description.is_empty() {
        writer.log_catalog(collection, |collection| record::of_modify(&collection.namespace, description));
    }
}

fn existing(writer: &Writer<'_>, namespace: &Namespace) -> StoreResult<Arc<Collection>> {
    writer.collection(namespace).ok_or_else(|| not_found(namespace))
}

fn not_found(namespace: &Namespace) -> StoreError {
    StoreError::command(Code::NamespaceNotFound, format!("ns does not exist: {namespace}"))
}

/// Adds indexes to the catalog. Those of a collection with documents must be built afterwards.
pub(crate) fn add_to_catalog(
    writer: &mut Writer<'_>,
    namespace: &Namespace,
    uuid: [u8; 16],
    indexes: Vec<Index>,
) -> StoreResult<AddedIndexes> {
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
        let added = &changed.index_specs()[before..];
        writer.log_catalog(&collection, |collection| record::of_indexes(&collection.namespace, "createIndexes", added));
        writer.put_collection(Arc::new(changed));
    }
    Ok(AddedIndexes { counts: IndexCounts::new(before, after), build })
}

/// Returns an index and its collection.
pub(super) fn find_index(
    writer: &Writer<'_>,
    collection: CollectionId,
    index: IndexId,
) -> StoreResult<(Arc<Collection>, Arc<CollectionIndex>)> {
    let found = writer.catalog().by_id(collection).cloned();
    let entry = found.as_ref().and_then(|found| found.indexes.iter().find(|entry| entry.id == index).cloned());
    found.zip(entry).ok_or_else(|| {
        let text = "the index, or its collection, was dropped while the index was built";
        StoreError::command(Code::IndexBuildAborted, text)
    })
}

pub(super) fn change_index(
    writer: &mut Writer<'_>,
    collection: CollectionId,
    index: IndexId,
    change: impl FnOnce(&mut CollectionIndex),
) -> StoreResult<()> {
    let (collection, _) = find_index(writer, collection, index)?;
    let mut changed = Collection::clone(&collection);
    if let Some(entry) = changed.indexes.iter_mut().find(|entry| entry.id == index) {
        change(Arc::make_mut(entry));
    }
    writer.put_collection(Arc::new(changed));
    Ok(())
}

/// Removes an index from the catalog, if it is there. Its entries are removed later.
pub(crate) fn drop_index(writer: &mut Writer<'_>, collection: CollectionId, index: IndexId) -> StoreResult<()> {
    if let Ok((collection, _)) = find_index(writer, collection, index) {
        let mut changed = Collection::clone(&collection);
        changed.indexes.retain(|entry| entry.id != index);
        let id = collection.id;
        writer.put_collection(Arc::new(changed));
        writer.stage_key_removal(MetadataKey::DroppedIndex(id, index));
    }
    Ok(())
}
