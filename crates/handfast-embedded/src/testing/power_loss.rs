//! A loss of power right after an answer. A kill leaves all bytes that the operating system has; a loss of power may destroy all
//! of them that are not synced. So the test keeps a copy of the directory at each sync, and after each acknowledged request the last
//! copy must hold what the answer says:
//!
//! ```text
//! request      create a collection        create an index ..
//! engine       batch   sync               batch   batch   sync
//! kept                      copy 1                             copy 2
//! answer                         done: in copy 1?                   done: in copy 2?
//! ```
//!
//! The requests include those on the catalog: no kill of a process would show that one of those is acknowledged too early.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bson::rawdoc;
use handfast_sim::directory::copy;
use handfast_store::{
    CollectionOptions, CreateIndexes, Delete, DeleteStatement, DocumentStore, DropIndexes, Durability, Find,
    IndexSelector, IndexSpec, Insert, ModifyCollection, ModifyIndex, ModifyView, Namespace, RenameCollection, Sources,
    StoreExt, ViewDefinition,
};
use handfast_txn::Database;
use tempfile::TempDir;

use super::{all, checked, namespace, open_faulty};
use crate::{EmbeddedStore, Options};

/// Copies of the directory as it was at each sync, by number; copy 0 is from the beginning.
struct Kept {
    directories: TempDir,
    last: AtomicU64,
}

impl Kept {
    fn path(&self, number: u64) -> PathBuf {
        self.directories.path().join(number.to_string())
    }

    /// Copies the directory. Only the committer's thread calls this.
    fn keep(&self, from: &std::path::Path) {
        let number = self.last.load(Ordering::Acquire) + 1;
        copy(from, &self.path(number)).unwrap();
        self.last.store(number, Ordering::Release);
    }

    /// Returns what a client can see in the last copy.
    async fn facts(&self) -> Vec<String> {
        let path = self.path(self.last.load(Ordering::Acquire));
        let store = EmbeddedStore::open(path, Sources::seeded(1), Options::small()).await.unwrap();
        let facts = facts(&store).await;
        store.close().await.unwrap();
        facts
    }
}

/// Opens a store with some collections, indexes and documents, which is copied at each sync.
async fn begin(acknowledge_after_sync: bool) -> (Arc<Kept>, EmbeddedStore) {
    let directories = tempfile::tempdir().unwrap();
    let kept = Arc::new(Kept { directories, last: AtomicU64::new(0) });
    let original = kept.directories.path().join("original");
    let store = EmbeddedStore::open(&original, Sources::seeded(1), Options::small()).await.unwrap();
    let documents = (0..4).map(|n| rawdoc! { "_id": n, "n": n }).collect();
    store.insert(Insert::new(namespace(), documents)).await.unwrap();
    store.create_index(&namespace(), IndexSpec::new(rawdoc! { "n": 1 })).await.unwrap();
    for other in [in_db("passing"), Namespace::new("second", "c").unwrap()] {
        store.insert_one(&other, rawdoc! { "_id": 1 }).await.unwrap();
    }
    store.close().await.unwrap();

    copy(&original, &kept.path(0)).unwrap();
    // No sync happens besides those of the requests.
    let memory_sync_interval = Duration::from_secs(3600);
    let options = Options { acknowledge_after_sync, memory_sync_interval, ..Options::small() };
    let (engine, store) = open_faulty(&original, options);
    let copies = Arc::clone(&kept);
    engine.after_each_sync(move || copies.keep(&original));
    (kept, store)
}

fn in_db(collection: &str) -> Namespace {
    Namespace::new("db", collection).unwrap()
}

fn view_on(source: &str) -> CollectionOptions {
    let view = ViewDefinition { on: source.to_owned(), pipeline: Vec::new(), collation: None };
    CollectionOptions { view: Some(view), ..CollectionOptions::default() }
}

/// Runs one request and returns its description; `None` at the end. Each gives the store a state that it never had before.
async fn request(store: &EmbeddedStore, number: usize) -> Option<&'static str> {
    let names = |name: &str| IndexSelector::Names(vec![name.to_owned()]);
    let store = checked(store);
    Some(match number {
        0 => {
            store.create_collection(&in_db("made"), CollectionOptions::default()).await.unwrap();
            "a collection was created"
        }
        1 => {
            store.create_index(&in_db("made"), IndexSpec::new(rawdoc! { "a": 1 })).await.unwrap();
            "an index was created without documents"
        }
        2 => {
            let spec = IndexSpec { expire_after_seconds: Some(1 << 20), ..IndexSpec::new(rawdoc! { "at": 1 }) };
            store.create_index(&namespace(), spec).await.unwrap();
            "an index was built over documents"
        }
        3 => {
            let change = ModifyIndex { selector: names("at_1"), expire_after_seconds: Some(1 << 21), hidden: None };
            let request = ModifyCollection { index: Some(change), ..ModifyCollection::new(namespace()) };
            store.modify_collection(request).await.unwrap();
            "an index was changed"
        }
        4 => {
            let request = RenameCollection { from: in_db("made"), to: in_db("renamed"), drop_target: false };
            store.rename_collection(request).await.unwrap();
            "a collection was renamed"
        }
        5 => {
            store.drop_indexes(DropIndexes { namespace: namespace(), selector: names("n_1") }).await.unwrap();
            "an index was dropped"
        }
        6 => {
            assert!(store.drop_collection(&in_db("passing")).await.unwrap());
            "a collection was dropped"
        }
        7 => {
            assert!(store.drop_database("second").await.unwrap());
            "a database was dropped"
        }
        8 => {
            store.insert_one(&in_db("implied"), rawdoc! { "_id": 1 }).await.unwrap();
            "a collection was made by an insert"
        }
        9 => {
            store.update_many(&namespace(), rawdoc! {}, rawdoc! { "$inc": { "n": 100 } }).await.unwrap();
            "documents were updated"
        }
        10 => {
            let statements = vec![DeleteStatement { filter: rawdoc! { "_id": 3 }, multi: false, hint: None }];
            store.delete(Delete::new(namespace(), statements)).await.unwrap();
            "a document was deleted"
        }
        11 => {
            let transaction = Database::local(store, Sources::seeded(1)).begin().await.unwrap();
            let indexes = vec![IndexSpec::new(rawdoc! { "b": 1 })];
            transaction.create_indexes(CreateIndexes { namespace: in_db("together"), indexes }).await.unwrap();
            transaction.insert_one(&in_db("together"), rawdoc! { "_id": 1 }).await.unwrap();
            transaction.commit().await.unwrap();
            "a transaction made a collection"
        }
        12 => {
            let insert = Insert::new(in_db("flushed"), vec![rawdoc! { "_id": 1 }]);
            store.insert(Insert { durability: Durability::Memory, ..insert }).await.unwrap();
            store.flush().await.unwrap();
            "what was in memory was flushed"
        }
        13 => {
            store.create_collection(&in_db("view"), view_on("c")).await.unwrap();
            "a view was created"
        }
        14 => {
            let view = ModifyView { on: Some("implied".to_owned()), ..ModifyView::default() };
            store.modify_collection(ModifyCollection { view, ..ModifyCollection::new(in_db("view")) }).await.unwrap();
            "a view was changed"
        }
        15 => {
            assert!(store.drop_collection(&in_db("view")).await.unwrap());
            "a view was dropped"
        }
        _ => return None,
    })
}

/// Returns what a client can see.
async fn facts(store: &EmbeddedStore) -> Vec<String> {
    let (mut facts, store) = (Vec::new(), checked(store));
    for database in store.list_databases().await.unwrap() {
        for info in store.list_collections(&database).await.unwrap() {
            let namespace = Namespace::new(&database, &info.name).unwrap();
            facts.push(format!("{namespace}: {info:?}"));
            let indexes = match info.options.view {
                Some(_) => Vec::new(),
                None => store.list_indexes(&namespace).await.unwrap(),
            };
            facts.extend(indexes.iter().map(|index| format!("{namespace}: {:?}", index.spec.to_document())));
            let documents = all(store.find(Find::new(namespace.clone(), rawdoc! {})).await.unwrap()).await;
            facts.extend(documents.iter().map(|document| format!("{namespace}: {document:?}")));
        }
    }
    facts
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_acknowledged_outlives_a_loss_of_power() {
    let (kept, store) = begin(true).await;
    let mut requests = 0;
    while let Some(what) = request(&store, requests).await {
        assert_eq!(kept.facts().await, facts(&store).await, "{what}");
        requests += 1;
    }
    assert!(requests > 10, "{requests}");
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn each_request_that_is_acknowledged_before_its_sync_is_caught() {
    let (kept, store) = begin(false).await;
    let mut requests = 0;
    while let Some(what) = request(&store, requests).await {
        assert_ne!(kept.facts().await, facts(&store).await, "{what}");
        requests += 1;
    }
}
