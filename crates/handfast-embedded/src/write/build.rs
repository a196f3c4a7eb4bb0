//! Building indexes beside the writers.
//!
//! An index on a collection that has documents is first put into the catalog, incomplete, and from then on every write
//! keeps it up to date; then the documents that were there before are indexed, some at a time, each in its newest state;
//! then it is complete, and queries may use it. All indexes of a request become complete in one step, or, if a document
//! cannot be indexed (two of them share a unique key), are dropped in one step.
//!
//! This goes on in a task of its own, so that a caller who gives up (a time limit, `killOp`) leaves nothing half done: the
//! task sees that nobody waits any more, and drops the indexes. Who asks for an index that is being built waits until
//! that has ended one way or the other. A store that was killed in between drops the incomplete index when it is opened:
//! nobody was told that it exists.

use std::collections::HashSet;
use std::ops::Bound;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use handfast_mql::Code;
use handfast_store::index::{Addition, Index, addition};
use handfast_store::{CreateIndexes, Error as StoreError, Namespace, Result as StoreResult};
use tokio::sync::{Notify, oneshot};

use super::indexes::{Added, add_to_catalog, change_index, drop_index, find_index};
use crate::catalog::CollectionIndex;
use crate::committer::{Answer, Writer};
use crate::engine::{Direction, Keyspace};
use crate::format::{CollectionId, IndexId, collection_prefix};
use crate::store::EmbeddedStore;

/// The numbers of indexes before and after, as `createIndexes` tells them.
type Numbers = (u32, u32);

/// The indexes that are being built now.
#[derive(Default)]
pub(crate) struct Builds {
    running: Mutex<HashSet<(CollectionId, IndexId)>>,
    /// Told whenever one has ended.
    ended: Notify,
}

/// One task's part of them; it ends when this is dropped, in whatever way.
struct Build {
    builds: Arc<Builds>,
    indexes: Mutex<Vec<(CollectionId, IndexId)>>,
}

impl Builds {
    fn lock(&self) -> MutexGuard<'_, HashSet<(CollectionId, IndexId)>> {
        // Nothing in here can panic half way.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
            // Two tasks that only wait must not wake each other.
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

impl EmbeddedStore {
    /// Creates indexes, all of them or none.
    ///
    /// # Cancellation
    /// The indexes are dropped again, unless they were complete already.
    pub(crate) async fn add_indexes(&self, request: CreateIndexes) -> StoreResult<Numbers> {
        let namespace = request.namespace;
        let indexes = request.indexes.into_iter().map(Index::compile).collect::<StoreResult<Vec<_>>>()?;
        let (mut reply, answered) = oneshot::channel();
        let store = self.for_a_task();
        tokio::spawn(async move {
            let result = store.add_and_build(&namespace, indexes, &mut reply).await;
            // Who has the answer may close the store.
            drop(store);
            // Who asked may have gone away.
            let _ = reply.send(result);
        });
        answered.await.map_err(|_| {
            StoreError::command(Code::InterruptedAtShutdown, "the store was closed while an index was created")
        })?
    }

    async fn add_and_build(
        &self,
        namespace: &Namespace,
        indexes: Vec<Index>,
        reply: &mut oneshot::Sender<StoreResult<Numbers>>,
    ) -> StoreResult<Numbers> {
        loop {
            self.go_on(reply)?;
            let ended = self.inner.builds.ended.notified();
            let build = Arc::new(Build { builds: self.inner.builds.clone(), indexes: Mutex::default() });
            let (namespace, indexes, uuid) = (namespace.clone(), indexes.clone(), self.uuid());
            let begun = build.clone();
            let added = self.change_catalog(move |writer| begin(writer, &namespace, uuid, indexes, &begun)).await?;
            let Some(Added { before, after, build: to_build }) = added else {
                ended.await;
                continue;
            };
            if let Err(error) = self.build(&to_build, reply).await {
                let dropped = move |writer: &mut Writer<'_>| {
                    to_build.iter().try_for_each(|&(collection, index)| drop_index(writer, collection, index))
                };
                self.change_catalog(dropped).await?;
                self.removal_is_due();
                return Err(error);
            }
            return Ok((before, after));
        }
    }

    /// Whether a task has reason to go on.
    fn go_on(&self, reply: &oneshot::Sender<StoreResult<Numbers>>) -> StoreResult<()> {
        if self.inner.closing.load(Ordering::Relaxed) {
            return Err(StoreError::command(Code::InterruptedAtShutdown, "the store is being closed"));
        }
        if reply.is_closed() {
            return Err(StoreError::command(Code::Interrupted, "whoever creates the index has gone away"));
        }
        Ok(())
    }

    /// Indexes the documents that were there before the indexes, and completes them.
    async fn build(
        &self,
        indexes: &[(CollectionId, IndexId)],
        reply: &oneshot::Sender<StoreResult<Numbers>>,
    ) -> StoreResult<()> {
        let Some(&(collection, _)) = indexes.first() else {
            return Ok(());
        };
        let indexes: Arc<[IndexId]> = indexes.iter().map(|&(_, index)| index).collect();
        let mut after = None;
        loop {
            self.go_on(reply)?;
            let keys = self.next_documents(collection, after.take()).await?;
            let Some(last) = keys.last().cloned() else {
                break;
            };
            let bytes = keys.iter().map(Vec::len).sum();
            let built = indexes.clone();
            let step = move |writer: &mut Writer<'_>| build_step(writer, collection, &built, &keys);
            self.inner.committer.submit(Answer::Applied, bytes, step).await?;
            after = Some(last);
        }
        self.change_catalog(move |writer| {
            for &index in &*indexes {
                change_index(writer, collection, index, |entry| entry.complete = true)?;
            }
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
}

/// Puts the indexes into the catalog; `None` if one of them, or one that excludes it, is being built.
fn begin(
    writer: &mut Writer<'_>,
    namespace: &Namespace,
    uuid: [u8; 16],
    indexes: Vec<Index>,
    build: &Build,
) -> StoreResult<Option<Added>> {
    if let Some(collection) = writer.collection(namespace) {
        for entry in collection.indexes.iter().filter(|entry| !entry.complete && concerns(entry, &indexes)) {
            if build.builds.lock().contains(&(collection.id, entry.id)) {
                return Ok(None);
            }
            // Its task has ended before its time.
            drop_index(writer, collection.id, entry.id)?;
        }
    }
    let added = add_to_catalog(writer, namespace, uuid, indexes)?;
    build.begin(&added.build);
    Ok(Some(added))
}

/// Whether an index decides what becomes of a request for others.
fn concerns(entry: &CollectionIndex, indexes: &[Index]) -> bool {
    let beside = std::slice::from_ref(entry.spec());
    indexes.iter().any(|index| !matches!(addition(beside, index.spec()), Ok(Addition::New)))
}

fn build_step(
    writer: &mut Writer<'_>,
    collection: CollectionId,
    indexes: &[IndexId],
    id_keys: &[Vec<u8>],
) -> StoreResult<()> {
    for id_key in id_keys {
        // A document that is gone since needs no entry; one that was changed since has it already, and gets it again.
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
