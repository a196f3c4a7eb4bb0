//! Expressions in a transaction over a store that commits batches examine the documents that an index selects.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bson::{RawBsonRef, RawDocumentBuf, rawdoc};
use handfast_embedded::{EmbeddedStore, Options};
use handfast_store::decorator::DelegatingStore;
use handfast_store::{
    Aggregate, AtomicBatch, AtomicStore, BatchLimit, CommitTimestamp, CreateIndexes, Cursor, DocumentStore, Explain,
    Explained, Find, IndexSpec, Insert, Namespace, Result, Snapshot, Sources, StoreExt, Verbosity,
};
use handfast_txn::Database;

use super::accounts;

type Finds = Arc<Mutex<Vec<Find>>>;

/// A store that records the finds in its snapshots.
struct Recording(EmbeddedStore, Finds);

struct RecordingSnapshot(Box<dyn Snapshot>, Finds);

impl DelegatingStore for Recording {
    type Inner = EmbeddedStore;

    fn inner(&self) -> &EmbeddedStore {
        &self.0
    }
}

#[async_trait]
impl AtomicStore for Recording {
    async fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        Ok(Box::new(RecordingSnapshot(self.0.snapshot().await?, Arc::clone(&self.1))))
    }

    async fn commit(&self, batch: AtomicBatch) -> Result<CommitTimestamp> {
        self.0.commit(batch).await
    }
}

#[async_trait]
impl Snapshot for RecordingSnapshot {
    fn timestamp(&self) -> CommitTimestamp {
        self.0.timestamp()
    }

    async fn get(&self, namespace: &Namespace, id: RawBsonRef<'_>) -> Result<Option<RawDocumentBuf>> {
        self.0.get(namespace, id).await
    }

    async fn find(&self, request: Find) -> Result<Box<dyn Cursor>> {
        self.1.lock().unwrap().push(request.clone());
        self.0.find(request).await
    }
}

/// Returns the number of documents that the finds examine, as far as the store has counted them since.
async fn examined(store: &EmbeddedStore, finds: &Finds) -> i32 {
    let mut examined = 0;
    let finds = std::mem::take(&mut *finds.lock().unwrap());
    for find in finds {
        let explain = Explain { explained: Explained::Find(find), verbosity: Verbosity::ExecutionStats };
        let explained = store.explain(explain).await.unwrap();
        examined += explained.get_document("executionStats").unwrap().get_i32("totalDocsExamined").unwrap();
    }
    examined
}

#[tokio::test]
async fn expressions_in_a_transaction_use_indexes() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), Sources::seeded(1), Options::default()).await.unwrap();
    let finds = Finds::default();
    let database = Database::local(Recording(store.clone(), Arc::clone(&finds)), Sources::seeded(2));
    let indexes = vec![IndexSpec::new(rawdoc! { "branch": 1 })];
    database.create_indexes(CreateIndexes { namespace: accounts(), indexes }).await.unwrap();
    let account = |id: i32| rawdoc! { "_id": id, "branch": if id < 10 { 7 } else { id } };
    database.insert(Insert::new(accounts(), (0..1000).map(account).collect())).await.unwrap();

    let tx = database.begin().await.unwrap();
    // The transaction's own document is found beside those of the snapshot.
    tx.insert_one(&accounts(), rawdoc! { "_id": 5000, "branch": 7 }).await.unwrap();
    let variables = rawdoc! { "branch": 7, "low": 3, "high": 7.0 };
    for expression in [
        rawdoc! { "$eq": ["$branch", "$$branch"] },
        rawdoc! { "$and": [{ "$gte": ["$branch", "$$low"] }, { "$lte": ["$branch", "$$high"] }] },
    ] {
        finds.lock().unwrap().clear();
        let filter = rawdoc! { "$expr": expression };
        let find = Find { variables: variables.clone(), ..Find::new(accounts(), filter) };
        assert_eq!(tx.find_all(find).await.unwrap().len(), 11);
        assert_eq!(examined(&store, &finds).await, 10);
    }

    let lookup = rawdoc! { "$lookup": {
        "from": accounts().collection(),
        "let": { "own": "$branch" },
        "pipeline": [{ "$match": { "$expr": { "$eq": ["$branch", "$$own"] } } }],
        "as": "same",
    } };
    finds.lock().unwrap().clear();
    let stages = vec![rawdoc! { "$match": { "branch": 7 } }, lookup];
    let mut cursor = tx.aggregate(Aggregate::new(accounts(), stages)).await.unwrap();
    let found = cursor.next_page(BatchLimit::REPLY).await.unwrap().documents;
    assert_eq!(found.iter().map(|found| found.get_array("same").unwrap().into_iter().count()).sum::<usize>(), 121);
    // Eleven documents look up the ten of the snapshot, after ten were found in it.
    assert_eq!(examined(&store, &finds).await, 120);
    tx.commit().await.unwrap();
}
