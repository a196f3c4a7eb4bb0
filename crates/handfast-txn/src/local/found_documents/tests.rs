use std::sync::Arc;

use bson::{RawDocumentBuf, rawdoc};
use handfast_store::decorator::{Metered, Operation};
use handfast_store::{DocumentStore as _, Find, Insert, MemoryStore, Namespace, Sources, StoreExt as _};

use super::KEPT_BYTES_MAX;
use crate::{Database, Local, Transaction};

type Store = Arc<Metered<Arc<MemoryStore>>>;

fn items() -> Namespace {
    Namespace::new("shop", "items").expect("a namespace")
}

/// Opens a database with these documents, over a store that counts its operations.
async fn with(documents: Vec<RawDocumentBuf>) -> (Store, Database) {
    let sources = Sources::seeded(1);
    let store = Arc::new(Metered::new(Arc::new(MemoryStore::new(sources.clone())), sources.clock.clone()));
    let database = Database::new(Arc::new(Local::new(store.clone(), sources.clone())), sources);
    database.insert(Insert::new(items(), documents)).await.expect("inserted");
    (store, database)
}

fn numbered(count: i32) -> Vec<RawDocumentBuf> {
    (0..count).map(|n| rawdoc! { "_id": n, "n": n }).collect()
}

/// Returns how many documents were read by their `_id`.
fn gets(store: &Store) -> u64 {
    store.report().iter().find(|of| of.operation == Operation::SnapshotGet).map_or(0, |of| of.started)
}

async fn add(transaction: &Transaction, id: i32) {
    let change = rawdoc! { "$inc": { "n": 100 } };
    let outcome = transaction.update_one(&items(), rawdoc! { "_id": id }, change).await.expect("updated");
    assert_eq!(outcome.modified, 1);
}

#[tokio::test]
async fn what_a_find_returned_is_not_read_again() {
    let (store, database) = with(numbered(10)).await;
    let transaction = database.begin().await.expect("begun");
    let found = transaction.find_all(Find::new(items(), rawdoc! { "n": { "$gte": 5 } })).await.expect("found");
    assert_eq!(found.len(), 5);
    for id in 5..10 {
        add(&transaction, id).await;
    }
    assert_eq!(gets(&store), 0);
    // Another document is read, and a document that was written is in the write buffer.
    add(&transaction, 1).await;
    add(&transaction, 5).await;
    assert_eq!(gets(&store), 1);
    transaction.commit().await.expect("committed");
    let sums = database.find_all(Find::new(items(), rawdoc! { "n": { "$gte": 100 } })).await.expect("found");
    let sums: Vec<_> = sums.iter().map(|document| document.get_i32("n").expect("a number")).collect();
    assert_eq!(sums, [101, 205, 106, 107, 108, 109]);
}

#[tokio::test]
async fn a_part_of_a_document_is_not_kept() {
    let (store, database) = with(numbered(1)).await;
    let transaction = database.begin().await.expect("begun");
    let part = Find { projection: rawdoc! { "_id": 1 }, ..Find::new(items(), rawdoc! { "n": { "$gte": 0 } }) };
    assert_eq!(transaction.find_all(part).await.expect("found"), [rawdoc! { "_id": 0 }]);
    add(&transaction, 0).await;
    assert_eq!(gets(&store), 1);
    transaction.commit().await.expect("committed");
    let found = database.find_one(&items(), rawdoc! { "_id": 0 }).await.expect("found");
    assert_eq!(found, Some(rawdoc! { "_id": 0, "n": 100 }));
}

/// The snapshot excludes later commits of other transactions, whether a document is kept or read
/// again.
#[tokio::test]
async fn a_kept_document_that_others_have_changed_conflicts() {
    let (_store, database) = with(numbered(1)).await;
    let transaction = database.begin().await.expect("begun");
    transaction.find_all(Find::new(items(), rawdoc! { "n": 0 })).await.expect("found");
    database.update_one(&items(), rawdoc! { "_id": 0 }, rawdoc! { "$set": { "n": 7 } }).await.expect("updated");
    assert_eq!(
        transaction.find_one(&items(), rawdoc! { "_id": 0 }).await.expect("found"),
        Some(rawdoc! { "_id": 0, "n": 0 })
    );
    let change = rawdoc! { "$inc": { "n": 1 } };
    transaction.update_one(&items(), rawdoc! { "_id": 0 }, change).await.expect_err("a conflict");
    assert!(transaction.conflict().is_some());
}

#[tokio::test]
async fn documents_are_kept_within_a_bound() {
    let text = "x".repeat(KEPT_BYTES_MAX * 2 / 5);
    let (store, database) = with((0..4).map(|n| rawdoc! { "_id": n, "n": n, "text": text.as_str() }).collect()).await;
    let transaction = database.begin().await.expect("begun");
    for _ in 0..2 {
        transaction.find_all(Find::new(items(), rawdoc! { "n": { "$gte": 0 } })).await.expect("found");
    }
    for id in 0..4 {
        add(&transaction, id).await;
    }
    assert_eq!(gets(&store), 2, "the last two of four have room");
}

#[tokio::test]
async fn a_document_larger_than_the_bound_does_not_drive_others_out() {
    let text = "x".repeat(KEPT_BYTES_MAX);
    let documents =
        vec![rawdoc! { "_id": 0, "n": 0 }, rawdoc! { "_id": 1, "n": 1, "text": text }, rawdoc! { "_id": 2, "n": 2 }];
    let (store, database) = with(documents).await;
    let transaction = database.begin().await.expect("begun");
    transaction.find_all(Find::new(items(), rawdoc! { "n": { "$gte": 0 } })).await.expect("found");
    for id in 0..3 {
        add(&transaction, id).await;
    }
    assert_eq!(gets(&store), 1);
}

#[tokio::test]
async fn what_is_read_twice_is_still_there_for_a_write() {
    let (store, database) = with(numbered(3)).await;
    let transaction = database.begin().await.expect("begun");
    transaction.find_all(Find::new(items(), rawdoc! { "n": { "$gte": 0 } })).await.expect("found");
    transaction.find_one(&items(), rawdoc! { "_id": 1 }).await.expect("found");
    add(&transaction, 1).await;
    assert_eq!(gets(&store), 0);
}
