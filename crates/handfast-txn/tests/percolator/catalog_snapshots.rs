//! A collection is dropped or renamed beside an open transaction: the transaction's snapshot has the documents that it had, under the
//! names that they had, or the transaction has to be run again. It never finds a collection empty that was not, and commits no result
//! computed from that.
//!
//! The catalog is changed in the same process or, over one store, in another one.

use std::future::Future;
use std::sync::Arc;

use bson::{RawDocumentBuf, rawdoc};
use handfast_store::{
    CollectionOptions, DocumentStore, Find, IndexSpec, Insert, MemoryStore, Namespace, RenameCollection, Sources,
    StoreExt,
};
use handfast_txn::{Database, Error, Isolation, Transaction, TransactionOptions};

use crate::support::options;

const BOTH: [Isolation; 2] = [Isolation::Snapshot, Isolation::Serializable];

/// A way in which a collection is removed from its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Dropped,
    DroppedAndMadeAgain,
    DroppedWithItsDatabase,
    Renamed,
    RenamedAndMadeAgain,
    ReplacedByAnother,
    RenamedThereAndBack,
}

const CHANGES: [Change; 7] = [
    Change::Dropped,
    Change::DroppedAndMadeAgain,
    Change::DroppedWithItsDatabase,
    Change::Renamed,
    Change::RenamedAndMadeAgain,
    Change::ReplacedByAnother,
    Change::RenamedThereAndBack,
];

fn named(collection: &str) -> Namespace {
    Namespace::new("shop", collection).unwrap()
}

fn stock() -> Namespace {
    named("stock")
}

fn reports() -> Namespace {
    Namespace::new("office", "reports").unwrap()
}

/// The process that runs the transaction, and the process that changes the catalog.
struct Two {
    name: &'static str,
    reader: Database,
    other: Database,
}

/// Returns one process with the engine Local, and one and two with Percolator, each with three articles in stock.
async fn each_two() -> Vec<Two> {
    let sources = Sources::seeded(2);
    let local = Database::local(MemoryStore::new(Sources::seeded(1)), sources.clone());
    let process = |store: &Arc<MemoryStore>| Database::percolator(store.clone(), sources.clone(), options()).unwrap();
    let memory = || Arc::new(MemoryStore::new(Sources::seeded(1)));
    let (one, two) = (process(&memory()), memory());
    let all = vec![
        Two { name: "local", other: local.clone(), reader: local },
        Two { name: "percolator", other: one.clone(), reader: one },
        Two { name: "two processes", other: process(&two), reader: process(&two) },
    ];
    for Two { other, .. } in &all {
        other.insert(Insert::new(stock(), articles())).await.unwrap();
        other.create_index(&stock(), IndexSpec::new(rawdoc! { "n": 1 })).await.unwrap();
        other.insert_one(&named("next"), rawdoc! { "_id": "next" }).await.unwrap();
        other.insert_one(&reports(), rawdoc! { "_id": "first" }).await.unwrap();
    }
    all
}

fn articles() -> Vec<RawDocumentBuf> {
    (1..=3).map(|id| rawdoc! { "_id": id, "n": id }).collect()
}

impl Change {
    async fn make(self, database: &Database) {
        let rename = async |from: &str, to: &str, drop_target| {
            let request = RenameCollection { from: named(from), to: named(to), drop_target };
            database.rename_collection(request).await.unwrap();
        };
        let drop = async || assert!(database.drop_collection(&stock()).await.unwrap());
        let make = async || database.create_collection(&stock(), CollectionOptions::default()).await.unwrap();
        match self {
            Change::Dropped => drop().await,
            Change::DroppedAndMadeAgain => {
                drop().await;
                make().await;
                database.insert_one(&stock(), rawdoc! { "_id": 2, "n": 20 }).await.unwrap();
            }
            Change::DroppedWithItsDatabase => assert!(database.drop_database("shop").await.unwrap()),
            Change::Renamed => rename("stock", "old", false).await,
            Change::RenamedAndMadeAgain => {
                rename("stock", "old", false).await;
                make().await;
            }
            Change::ReplacedByAnother => rename("next", "stock", true).await,
            Change::RenamedThereAndBack => {
                rename("stock", "old", false).await;
                database
                    .update_one(&named("old"), rawdoc! { "_id": 2 }, rawdoc! { "$set": { "n": 20 } })
                    .await
                    .unwrap();
                rename("old", "stock", false).await;
            }
        }
    }
}

async fn begin(database: &Database, isolation: Isolation) -> Transaction {
    database.begin_with(TransactionOptions { isolation, ..TransactionOptions::default() }).await.unwrap()
}

/// The result of one kind of query for all documents of a collection.
type Found = Result<Vec<RawDocumentBuf>, Error>;

/// Returns the articles in stock in a snapshot, by each kind of query.
async fn in_stock(tx: &Transaction) -> Vec<Found> {
    let filters = [
        rawdoc! {},
        rawdoc! { "_id": { "$in": [1, 2, 3] } },
        rawdoc! { "n": { "$gt": 0 } },
        rawdoc! { "$expr": { "$gt": ["$n", 0] } },
    ];
    let mut all = Vec::new();
    for filter in filters {
        let find = Find { sort: rawdoc! { "_id": 1 }, ..Find::new(stock(), filter) };
        all.push(tx.find_all(find).await.map_err(Error::of_store));
    }
    all
}

fn check(found: &[Found], what: &dyn std::fmt::Debug) {
    for found in found {
        match found {
            Ok(found) => assert_eq!(*found, articles(), "{what:?}"),
            Err(error) => assert!(matches!(error, Error::Conflict(_)), "{what:?}: {error:?}"),
        }
    }
}

async fn on_each<F: Future<Output = ()>>(test: impl Fn(Two, Change, Isolation) -> F) {
    for change in CHANGES {
        for isolation in BOTH {
            for two in each_two().await {
                test(two, change, isolation).await;
            }
        }
    }
}

/// A snapshot keeps its collections whether or not the transaction has read them before.
#[tokio::test]
async fn a_snapshot_keeps_the_collections_that_it_began_with() {
    on_each(|Two { name, reader, other }, change, isolation| async move {
        let what = (name, change, isolation);
        let (looked, new) = (begin(&reader, isolation).await, begin(&reader, isolation).await);
        check(&in_stock(&looked).await, &what);
        change.make(&other).await;
        check(&in_stock(&looked).await, &what);
        check(&in_stock(&new).await, &what);
        // A collection that was not there at the snapshot is not there now.
        assert_eq!(new.count_matching(&named("old"), rawdoc! {}).await.unwrap(), 0, "{what:?}");
        assert_eq!(looked.count_matching(&named("next"), rawdoc! {}).await.unwrap(), 1, "{what:?}");
    })
    .await;
}

/// The transaction finds the documents that there were, or is not committed.
#[tokio::test]
async fn a_result_computed_from_a_dropped_collection_is_right() {
    on_each(|Two { name, reader, other }, change, isolation| async move {
        let what = (name, change, isolation);
        let tx = begin(&reader, isolation).await;
        // The transaction has begun, and has a snapshot of its own.
        tx.count_matching(&reports(), rawdoc! {}).await.unwrap();
        change.make(&other).await;
        let Ok(count) = tx.count_matching(&stock(), rawdoc! {}).await else { return };
        let report = rawdoc! { "_id": "stock", "count": i64::try_from(count).unwrap() };
        tx.insert_one(&reports(), report).await.unwrap();
        match tx.commit().await {
            Ok(_) => {
                let report = other.find_one(&reports(), rawdoc! { "_id": "stock" }).await.unwrap().unwrap();
                assert_eq!(report.get_i64("count").unwrap(), 3, "{what:?}");
            }
            Err(error) => assert!(matches!(error, Error::Conflict(_)), "{what:?}: {error:?}"),
        }
    })
    .await;
}

/// A serializable transaction that has read the collection, and writes what it computed from that, is refused.
#[tokio::test]
async fn a_serializable_transaction_conflicts_with_a_change_of_what_it_read() {
    on_each(|Two { name, reader, other }, change, isolation| async move {
        if isolation == Isolation::Snapshot {
            return;
        }
        let tx = begin(&reader, isolation).await;
        check(&in_stock(&tx).await, &(name, change));
        change.make(&other).await;
        tx.insert_one(&reports(), rawdoc! { "_id": "stock" }).await.unwrap();
        let error = tx.commit().await.expect_err(name);
        assert!(matches!(error, Error::Conflict(_)), "{name} {change:?}: {error:?}");
    })
    .await;
}

/// A transaction whose write preceded the change is refused at its commit, and does not bring the collection back.
#[tokio::test]
async fn a_write_into_a_collection_that_has_gone_is_refused() {
    on_each(|Two { name, reader, other }, change, isolation| async move {
        let what = (name, change, isolation);
        if change == Change::RenamedThereAndBack {
            // It is the same collection: the write is right, whether it is refused or not.
            return;
        }
        for early in [true, false] {
            if !early {
                // The second part starts with new collections.
                let _ = other.drop_database("shop").await.unwrap();
                other.insert(Insert::new(stock(), articles())).await.unwrap();
                other.insert_one(&named("next"), rawdoc! { "_id": "next" }).await.unwrap();
            }
            let tx = begin(&reader, isolation).await;
            let write = async || {
                tx.update_one(&stock(), rawdoc! { "_id": 1 }, rawdoc! { "$set": { "n": 100 } }).await?;
                tx.insert_one(&stock(), rawdoc! { "_id": 4, "n": 100 }).await
            };
            if early {
                write().await.unwrap();
            }
            change.make(&other).await;
            let written = if early { Ok(()) } else { write().await };
            let error = match written {
                Ok(()) => tx.commit().await.expect_err(name),
                Err(error) => Error::of_store(error),
            };
            assert!(matches!(error, Error::Conflict(_)), "{what:?}: {error:?}");
            for collection in ["stock", "old"] {
                let left = other.count_matching(&named(collection), rawdoc! { "n": 100 }).await.unwrap();
                assert_eq!(left, 0, "{what:?}");
            }
            let is_back = other.list_collections("shop").await.unwrap().iter().any(|info| info.name == "stock");
            let is_expected = !matches!(change, Change::Dropped | Change::DroppedWithItsDatabase | Change::Renamed);
            assert_eq!(is_back, is_expected, "{what:?}");
        }
    })
    .await;
}
