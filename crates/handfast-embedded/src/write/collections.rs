//! Creating, renaming and dropping collections.

use handfast_mql::Code;
use handfast_store::{
    CollectionInfo, CollectionOptions, CollectionStats, Error as StoreError, Namespace, RenameCollection,
    Result as StoreResult, blocking, index,
};

use crate::catalog::{Collection, Counts};
use crate::committer::Answer;
use crate::engine::{Direction, Keyspace, View, prefix_range};
use crate::format::{StoredDocument, Verify, collection_prefix, index_key, index_value};
use crate::store::EmbeddedStore;

/// What an operation on the catalog holds in the queue: next to nothing.
const OPERATION_BYTES: usize = 1024;
/// Documents that the sizes of indexes are taken from: enough for a figure to look at, few enough to be asked for often.
const SAMPLE_DOCUMENTS_MAX: u64 = 1000;

impl EmbeddedStore {
    /// Runs an operation on the catalog, synced.
    pub(crate) async fn change_catalog<T, F>(&self, run: F) -> StoreResult<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut crate::committer::Writer<'_>) -> StoreResult<T> + Send + 'static,
    {
        self.inner.committer.submit(Answer::Synced, OPERATION_BYTES, run).await
    }

    pub(crate) async fn create(&self, namespace: &Namespace, options: CollectionOptions) -> StoreResult<()> {
        let (namespace, uuid) = (namespace.clone(), self.uuid());
        self.change_catalog(move |writer| match writer.collection(&namespace) {
            Some(collection) if collection.options != options => Err(StoreError::command(
                Code::NamespaceExists,
                format!("a collection '{namespace}' already exists with different options"),
            )),
            Some(_) => Ok(()),
            None => writer.ensure_collection(&namespace, uuid).map(|_| ()),
        })
        .await
    }

    pub(crate) async fn rename(&self, request: RenameCollection) -> StoreResult<()> {
        let dropped = self
            .change_catalog(move |writer| {
                let RenameCollection { from, to, drop_target } = request;
                let collection = writer.collection(&from).ok_or_else(|| {
                    let text = format!("Source collection {from} does not exist");
                    StoreError::command(Code::NamespaceNotFound, text)
                })?;
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
                Ok(target.is_some())
            })
            .await?;
        if dropped {
            self.removal_is_due();
        }
        Ok(())
    }

    pub(crate) async fn drop_one(&self, namespace: &Namespace) -> StoreResult<bool> {
        let namespace = namespace.clone();
        let dropped = self
            .change_catalog(move |writer| match writer.collection(&namespace) {
                Some(collection) => {
                    writer.drop_collection(&collection);
                    Ok(true)
                }
                None => Ok(false),
            })
            .await?;
        if dropped {
            self.removal_is_due();
        }
        Ok(dropped)
    }

    pub(crate) async fn drop_all_of(&self, database: &str) -> StoreResult<bool> {
        let database = database.to_owned();
        let dropped = self
            .change_catalog(move |writer| {
                let catalog = writer.catalog().clone();
                let mut any = false;
                for collection in catalog.database(&database) {
                    writer.drop_collection(collection);
                    any = true;
                }
                Ok(any)
            })
            .await?;
        if dropped {
            self.removal_is_due();
        }
        Ok(dropped)
    }

    /// Counts the documents of a collection and keeps the result.
    pub(crate) async fn count_again(&self, namespace: &Namespace) -> StoreResult<Counts> {
        let namespace = namespace.clone();
        // In the committer's turn, so that nobody writes in between: only a repair does this.
        self.change_catalog(move |writer| {
            let Some(collection) = writer.collection(&namespace) else {
                return Ok(Counts::default());
            };
            let mut counts = Counts::default();
            let view = writer.settle()?;
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

    pub(crate) fn collections_of(&self, database: &str) -> Vec<CollectionInfo> {
        let snapshot = self.snapshot_now();
        let info = |collection: &std::sync::Arc<crate::catalog::Collection>| CollectionInfo {
            name: collection.namespace.collection().to_owned(),
            options: collection.options.clone(),
            uuid: collection.uuid,
        };
        snapshot.catalog().database(database).map(info).collect()
    }

    pub(crate) fn databases(&self) -> Vec<String> {
        let snapshot = self.snapshot_now();
        let mut names: Vec<String> =
            snapshot.catalog().collections().map(|collection| collection.namespace.database().to_owned()).collect();
        names.dedup();
        names
    }

    /// Counts are exact at the snapshot. Bytes on disk are the collection's part of the data files by its part of the
    /// documents' bytes: collections share files. Bytes of indexes are those of the entries of some documents, times as many as there are more
    /// documents: to read all entries takes as long as to build the index.
    pub(crate) async fn stats(&self, namespace: &Namespace) -> StoreResult<CollectionStats> {
        let snapshot = self.snapshot_now();
        let Some(collection) = self.collection(&snapshot, namespace) else {
            return Ok(CollectionStats::default());
        };
        let counts = snapshot.catalog().counts(collection.id);
        let all: u64 =
            snapshot.catalog().collections().map(|collection| snapshot.catalog().counts(collection.id).bytes).sum();
        let disk = self.shared().engine.disk_bytes(Keyspace::Documents);
        let share = |part: u64| u128::from(disk) * u128::from(part) / u128::from(all.max(1));
        let view = snapshot.view()?;
        let verify = self.shared().verify;
        let index_bytes = blocking(move || index_bytes(&*view, verify, &collection, counts.documents)).await?;
        Ok(CollectionStats {
            exists: true,
            count: counts.documents,
            size_bytes: counts.bytes,
            storage_bytes: u64::try_from(share(counts.bytes)).unwrap_or(u64::MAX),
            index_bytes,
        })
    }
}

/// Each index with its bytes: exact if the collection is not larger than the sample.
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
