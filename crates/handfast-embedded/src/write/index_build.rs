//! Builds indexes while others write.
//!
//! An index on a collection that has documents is first added to the catalog, incomplete, and every later write keeps it up to
//! date; then the existing documents are indexed in steps, each document in its newest state; then the index is complete, and
//! queries may use it. All indexes of a request become complete in one operation, or, if a document cannot be indexed (two of
//! them share a unique key), are dropped in one operation.
//!
//! The build is a task of its own, so that a caller that gives up (a time limit, `killOp`) leaves no half-built index: the task
//! sees that the caller is gone, and drops the indexes. A request for an index that is being built waits until the build has
//! ended. A store that was killed during a build drops the incomplete index when it is opened: no answer said that it exists.

use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError};

use handfast_mql::Code;
use handfast_store::index::{Addition, Index, addition};
use handfast_store::view::ViewCatalog as _;
use handfast_store::{
    CreateIndexes, Error as StoreError, IndexCounts, IndexSpec, Namespace, Result as StoreResult, default_collation,
};
use tokio::sync::oneshot;

use super::context::{Builds, WriteContext};
use super::indexes::{AddedIndexes, add_to_catalog, change_index, drop_index, find_index};
use crate::catalog::CollectionIndex;
use crate::committer::{AnswerAfter, Writer};
use crate::engine::{Direction, Keyspace};
use crate::format::{CollectionId, IndexId, collection_prefix};

/// The indexes that one task builds. Its drop ends their builds.
struct Build {
    builds: Arc<Builds>,
    indexes: Mutex<Vec<(CollectionId, IndexId)>>,
}

impl Build {
    fn begin(&self, indexes: &[(CollectionId, IndexId)]) {
        self.builds.lock().extend(indexes);
        self.indexes.lock().unwrap_or_else(PoisonError::into_inner).extend(indexes);
    }
}

impl Drop for Build {
    fn drop(&mut self) {
        let indexes = self.indexes.get_mut().unwrap_or_else(PoisonError::into_inner);
        if indexes.is_empty() {
            // A task that only waits must not wake others that wait.
            return;
        }
        let mut running = self.builds.lock();
        for index in indexes {
            running.remove(index);
        }
        drop(running);
        self.builds.ended.notify_waiters();
    }
}

/// Creates indexes, all of them or none.
///
/// # Cancellation
/// The indexes are dropped again, unless they were complete already.
pub(crate) async fn create_indexes(context: &Arc<WriteContext>, request: CreateIndexes) -> StoreResult<IndexCounts> {
    let namespace = request.namespace;
    let indexes = request.indexes;
    indexes.iter().try_for_each(|spec| Index::compile(spec.clone()).map(|_| ()))?;
    let (mut reply, answered) = oneshot::channel();
    let context = context.clone();
    tokio::spawn(async move {
        let result = add_and_build(&context, &namespace, indexes, &mut reply).await;
        // The caller may close the store after the answer, which waits for this task.
        drop(context);
        // The caller may have dropped its future.
        let _ = reply.send(result);
    });
    answered.await.map_err(|_| {
        StoreError::command(Code::InterruptedAtShutdown, "the store was closed while an index was created")
    })?
}

async fn add_and_build(
    context: &WriteContext,
    namespace: &Namespace,
    indexes: Vec<IndexSpec>,
    reply: &mut oneshot::Sender<StoreResult<IndexCounts>>,
) -> StoreResult<IndexCounts> {
    loop {
        check_is_wanted(context, reply)?;
        let ended = context.builds.ended.notified();
        let task = Arc::new(Build { builds: context.builds.clone(), indexes: Mutex::default() });
        let (namespace, indexes, uuid) = (namespace.clone(), indexes.clone(), context.new_uuid());
        let begun = task.clone();
        let added = context.change_catalog(move |writer| begin(writer, &namespace, uuid, indexes, &begun)).await?;
        let Some(AddedIndexes { counts, build: to_build }) = added else {
            ended.await;
            continue;
        };
        if let Err(error) = build(context, &to_build, reply).await {
            let dropped = move |writer: &mut Writer<'_>| {
                to_build.iter().try_for_each(|&(collection, index)| drop_index(writer, collection, index))
            };
            context.change_catalog(dropped).await?;
            context.key_removal.notify_one();
            return Err(error);
        }
        return Ok(counts);
    }
}

/// Fails if the store is being closed, or the caller has dropped its future.
fn check_is_wanted(context: &WriteContext, reply: &oneshot::Sender<StoreResult<IndexCounts>>) -> StoreResult<()> {
    if context.is_closing() {
        return Err(StoreError::command(Code::InterruptedAtShutdown, "the store is being closed"));
    }
    if reply.is_closed() {
        return Err(StoreError::command(Code::Interrupted, "the caller that creates the index is gone"));
    }
    Ok(())
}

/// Indexes the existing documents, and completes the indexes.
async fn build(
    context: &WriteContext,
    indexes: &[(CollectionId, IndexId)],
    reply: &oneshot::Sender<StoreResult<IndexCounts>>,
) -> StoreResult<()> {
    let Some(&(collection, _)) = indexes.first() else {
        return Ok(());
    };
    let indexes: Arc<[IndexId]> = indexes.iter().map(|&(_, index)| index).collect();
    let mut after = None;
    loop {
        check_is_wanted(context, reply)?;
        let keys = next_documents(context, collection, after.take()).await?;
        let Some(last) = keys.last().cloned() else {
            break;
        };
        let bytes = keys.iter().map(Vec::len).sum();
        let built = indexes.clone();
        let step = move |writer: &mut Writer<'_>| build_step(writer, collection, &built, &keys);
        context.committer.submit(AnswerAfter::Applied, bytes, step).await?;
        after = Some(last);
    }
    context
        .change_catalog(move |writer| {
            for &index in &*indexes {
                change_index(writer, collection, index, |entry| entry.complete = true)?;
            }
            Ok(())
        })
        .await
}

/// Returns the `_id` keys of the next documents after a key, in the newest state.
async fn next_documents(
    context: &WriteContext,
    collection: CollectionId,
    after: Option<Vec<u8>>,
) -> StoreResult<Vec<Vec<u8>>> {
    let view = context.latest().view;
    let count = context.options.step_documents_max.max(1);
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

/// Adds the indexes to the catalog; returns `None` if one of them, or one that excludes it, is being built.
fn begin(
    writer: &mut Writer<'_>,
    namespace: &Namespace,
    uuid: [u8; 16],
    indexes: Vec<IndexSpec>,
    build: &Build,
) -> StoreResult<Option<AddedIndexes>> {
    let default = default_collation::of(writer.catalog().options(namespace)).cloned();
    let compile = |spec| default_collation::of_index(spec, default.as_ref()).and_then(Index::compile);
    let indexes = indexes.into_iter().map(compile).collect::<StoreResult<Vec<_>>>()?;
    if let Some(collection) = writer.collection(namespace) {
        for entry in collection.indexes.iter().filter(|entry| !entry.complete && concerns(entry, &indexes)) {
            if build.builds.lock().contains(&(collection.id, entry.id)) {
                return Ok(None);
            }
            // The task of that build ended before it could drop the index.
            drop_index(writer, collection.id, entry.id)?;
        }
    }
    let added = add_to_catalog(writer, namespace, uuid, indexes)?;
    build.begin(&added.build);
    Ok(Some(added))
}

/// Returns whether an index is, or excludes, one of the requested ones.
fn concerns(entry: &CollectionIndex, indexes: &[Index]) -> bool {
    let existing = std::slice::from_ref(entry.spec());
    indexes.iter().any(|index| !matches!(addition(existing, index.spec()), Ok(Addition::New)))
}

fn build_step(
    writer: &mut Writer<'_>,
    collection: CollectionId,
    indexes: &[IndexId],
    id_keys: &[Vec<u8>],
) -> StoreResult<()> {
    for id_key in id_keys {
        // A deleted document needs no entry; one that changed since has it already, and the entry is staged again.
        let Some(stored) = writer.get(collection, id_key)? else {
            continue;
        };
        for &index in indexes {
            let (found, entry) = find_index(writer, collection, index)?;
            writer.index_document(&found, &entry, id_key, stored.document()?)?;
        }
    }
    Ok(())
}
