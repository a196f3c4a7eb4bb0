//! Views: they are kept as collections are, and read through the indexes of their sources.

use std::time::Duration;

use bson::{RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_store::{
    BatchLimit, CollectionOptions, DocumentStore, Explain, Explained, Find, IndexSpec, Insert, ModifyCollection,
    ModifyView, Namespace, RenameCollection, StoreExt, Verbosity, ViewDefinition, Watch, WatchScope,
};

use crate::EmbeddedStore;
use crate::testing::{all, checked, namespace, open};

fn in_db(name: &str) -> Namespace {
    Namespace::new("db", name).unwrap()
}

fn on(source: &str, filter: RawDocumentBuf) -> CollectionOptions {
    let view = ViewDefinition { on: source.to_owned(), pipeline: vec![rawdoc! { "$match": filter }], collation: None };
    CollectionOptions { view: Some(view), ..CollectionOptions::default() }
}

async fn found(store: &EmbeddedStore, view: &str) -> Vec<RawDocumentBuf> {
    all(checked(store).find(Find::new(in_db(view), rawdoc! {})).await.unwrap()).await
}

#[tokio::test]
async fn a_view_is_kept_by_a_reopening_and_a_backup() {
    let directories = tempfile::tempdir().unwrap();
    let (original, copy) = (directories.path().join("original"), directories.path().join("copy"));
    let store = open(&original).await;
    let documents = [rawdoc! { "_id": 1, "n": 1 }, rawdoc! { "_id": 2, "n": 2 }];
    store.insert(Insert::new(namespace(), documents.to_vec())).await.unwrap();
    store.create_collection(&in_db("v"), on("c", rawdoc! { "n": 1 })).await.unwrap();
    store.close().await.unwrap();
    let store = open(&original).await;
    assert_eq!(found(&store, "v").await, documents[..1]);
    let view = ModifyView { pipeline: Some(vec![rawdoc! { "$match": { "n": 2 } }]), ..ModifyView::default() };
    checked(&store).modify_collection(ModifyCollection { view, ..ModifyCollection::new(in_db("v")) }).await.unwrap();
    store.backup(&copy).await.unwrap();
    assert_eq!(found(&open(&copy).await, "v").await, documents[1..]);
    store.close().await.unwrap();
    let store = open(&original).await;
    assert_eq!(found(&store, "v").await, documents[1..]);
    let rename = RenameCollection { from: in_db("v"), to: in_db("w"), drop_target: false };
    assert_eq!(store.rename_collection(rename).await.unwrap_err().code(), Code::CommandNotSupportedOnView);
    assert!(store.drop_collection(&in_db("v")).await.unwrap());
    store.close().await.unwrap();
    let store = open(&original).await;
    assert_eq!(store.list_collections("db").await.unwrap().len(), 1);
    store.insert_one(&in_db("v"), rawdoc! { "_id": 3 }).await.unwrap();
    assert_eq!(found(&store, "v").await, [rawdoc! { "_id": 3 }]);
}

/// Returns the documents that an explained find examined, and how many it returned.
async fn examined(store: &EmbeddedStore, find: Find) -> (i32, i32) {
    let explain = Explain { explained: Explained::Find(find), verbosity: Verbosity::ExecutionStats };
    let explained = checked(store).explain(explain).await.unwrap();
    let statistics = explained.get_document("executionStats").unwrap();
    (statistics.get_i32("totalDocsExamined").unwrap(), statistics.get_i32("nReturned").unwrap())
}

#[tokio::test]
async fn a_find_in_a_view_uses_the_indexes_of_its_source() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).await;
    let documents = (0..200).map(|n| rawdoc! { "_id": n, "n": n, "kind": n % 2 }).collect();
    store.insert(Insert::new(namespace(), documents)).await.unwrap();
    store.create_index(&namespace(), IndexSpec::new(rawdoc! { "n": 1 })).await.unwrap();
    store.create_collection(&in_db("v"), on("c", rawdoc! { "kind": 1 })).await.unwrap();
    store.create_collection(&in_db("w"), on("v", rawdoc! { "n": { "$gte": 150 } })).await.unwrap();
    let few = rawdoc! { "n": { "$gte": 10, "$lt": 20 } };
    assert_eq!(examined(&store, Find::new(in_db("v"), few)).await, (10, 5));
    assert_eq!(examined(&store, Find::new(in_db("v"), rawdoc! { "_id": 7 })).await, (1, 1));
    assert_eq!(examined(&store, Find::new(in_db("w"), rawdoc! {})).await, (50, 25));
    let first = Find { sort: rawdoc! { "n": 1 }, limit: Some(1), ..Find::new(in_db("v"), rawdoc! {}) };
    let (documents, returned) = examined(&store, first).await;
    assert!(documents < 10 && returned == 1, "{documents} for {returned}");
}

#[tokio::test]
async fn a_change_stream_with_expanded_events_shows_views_and_none_is_opened_on_one() {
    let directory = tempfile::tempdir().unwrap();
    let options = crate::Options { change_log: crate::ChangeLog::On, ..crate::Options::small() };
    let store = EmbeddedStore::open(directory.path(), handfast_store::Sources::seeded(1), options).await.unwrap();
    let scope = WatchScope::Database("db".to_owned());
    let mut plain = store.watch(Watch::new(scope.clone())).await.unwrap();
    let mut expanded = store.watch(Watch { expanded: true, ..Watch::new(scope) }).await.unwrap();
    // The name is that of nothing yet.
    let of_name = WatchScope::Collection(in_db("v"));
    let mut of_name = store.watch(Watch { expanded: true, ..Watch::new(of_name) }).await.unwrap();
    store.create_collection(&in_db("v"), on("c", rawdoc! {})).await.unwrap();
    let view = ModifyView { on: Some("d".to_owned()), ..ModifyView::default() };
    store.modify_collection(ModifyCollection { view, ..ModifyCollection::new(in_db("v")) }).await.unwrap();
    let watch = Watch::new(WatchScope::Collection(in_db("v")));
    assert_eq!(store.watch(watch).await.err().unwrap().code(), Code::CommandNotSupportedOnView);
    store.drop_collection(&in_db("v")).await.unwrap();
    store.insert_one(&in_db("v"), rawdoc! { "_id": 1 }).await.unwrap();
    let limit = BatchLimit { documents: 10, bytes: 1 << 20 };
    let kinds = |events: &[RawDocumentBuf]| -> Vec<String> {
        events.iter().map(|event| event.get_str("operationType").unwrap().to_owned()).collect()
    };
    let page = expanded.next_events(limit, Duration::ZERO).await.unwrap();
    assert_eq!(kinds(&page.events), ["create", "modify", "drop", "create", "insert"]);
    let description = page.events[1].get_document("operationDescription").unwrap();
    assert_eq!(description, rawdoc! { "viewOn": "d", "pipeline": [{ "$match": {} }] }.as_ref());
    assert!(page.events[0].get("collectionUUID").unwrap().is_none());
    let page = plain.next_events(limit, Duration::ZERO).await.unwrap();
    assert_eq!(kinds(&page.events), ["insert"]);
    // The drop of a view does not end the stream of a collection that gets the name.
    let page = of_name.next_events(limit, Duration::ZERO).await.unwrap();
    assert_eq!(kinds(&page.events), ["create", "insert"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn finds_beside_changes_of_a_view_see_one_of_its_states() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).await;
    let documents = (0..20).map(|n| rawdoc! { "_id": n, "kind": n % 2 }).collect();
    store.insert(Insert::new(namespace(), documents)).await.unwrap();
    let changes = {
        let store = store.clone();
        tokio::spawn(async move {
            for round in 0..50 {
                store.create_collection(&in_db("v"), on("c", rawdoc! { "kind": round % 2 })).await.unwrap();
                let pipeline = Some(vec![rawdoc! { "$match": { "kind": (round + 1) % 2 } }]);
                let view = ModifyView { pipeline, ..ModifyView::default() };
                store.modify_collection(ModifyCollection { view, ..ModifyCollection::new(in_db("v")) }).await.unwrap();
                store.drop_collection(&in_db("v")).await.unwrap();
            }
        })
    };
    while !changes.is_finished() {
        let documents = found(&store, "v").await;
        let kinds: std::collections::BTreeSet<_> =
            documents.iter().map(|document| document.get_i32("kind").unwrap()).collect();
        assert!(documents.is_empty() || (documents.len() == 10 && kinds.len() == 1), "{documents:?}");
    }
    changes.await.unwrap();
}

#[tokio::test]
async fn a_thousand_views_are_created_and_kept() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).await;
    store.insert_one(&namespace(), rawdoc! { "_id": 1, "n": 7 }).await.unwrap();
    // Beside each other, so that they share syncs.
    let mut creations = tokio::task::JoinSet::new();
    for number in 0..1000 {
        let store = store.clone();
        creations.spawn(async move {
            store.create_collection(&in_db(&format!("v{number}")), on("c", rawdoc! { "n": number })).await.unwrap();
        });
    }
    creations.join_all().await;
    store.close().await.unwrap();
    let store = open(directory.path()).await;
    assert_eq!(store.list_collections("db").await.unwrap().len(), 1001);
    assert_eq!((found(&store, "v7").await.len(), found(&store, "v8").await.len()), (1, 0));
}
