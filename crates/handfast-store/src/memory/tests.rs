use bson::{RawBsonRef, rawdoc};
use handfast_mql::Code;

use super::DELETIONS_KEPT_MAX;
use crate::{
    AtomicBatch, AtomicStore, BatchWrite, CommitTimestamp, DocumentStore, DocumentWrite, Durability, Find, Insert,
    MemoryStore, Namespace, Sources, StoreExt, Update, UpdateSpec, UpdateStatement,
};

fn c() -> Namespace {
    Namespace::valid("d", "c")
}

fn batch(read_at: CommitTimestamp, id: i32) -> AtomicBatch {
    let writes = vec![BatchWrite::new(c(), id, DocumentWrite::Put(rawdoc! { "_id": id }))];
    AtomicBatch { writes, durability: Durability::Memory, ..AtomicBatch::new(read_at) }
}

#[tokio::test]
async fn a_write_that_a_full_store_refuses_changes_nothing() {
    let store = MemoryStore::with_bytes_max(Sources::seeded(1), 1000);
    let large = |id: i32| rawdoc! { "_id": id, "pad": "x".repeat(600) };
    store.insert_one(&c(), large(1)).await.expect("fits");
    let outcome = store.insert(Insert::new(c(), vec![large(2)])).await.expect("an outcome");
    assert_eq!((outcome.inserted, outcome.errors[0].error.code()), (0, Code::OutOfDiskSpace));
    let change = UpdateSpec::Document(rawdoc! { "$set": { "more": "x".repeat(600) } });
    let update = Update::new(c(), vec![UpdateStatement::one(rawdoc! { "_id": 1 }, change)]);
    let outcome = store.update(update).await.expect("an outcome");
    assert_eq!((outcome.matched, outcome.modified, outcome.errors.len()), (0, 0, 1));
    assert_eq!(store.find_all(Find::new(c(), rawdoc! {})).await.expect("found"), [large(1)]);
    // A delete is allowed, and makes room.
    assert!(store.delete_one(&c(), rawdoc! { "_id": 1 }).await.expect("deleted"));
    store.insert_one(&c(), large(2)).await.expect("fits");
}

/// With more deletions than the store remembers, an old snapshot conflicts, as its document may be among the forgotten ones.
#[tokio::test]
async fn a_commit_older_than_the_remembered_deletions_conflicts() {
    let store = MemoryStore::new(Sources::seeded(1));
    let old = store.snapshot().await.expect("a snapshot").timestamp();
    let count = i32::try_from(DELETIONS_KEPT_MAX).expect("small") + 1;
    let all = |put: bool| {
        let write = move |id: i32| {
            let write = if put { DocumentWrite::Put(rawdoc! { "_id": id }) } else { DocumentWrite::Delete };
            BatchWrite::new(c(), id, write)
        };
        (0..count).map(write).collect()
    };
    for put in [true, false] {
        let read_at = store.snapshot().await.expect("a snapshot").timestamp();
        let durability = Durability::Memory;
        store
            .commit(AtomicBatch { writes: all(put), durability, ..AtomicBatch::new(read_at) })
            .await
            .expect("committed");
    }
    let refused = store.commit(batch(old, -1)).await.expect_err("too old to tell");
    assert_eq!(refused.code(), Code::WriteConflict);
    let now = store.snapshot().await.expect("a snapshot").timestamp();
    store.commit(batch(now, -1)).await.expect("a new snapshot can tell");
}

#[tokio::test]
async fn clones_share_their_documents_and_stores_do_not() {
    let (store, other) = (MemoryStore::new(Sources::seeded(1)), MemoryStore::new(Sources::seeded(1)));
    store.clone().insert_one(&c(), rawdoc! { "_id": 1 }).await.expect("inserted");
    assert_eq!(store.count_matching(&c(), rawdoc! {}).await.expect("counted"), 1);
    assert_eq!(other.count_matching(&c(), rawdoc! {}).await.expect("counted"), 0);
}

#[tokio::test]
async fn the_same_seed_gives_the_same_ids() {
    let run = async || {
        let store = MemoryStore::new(Sources::seeded(7));
        for n in 0..5 {
            store.insert_one(&c(), rawdoc! { "n": n }).await.expect("inserted");
        }
        let uuid = store.list_collections("d").await.expect("listed")[0].uuid;
        (store.find_all(Find::new(c(), rawdoc! {})).await.expect("found"), uuid)
    };
    assert_eq!(run().await, run().await);
}

#[tokio::test]
async fn snapshots_and_writers_do_not_wait_for_each_other() {
    let store = MemoryStore::new(Sources::seeded(1));
    store.insert_one(&c(), rawdoc! { "_id": 1, "n": 0 }).await.expect("inserted");
    let snapshot = store.snapshot().await.expect("a snapshot");
    for _ in 0..100 {
        store.update_one(&c(), rawdoc! { "_id": 1 }, rawdoc! { "$inc": { "n": 1 } }).await.expect("changed");
    }
    let then = snapshot.get(&c(), RawBsonRef::Int32(1)).await.expect("read");
    assert_eq!(then, Some(rawdoc! { "_id": 1, "n": 0 }));
    let now = store.find_one(&c(), rawdoc! {}).await.expect("read");
    assert_eq!(now, Some(rawdoc! { "_id": 1, "n": 100 }));
}
