//! A store in its directory: reopening, locking, requests that take long, snapshots that are ended.

mod chance;
mod change_log;
mod default_collation;
mod validator;
mod validator_steps;
mod view;

use std::time::Duration;

use bson::{RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_store::{
    CollectionOptions, CreateIndexes, DocumentStore, Durability, Find, IndexSpec, Insert, Namespace, Sources, Update,
    UpdateSpec, UpdateStatement,
};

use super::EmbeddedStore;
use crate::testing::{all, find_all, namespace, open};
use crate::{Error, Options};

#[tokio::test]
async fn documents_are_there_again_after_a_reopen() {
    let directory = tempfile::tempdir().unwrap();
    let documents: Vec<_> = (0..50).map(|n| rawdoc! { "_id": n, "text": format!("document {n}") }).collect();
    let store = open(directory.path()).await;
    let outcome = store.insert(Insert::new(namespace(), documents.clone())).await.unwrap();
    assert_eq!((outcome.inserted, outcome.errors.len()), (50, 0));
    assert_eq!(find_all(&store).await, documents);
    assert_eq!(store.costs().syncs, 1, "fifty documents, one sync");
    store.close().await.unwrap();

    let store = open(directory.path()).await;
    assert_eq!(find_all(&store).await, documents);
    let stats = store.collection_stats(&namespace()).await.unwrap();
    assert_eq!(stats.count, 50);
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_second_document_with_the_same_id_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).await;
    let twice = vec![rawdoc! { "_id": 1 }, rawdoc! { "_id": 1.0 }, rawdoc! { "_id": 2 }];
    let outcome = store.insert(Insert { ordered: false, ..Insert::new(namespace(), twice) }).await.unwrap();
    assert_eq!((outcome.inserted, outcome.errors.len()), (2, 1));
    let error = &outcome.errors[0];
    assert_eq!((error.index, error.error.code()), (1, Code::DuplicateKey));
    assert_eq!(error.error.message(), "E11000 duplicate key error collection: db.c index: _id_ dup key: { _id: 1.0 }");
}

#[tokio::test]
async fn a_unique_index_is_built_over_documents_and_then_kept() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).await;
    let documents: Vec<_> = (0..2500).map(|n| rawdoc! { "_id": n, "a": n % 2400 }).collect();
    store.insert(Insert::new(namespace(), documents)).await.unwrap();
    let index = IndexSpec { unique: true, ..IndexSpec::new(rawdoc! { "a": 1 }) };
    let request = CreateIndexes { namespace: namespace(), indexes: vec![index] };
    let error = store.create_indexes(request.clone()).await.unwrap_err();
    assert_eq!(error.code(), Code::DuplicateKey);
    assert_eq!(store.list_indexes(&namespace()).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_directory_is_opened_once() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).await;
    let error = EmbeddedStore::open(directory.path(), Sources::seeded(2), Options::small()).await.unwrap_err();
    assert!(matches!(&error, Error::InUse { holder: Some(pid), .. } if *pid == std::process::id()), "{error}");
    store.insert(Insert::new(namespace(), vec![rawdoc! { "_id": 1 }])).await.unwrap();
    // A cursor keeps the directory in use, too.
    let cursor = store.find(Find::new(namespace(), rawdoc! {})).await.unwrap();
    store.close().await.unwrap();
    EmbeddedStore::open(directory.path(), Sources::seeded(2), Options::small()).await.unwrap_err();
    assert_eq!(all(cursor).await.len(), 1);
    open(directory.path()).await.close().await.unwrap();
}

#[tokio::test]
async fn memory_durability_is_seen_at_once_and_synced_by_a_flush() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).await;
    let insert = Insert { durability: Durability::Memory, ..Insert::new(namespace(), vec![rawdoc! { "_id": 1 }]) };
    store.insert(insert).await.unwrap();
    assert_eq!(find_all(&store).await.len(), 1);
    store.flush().await.unwrap();
    assert!(store.costs().syncs >= 1);
}

/// Returns an update whose value takes a loop over `items` items.
fn looping(filter: RawDocumentBuf, items: i32, multi: bool) -> Update {
    let sum = rawdoc! { "$sum": { "$map": { "input": { "$range": [0, items] }, "in": 1 } } };
    let change = UpdateSpec::Pipeline(vec![rawdoc! { "$set": { "sum": sum } }]);
    Update::new(namespace(), vec![UpdateStatement { multi, ..UpdateStatement::one(filter, change) }])
}

#[tokio::test]
async fn expensive_evaluations_are_computed_off_the_committer() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { turn_steps_max: 1000, ..Options::small() };
    let store = EmbeddedStore::open(directory.path(), Sources::seeded(1), options).await.unwrap();
    let documents = (0..20).map(|n| rawdoc! { "_id": n, "a": 1 }).collect();
    store.insert(Insert::new(namespace(), documents)).await.unwrap();

    for filter in [rawdoc! { "_id": 3 }, rawdoc! { "a": 1 }] {
        for (items, operations) in [(600, 1), (1100, 2)] {
            let before = store.costs().operations;
            let outcome = store.update(looping(filter.clone(), items, false)).await.unwrap();
            assert_eq!((outcome.matched, outcome.modified, outcome.errors.len()), (1, 1, 0), "{filter:?} {items}");
            assert_eq!(store.costs().operations - before, operations, "{filter:?} {items}");
        }
    }
    let mut upsert = looping(rawdoc! { "_id": 99 }, 1200, false);
    upsert.statements[0].upsert = true;
    let outcome = store.update(upsert).await.unwrap();
    assert_eq!((outcome.upserted.len(), outcome.errors.len()), (1, 0));

    // Each document takes fewer steps than the limit of an operation, and all together more: there are several
    // operations.
    for (items, operations) in [(601, 10), (1101, 20)] {
        let before = store.costs().operations;
        let outcome = store.update(looping(rawdoc! { "a": 1 }, items, true)).await.unwrap();
        assert_eq!((outcome.matched, outcome.modified, outcome.errors.len()), (20, 20, 0));
        assert!(store.costs().operations - before >= operations, "few documents in an operation");
    }
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_evaluation_off_the_committer_applies_to_the_newest_document_only() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { turn_steps_max: 1000, ..Options::small() };
    let store = EmbeddedStore::open(directory.path(), Sources::seeded(1), options).await.unwrap();
    store.insert(Insert::new(namespace(), vec![rawdoc! { "_id": 1, "n": 0 }])).await.unwrap();
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move {
                for _ in 0..10 {
                    let mut update = looping(rawdoc! { "_id": 1 }, 1100, false);
                    let sum = rawdoc! { "$set": { "n": { "$add": ["$n", 1] } } };
                    match &mut update.statements[0].update {
                        UpdateSpec::Pipeline(stages) => stages.push(sum),
                        UpdateSpec::Document(_) => unreachable!(),
                    }
                    let outcome = store.update(update).await.unwrap();
                    assert_eq!((outcome.modified, outcome.errors.len()), (1, 0), "{:?}", outcome.errors);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(find_all(&store).await[0].get_i32("n").unwrap(), 80);
    store.close().await.unwrap();
}

/// Updates that evaluate every branch for every element of an array: minutes of work.
fn endless() -> Vec<UpdateStatement> {
    let branches = |name: &str| {
        let mut all = bson::RawArrayBuf::new();
        for n in 0..3000 {
            let mut branch = RawDocumentBuf::new();
            branch.append(bson::raw::CString::try_from(name).unwrap(), rawdoc! { "$lt": -1 - n });
            all.push(branch);
        }
        all
    };
    let one = |change| UpdateStatement::one(rawdoc! { "_id": "long" }, UpdateSpec::Document(change));
    let filtered = one(rawdoc! { "$set": { "a.$[x].seen": 1 } });
    let array_filters = vec![rawdoc! { "$or": branches("x.b") }];
    vec![
        UpdateStatement { array_filters, ..filtered },
        one(rawdoc! { "$pull": { "a": { "$or": branches("b") } } }),
        UpdateStatement { multi: true, ..one(rawdoc! { "$pull": { "a": { "$or": branches("b") } } }) },
        UpdateStatement::one(
            rawdoc! { "_id": "long", "a": { "$elemMatch": { "$or": branches("b") } } },
            UpdateSpec::Document(rawdoc! { "$set": { "c": 1 } }),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_that_takes_minutes_does_not_block_other_writes() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), Sources::seeded(1), Options::small()).await.unwrap();
    let mut array = bson::RawArrayBuf::new();
    for n in 0..100_000 {
        array.push(rawdoc! { "b": n });
    }
    store.insert(Insert::new(namespace(), vec![rawdoc! { "_id": "long", "a": array }])).await.unwrap();
    for statement in endless() {
        let text = format!("{:?}", statement.update);
        let (updating, begun) = (store.clone(), tokio::time::Duration::from_millis(300));
        let update = tokio::spawn(async move { updating.update(Update::new(namespace(), vec![statement])).await });
        tokio::time::sleep(begun).await;
        let other = Insert::new(Namespace::new("db", "other").unwrap(), vec![rawdoc! {}]);
        let inserted = tokio::time::timeout(Duration::from_secs(60), store.insert(other)).await;
        assert_eq!(inserted.expect("it waits").unwrap().inserted, 1, "{text:.40}");
        assert!(!update.is_finished(), "it takes minutes: {text:.40}");
        update.abort();
    }
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_expire_while_collections_are_dropped_all_the_time() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { expiry_interval: Some(Duration::from_millis(100)), ..Options::small() };
    let store = EmbeddedStore::open(directory.path(), Sources::seeded(1), options).await.unwrap();
    let index = IndexSpec { expire_after_seconds: Some(1), ..IndexSpec::new(rawdoc! { "at": 1 }) };
    store.create_indexes(CreateIndexes { namespace: namespace(), indexes: vec![index] }).await.unwrap();
    let expired = rawdoc! { "_id": 1, "at": bson::DateTime::from_millis(0) };
    store.insert(Insert::new(namespace(), vec![expired])).await.unwrap();
    let other = Namespace::new("db", "other").unwrap();
    for _ in 0..200 {
        store.create_collection(&other, CollectionOptions::default()).await.unwrap();
        store.drop_collection(&other).await.unwrap();
        if find_all(&store).await.is_empty() {
            store.close().await.unwrap();
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("two seconds of drops, and nothing has expired");
}

#[tokio::test]
async fn a_document_with_an_array_is_found_once_by_any_of_its_keys() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).await;
    store
        .create_indexes(CreateIndexes { namespace: namespace(), indexes: vec![IndexSpec::new(rawdoc! { "a": 1 })] })
        .await
        .unwrap();
    let document = |n: i32| rawdoc! { "_id": n, "a": (n..n + 20).step_by(3).collect::<bson::RawArrayBuf>() };
    store.insert(Insert::new(namespace(), (0..50).map(document).collect())).await.unwrap();
    let holds = |n: i32, wanted: &dyn Fn(i32) -> bool| (n..n + 20).step_by(3).any(wanted);
    let in_some = [4, 5, 17, 30, 31, 44];
    type Wanted<'w> = &'w dyn Fn(i32) -> bool;
    let cases: [(RawDocumentBuf, Wanted<'_>); 3] = [
        (rawdoc! { "a": { "$gte": 10 } }, &|a| a >= 10),
        (rawdoc! { "a": { "$in": in_some.into_iter().collect::<bson::RawArrayBuf>() } }, &|a| in_some.contains(&a)),
        (rawdoc! { "a": { "$lt": 40 } }, &|a| a < 40),
    ];
    for (filter, wanted) in cases {
        for direction in [1, -1] {
            let mut find = Find::new(namespace(), filter.clone());
            (find.hint, find.sort) = (Some(handfast_store::Hint::Name("a_1".to_owned())), rawdoc! { "a": direction });
            let found = all(store.find(find).await.unwrap()).await;
            let mut ids: Vec<i32> = found.iter().map(|document| document.get_i32("_id").unwrap()).collect();
            ids.sort_unstable();
            let expected: Vec<i32> = (0..50).filter(|&n| holds(n, wanted)).collect();
            assert_eq!(ids, expected, "{filter:?} {direction}");
        }
    }
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_temporary_collection_of_an_aggregation_is_dropped_at_the_next_opening() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).await;
    let left = Namespace::new("db", "tmp.agg_out.0123456789abcdef0123456789abcdef").unwrap();
    let named_alike = Namespace::new("db", "tmp.agg_out.mine").unwrap();
    for namespace in [&left, &named_alike] {
        store.insert(Insert::new(namespace.clone(), vec![rawdoc! { "_id": 1 }])).await.unwrap();
    }
    store.close().await.unwrap();
    let store = open(directory.path()).await;
    let names: Vec<_> = store.list_collections("db").await.unwrap().into_iter().map(|info| info.name).collect();
    assert_eq!(names, ["tmp.agg_out.mine"]);
    store.close().await.unwrap();
}

#[tokio::test]
async fn snapshots_that_keep_too_much_memory_are_ended_and_no_others() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { snapshot_bytes_max: 1 << 20, ..Options::small() };
    let store = EmbeddedStore::open(directory.path(), Sources::seeded(1), options).await.unwrap();
    let write = async |id: i32, bytes: usize| {
        store.insert(Insert::new(namespace(), vec![rawdoc! { "_id": id, "fill": "x".repeat(bytes) }])).await.unwrap();
    };
    let mut snapshots = Vec::new();
    for id in 0..4 {
        write(id, 1000).await;
        snapshots.push(store.context.snapshot());
    }
    write(4, 900_000).await;
    assert!(snapshots.iter().all(|snapshot| snapshot.view().is_ok()), "less than a mebibyte was written after them");
    let young = store.context.snapshot();
    write(5, 900_000).await;
    for snapshot in &snapshots {
        assert_eq!(snapshot.view().err().map(|error| error.code()), Some(Code::SnapshotTooOld));
    }
    assert!(young.view().is_ok());
    drop((snapshots, young));
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_scan_in_the_order_of_id_or_with_bounds_returns_keys_of_id() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).await;
    let documents = vec![rawdoc! { "_id": 1, "a": 1 }, rawdoc! { "_id": 2, "a": 2 }];
    store.insert(Insert::new(namespace(), documents)).await.unwrap();
    let (one, two) = (rawdoc! { "_id": 1 }, rawdoc! { "_id": 2 });
    for (filter, sort, keys) in [
        (rawdoc! {}, rawdoc! { "_id": -1 }, vec![two.clone(), one.clone()]),
        (rawdoc! { "_id": { "$gt": 1 } }, rawdoc! {}, vec![two]),
        (rawdoc! { "_id": 1 }, rawdoc! {}, vec![one]),
        (rawdoc! {}, rawdoc! {}, vec![rawdoc! {}, rawdoc! {}]),
        (rawdoc! {}, rawdoc! { "a": 1 }, vec![rawdoc! {}, rawdoc! {}]),
    ] {
        let find = Find { sort, return_key: true, ..Find::new(namespace(), filter) };
        let asked = format!("{find:?}");
        assert_eq!(all(store.find(find).await.unwrap()).await, keys, "{asked}");
    }
    store.close().await.unwrap();
}
