//! A transaction that writes keeps the documents that it has found. One that only reads does not: a walk over all documents would fill the memory in vain.

use std::sync::Arc;
use std::time::Duration;

use bson::rawdoc;
use handfast_store::decorator::{Faulty, Plan};
use handfast_store::{MemoryStore, Namespace, Sources, StoreExt};
use handfast_txn::{Database, Local, Transaction};

const HOUR: Duration = Duration::from_secs(3_600);

/// Finds a document by a field, and then by its `_id`; returns the requests to the store for the second one.
async fn requests_for_found(store: &Faulty<MemoryStore>, tx: &Transaction, tasks: &Namespace) -> u64 {
    tx.find_one(tasks, rawdoc! { "status": "open" }).await.unwrap().unwrap();
    let before = store.operations();
    tx.find_one(tasks, rawdoc! { "_id": 1 }).await.unwrap().unwrap();
    store.operations() - before
}

#[tokio::test]
async fn a_transaction_that_only_reads_keeps_no_documents() {
    let (sources, tasks) = (Sources::seeded(1), Namespace::new("d", "tasks").unwrap());
    let store = Arc::new(Faulty::new(Arc::new(MemoryStore::new(sources.clone())), Plan::none()));
    let database = Database::new(Arc::new(Local::new(store.clone(), sources.clone())), sources);
    database.insert_one(&tasks, rawdoc! { "_id": 1, "status": "open" }).await.unwrap();
    let tx = database.begin().await.unwrap();
    assert_eq!(requests_for_found(&store, &tx, &tasks).await, 0, "it may write the document");
    let reads = database.begin_reads(HOUR).await.unwrap();
    assert!(requests_for_found(&store, &reads, &tasks).await > 0, "it writes nothing");
}
