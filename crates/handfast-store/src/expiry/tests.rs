use std::time::Duration;

use bson::{DateTime, RawDocumentBuf, rawdoc};

use super::expire;
use crate::{CreateIndexes, DocumentStore, Find, IndexSpec, Insert, MemoryStore, Namespace, Sources, StoreExt};

fn c() -> Namespace {
    Namespace::valid("d", "c")
}

fn at(millis: i64) -> DateTime {
    DateTime::from_millis(millis)
}

/// Returns the `_id`s of the documents that are left under this index at 100 seconds.
async fn left(index: IndexSpec, documents: Vec<RawDocumentBuf>) -> (u64, Vec<i32>) {
    let store = MemoryStore::new(Sources::seeded(1));
    store.create_indexes(CreateIndexes { namespace: c(), indexes: vec![index] }).await.expect("created");
    store.insert(Insert::new(c(), documents)).await.expect("inserted");
    let expired = expire(&store, at(100_000)).await.expect("no error");
    let found = store.find_all(Find::new(c(), rawdoc! {})).await.expect("found");
    (expired, found.iter().map(|document| document.get_i32("_id").expect("an int")).collect())
}

fn after(seconds: i64) -> IndexSpec {
    IndexSpec { expire_after_seconds: Some(seconds), ..IndexSpec::new(rawdoc! { "t": 1 }) }
}

#[tokio::test]
async fn documents_expire_at_their_time_and_not_before() {
    let documents = vec![
        rawdoc! { "_id": 1, "t": at(89_999) },
        rawdoc! { "_id": 2, "t": at(90_000) },
        rawdoc! { "_id": 3, "t": at(90_001) },
    ];
    assert_eq!(left(after(10), documents).await, (2, vec![3]));
}

#[tokio::test]
async fn a_document_without_a_date_stays_and_an_array_expires_with_its_earliest_date() {
    let documents = vec![
        rawdoc! { "_id": 1 },
        rawdoc! { "_id": 2, "t": null },
        rawdoc! { "_id": 3, "t": 5 },
        rawdoc! { "_id": 4, "t": "1970" },
        rawdoc! { "_id": 5, "t": [at(999_999), at(1)] },
        rawdoc! { "_id": 6, "t": [at(999_999), "x"] },
    ];
    assert_eq!(left(after(10), documents).await, (1, vec![1, 2, 3, 4, 6]));
}

#[tokio::test]
async fn a_partial_index_lets_only_its_own_documents_expire() {
    let index = IndexSpec { partial_filter: Some(rawdoc! { "done": true }), ..after(0) };
    let documents = vec![rawdoc! { "_id": 1, "t": at(1), "done": true }, rawdoc! { "_id": 2, "t": at(1) }];
    assert_eq!(left(index, documents).await, (1, vec![2]));
}

#[tokio::test]
async fn an_index_without_lifetime_lets_nothing_expire() {
    let index = IndexSpec::new(rawdoc! { "t": 1 });
    assert_eq!(left(index, vec![rawdoc! { "_id": 1, "t": at(1) }]).await, (0, vec![1]));
}

#[tokio::test]
async fn documents_expire_as_the_clock_advances() {
    let (sources, clock) = Sources::manual(1);
    let store = MemoryStore::new(sources.clone());
    store.create_indexes(CreateIndexes { namespace: c(), indexes: vec![after(60)] }).await.expect("created");
    store.insert_one(&c(), rawdoc! { "_id": 1, "t": sources.clock.now() }).await.expect("inserted");
    assert_eq!(expire(&store, sources.clock.now()).await.expect("no error"), 0);
    clock.advance(Duration::from_secs(60));
    assert_eq!(expire(&store, sources.clock.now()).await.expect("no error"), 1);
}
