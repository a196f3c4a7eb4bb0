//! Transactions on the embedded store take a fixed number of batches and syncs, however fast the machine is.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use bson::{RawArrayBuf, rawdoc};
use handfast_embedded::{Costs, EmbeddedStore, Options};
use handfast_store::{DocumentStore, Insert, Namespace, Sources, StoreExt, Update, UpdateSpec, UpdateStatement};
use handfast_txn::{Database, Error, TransactionOptions};

/// The number of concurrent clients.
const CLIENTS: i32 = 64;

fn accounts() -> Namespace {
    Namespace::new("bank", "accounts").unwrap()
}

async fn open() -> (tempfile::TempDir, EmbeddedStore, Database) {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), Sources::seeded(1), Options::small()).await.unwrap();
    let database = Database::local(store.clone(), Sources::seeded(2));
    let documents = (0..2 * CLIENTS).map(|id| rawdoc! { "_id": id, "balance": 100 }).collect();
    database.insert(Insert::new(accounts(), documents)).await.unwrap();
    // The first transaction creates the collection of the records.
    transfer(&database, 0, 1).await;
    (directory, store, database)
}

async fn pay(store: &dyn DocumentStore, id: i32, amount: i32) -> handfast_store::Result<()> {
    store.update_one(&accounts(), rawdoc! { "_id": id }, rawdoc! { "$inc": { "balance": amount } }).await.map(drop)
}

async fn transfer(database: &Database, from: i32, to: i32) {
    let moved = database.transaction(|tx| async move {
        pay(&tx, from, -7).await?;
        pay(&tx, to, 7).await?;
        Ok::<_, Error>(())
    });
    moved.await.unwrap();
}

fn since(store: &EmbeddedStore, before: Costs) -> Costs {
    let after = store.costs();
    Costs {
        operations: after.operations - before.operations,
        syncs: after.syncs - before.syncs,
        reads: after.reads - before.reads,
    }
}

#[tokio::test]
async fn a_transfer_is_one_batch_and_one_sync_and_reads_nothing_again() {
    let (_directory, store, database) = open().await;
    let before = store.costs();
    transfer(&database, 2, 3).await;
    assert_eq!(since(&store, before), Costs { operations: 1, syncs: 1, ..Costs::default() });
}

/// A transaction passes the documents that it has read to the store, so that the committer reads nothing, whether documents are changed,
/// inserted or removed.
#[tokio::test]
async fn a_commit_reads_nothing_again_whatever_it_writes() {
    let (_directory, store, database) = open().await;
    let before = store.costs();
    let work = database.transaction(|tx| async move {
        pay(&tx, 10, 1).await?;
        tx.insert_one(&accounts(), rawdoc! { "_id": "new" }).await?;
        tx.delete_many(&accounts(), rawdoc! { "_id": { "$in": [11, 12] } }).await?;
        tx.upsert_one(&accounts(), rawdoc! { "_id": 13 }, rawdoc! { "$set": { "seen": true } }).await?;
        Ok::<_, Error>(())
    });
    work.await.unwrap();
    assert_eq!(since(&store, before), Costs { operations: 1, syncs: 1, ..Costs::default() });
}

/// A commit of as many documents as a batch of the view counters has reads nothing either: while the committer reads, all other writes
/// wait.
#[tokio::test]
async fn a_commit_of_a_thousand_documents_reads_nothing_again() {
    let (_directory, store, database) = open().await;
    let days: RawArrayBuf = [7_i64; 31].into_iter().collect();
    let month = |item: i32| rawdoc! { "_id": { "item": item, "month": "2026-11" }, "days": days.clone() };
    database.insert(Insert::new(accounts(), (0..1_000).map(month).collect())).await.unwrap();
    let before = store.costs();
    let work = database.transaction(|tx| async move {
        let add = |item: i32| {
            let of_item = rawdoc! { "_id": { "item": item, "month": "2026-11" } };
            UpdateStatement::one(of_item, UpdateSpec::Document(rawdoc! { "$inc": { "days.4": 1_i64 } }))
        };
        let outcome = tx.update(Update::new(accounts(), (0..1_000).map(add).collect())).await?;
        assert_eq!(outcome.modified, 1_000);
        Ok::<_, Error>(())
    });
    work.await.unwrap();
    assert_eq!(since(&store, before), Costs { operations: 1, syncs: 1, ..Costs::default() });
}

#[tokio::test]
async fn an_update_of_one_document_is_one_batch_and_one_sync() {
    let (_directory, store, database) = open().await;
    let before = store.costs();
    pay(&database, 4, 1).await.unwrap();
    assert_eq!(since(&store, before), Costs { operations: 1, syncs: 1, ..Costs::default() });
}

#[tokio::test]
async fn a_transaction_that_only_reads_costs_no_write() {
    let (_directory, store, database) = open().await;
    let before = store.costs();
    let tx = database.begin().await.unwrap();
    tx.find_one(&accounts(), rawdoc! { "_id": 5 }).await.unwrap().unwrap();
    tx.commit().await.unwrap();
    assert_eq!(since(&store, before), Costs::default());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transfers_at_once_share_syncs() {
    let (_directory, store, database) = open().await;
    let before = store.costs();
    let transfers = (0..CLIENTS).map(|client| {
        let database = database.clone();
        tokio::spawn(async move { transfer(&database, 2 * client, 2 * client + 1).await })
    });
    for transfer in transfers.collect::<Vec<_>>() {
        transfer.await.unwrap();
    }
    let costs = since(&store, before);
    assert_eq!(costs.operations, u64::try_from(CLIENTS).unwrap());
    // If two documents share a slot of the table of recent changes, and both change at the same time, one of them is read in vain.
    assert!(costs.reads <= 8, "{costs:?}");
    assert!(costs.syncs < costs.operations, "no two of {CLIENTS} transfers shared a sync: {costs:?}");
}

/// Before-images take memory that writes need more: none is kept while all transactions together hold more than a half of what they may.
#[tokio::test]
async fn before_images_leave_half_of_the_room_to_writes() {
    const ALL_BYTES_MAX: usize = 20_000;
    let (_directory, store, database) = open().await;
    let options = TransactionOptions { all_write_bytes_max: ALL_BYTES_MAX, ..TransactionOptions::default() };
    for (percent, reads) in [(40, 0), (60, 1)] {
        let other = database.begin_with(options.clone()).await.unwrap();
        let text = "x".repeat(ALL_BYTES_MAX * percent / 100);
        other.insert_one(&accounts(), rawdoc! { "_id": "large", "text": text }).await.unwrap();
        let tx = database.begin_with(options.clone()).await.unwrap();
        pay(&tx, 20, 1).await.unwrap();
        let before = store.costs();
        tx.commit().await.unwrap();
        assert_eq!(since(&store, before).reads, reads, "{percent} % of the room is taken");
        drop(other);
    }
}
