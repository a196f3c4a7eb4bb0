//! Creates, renames, drops, lists and measures collections.

use handfast_mql::Code;
use handfast_store::change_stream::record;
use handfast_store::{
    CollectionInfo, CollectionOptions, CollectionStats, Error as StoreError, Namespace, RenameCollection,
    Result as StoreResult, blocking, index, view,
};

use super::context::WriteContext;
use crate::catalog::{Collection, Counts};
use crate::committer::{Snapshot, Writer};
use crate::engine::{Direction, Keyspace, View, prefix_range};
use crate::format::{StoredDocument, Verify, collection_prefix, index_key, index_value};

/// Documents from which the sizes of indexes are estimated: enough for a figure to look at, few enough for frequent requests.
const SAMPLE_DOCUMENTS_MAX: u64 = 1000;

pub(crate) async fn create_collection(
    context: &WriteContext,
    namespace: &Namespace,
    options: CollectionOptions,
) -> StoreResult<()> {
    let (namespace, uuid) = (namespace.clone(), context.new_uuid());
    context
        .change_catalog(move |writer| match writer.collection(&namespace) {
            Some(collection) if collection.options != options => Err(StoreError::command(
                Code::NamespaceExists,
                format!("a collection '{namespace}' already exists with different options"),
            )),
            Some(_) => Ok(()),
            None if options.view.is_some() => writer.create_view(&namespace, uuid, options.clone()),
            None => {
                let collection = writer.ensure_collection(&namespace, uuid)?;
                writer.set_options(&collection, options.clone())
            }
        })
        .await
}

pub(crate) async fn rename_collection(context: &WriteContext, request: RenameCollection) -> StoreResult<()> {
    let dropped = context
        .change_catalog(move |writer| {
            let RenameCollection { from, to, drop_target } = request;
            let collection = writer.collection(&from).ok_or_else(|| {
                let text = format!("Source collection {from} does not exist");
                StoreError::command(Code::NamespaceNotFound, text)
            })?;
            view::check_rename(&**writer.catalog(), &from, &to)?;
            if from == to {
                let text = "Can't rename a collection to itself";
                return Err(StoreError::command(Code::IllegalOperation, text));
            }
            let target = writer.collection(&to);
            if target.is_some() && !drop_target {
                return Err(StoreError::command(Code::NamespaceExists, "target namespace exists"));
            }
            if let Some(target) = &target {
                writer.drop_collection(target);
            }
            writer.rename_collection(&collection, &to);
            let dropped = target.as_ref().map(|target| target.uuid);
            writer.log_catalog(&collection, |collection| record::of_rename(&collection.namespace, &to, dropped));
            Ok(target.is_some())
        })
        .await?;
    if dropped {
        context.key_removal.notify_one();
    }
    Ok(())
}

pub(crate) async fn drop_collection(context: &WriteContext, namespace: &Namespace) -> StoreResult<bool> {
    let namespace = namespace.clone();
    let dropped = context
        .change_catalog(move |writer| match writer.collection(&namespace) {
            Some(collection) => {
                drop_logged(writer, &collection);
                Ok(true)
            }
            None => Ok(false),
        })
        .await?;
    if dropped {
        context.key_removal.notify_one();
    }
    Ok(dropped)
}

fn drop_logged(writer: &mut Writer<'_>, collection: &Collection) {
    writer.drop_collection(collection);
    writer.log_catalog(collection, |collection| match collection.options.view {
        Some(_) => record::of_view(&collection.namespace, "drop", None),
        None => record::of_drop(&collection.namespace),
    });
}

pub(crate) async fn drop_database(context: &WriteContext, database: &str) -> StoreResult<bool> {
    let database = database.to_owned();
    let dropped = context
        .change_catalog(move |writer| {
            let catalog = writer.catalog().clone();
            let mut any = false;
            for collection in catalog.database(&database) {
                drop_logged(writer, collection);
                any = true;
            }
            if any {
                writer.log_drop_database(&database);
            }
            Ok(any)
        })
        .await?;
    if dropped {
        context.key_removal.notify_one();
    }
    Ok(dropped)
}

/// Counts the documents of a collection, and stores the result.
pub(crate) async fn recount(context: &WriteContext, namespace: &Namespace) -> StoreResult<Counts> {
    let namespace = namespace.clone();
    // On the committer, so that no write comes between: only a repair does this.
    context
        .change_catalog(move |writer| {
            let Some(collection) = writer.collection(&namespace) else {
                return Ok(Counts::default());
            };
            let mut counts = Counts::default();
            let view = writer.apply_staged()?;
            for row in
                view.range(Keyspace::Documents, prefix_range(&collection_prefix(collection.id)), Direction::Forward)
            {
                let (key, value) = row?;
                counts.documents += 1;
                counts.bytes += StoredDocument::open(&key, value, Verify::Checksums)?.bytes().len() as u64;
            }
            writer.timestamp();
            writer.set_counts(collection.id, counts);
            Ok(counts)
        })
        .await
}

pub(crate) fn list_collections(snapshot: &Snapshot, database: &str) -> Vec<CollectionInfo> {
    let info = |collection: &std::sync::Arc<crate::catalog::Collection>| CollectionInfo {
        name: collection.namespace.collection().to_owned(),
        options: collection.options.clone(),
        uuid: collection.uuid,
    };
    snapshot.catalog().database(database).map(info).collect()
}

pub(crate) fn list_databases(snapshot: &Snapshot) -> Vec<String> {
    let mut names: Vec<String> =
        snapshot.catalog().collections().map(|collection| collection.namespace.database().to_owned()).collect();
    names.dedup();
    names
}

/// Returns the size of a collection. The count is exact at the snapshot. As collections share data files, the bytes on disk are
/// the collection's share by its documents' bytes. The bytes of indexes are estimated from the entries of some documents:
/// reading all entries would take as long as building the index.
pub(crate) async fn collection_stats(context: &WriteContext, namespace: &Namespace) -> StoreResult<CollectionStats> {
    let snapshot = context.snapshot();
    let Some(collection) = snapshot.catalog().get(namespace).cloned() else {
        return Ok(CollectionStats::default());
    };
    let counts = snapshot.catalog().counts(collection.id);
    let all: u64 =
        snapshot.catalog().collections().map(|collection| snapshot.catalog().counts(collection.id).bytes).sum();
    let disk = context.shared().engine.disk_bytes(Keyspace::Documents);
    let share = |part: u64| u128::from(disk) * u128::from(part) / u128::from(all.max(1));
    let view = snapshot.view()?;
    let verify = context.shared().verify;
    let index_bytes = blocking(move || index_bytes(&*view, verify, &collection, counts.documents)).await?;
    Ok(CollectionStats {
        exists: true,
        count: counts.documents,
        size_bytes: counts.bytes,
        storage_bytes: u64::try_from(share(counts.bytes)).unwrap_or(u64::MAX),
        index_bytes,
    })
}

/// Returns the bytes of each index, which are exact if the collection is not larger than the sample.
fn index_bytes(
    view: &dyn View,
    verify: Verify,
    collection: &Collection,
    documents: u64,
) -> StoreResult<Vec<(String, u64)>> {
    let mut sizes = vec![(index::ID_INDEX_NAME.to_owned(), 0)];
    sizes.extend(collection.indexes.iter().map(|index| (index.spec().name.clone(), 0)));
    if collection.indexes.is_empty() {
        return Ok(sizes);
    }
    let mut sampled = 0;
    let range = prefix_range(&collection_prefix(collection.id));
    for row in view.range(Keyspace::Documents, range, Direction::Forward) {
        let (key, value) = row?;
        let stored = StoredDocument::open(&key, value, verify)?;
        for (index, (_, bytes)) in collection.indexes.iter().zip(&mut sizes[1..]) {
            for encoded in index.index.keys(stored.document()?)?.keys {
                if let Some(entry) = index_key(collection.id, index.id, &encoded, &key[4..]) {
                    *bytes += (entry.len() + index_value(&entry, &encoded).len()) as u64;
                }
            }
        }
        sampled += 1;
        if sampled == SAMPLE_DOCUMENTS_MAX {
            break;
        }
    }
    for (_, bytes) in &mut sizes {
        let all = u128::from(*bytes) * u128::from(documents) / u128::from(sampled.max(1));
        *bytes = u64::try_from(all).unwrap_or(u64::MAX);
    }
    Ok(sizes)
}
