//! Expressions that take very long, inside of a transaction: they delay no other request, and end when no caller
//! waits any more.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use bson::{RawBson, RawDocumentBuf, rawdoc};
use handfast_embedded::{EmbeddedStore, Options};
use handfast_store::{
    BatchLimit, Clock, DocumentStore, Find, FindAndModify, Modification, Namespace, ReturnDocument, Sources, StoreExt,
    SystemClock, Update, UpdateSpec, UpdateStatement,
};
use handfast_txn::{Database, Transaction};

fn items() -> Namespace {
    Namespace::new("d", "items").unwrap()
}

/// A time that is long enough to notice, and so short that a build without the bound ends.
const ENDLESS_AT_LEAST: Duration = Duration::from_secs(5);

fn endless() -> RawDocumentBuf {
    let range = || rawdoc! { "$range": [0, 10_000] };
    let inner = rawdoc! { "$reduce": { "input": range(), "initialValue": 0, "in": { "$add": ["$$value", 1] } } };
    rawdoc! { "$reduce": { "input": range(), "initialValue": 0, "in": inner } }
}

fn endless_change() -> UpdateSpec {
    UpdateSpec::Pipeline(vec![rawdoc! { "$set": { "x": endless() } }])
}

/// Makes a request that takes very long, in a transaction that has written to the collection.
async fn run(tx: Transaction, what: &str) {
    let endless_match = rawdoc! { "$expr": { "$gt": [endless(), 0] } };
    let missing = rawdoc! { "_id": "missing" };
    let one = rawdoc! { "_id": 1 };
    let claim = |filter: RawDocumentBuf, update: UpdateSpec, upsert: bool| {
        let returns = ReturnDocument::After;
        FindAndModify::new(items(), filter, Modification::Update { update, upsert, returns, array_filters: Vec::new() })
    };
    let same = || UpdateSpec::Document(rawdoc! { "$set": { "y": 1 } });
    match what {
        "update" => {
            tx.update(Update::new(items(), vec![UpdateStatement::one(one, endless_change())])).await.unwrap();
        }
        "upsert" => {
            let statement = UpdateStatement { upsert: true, ..UpdateStatement::one(missing, endless_change()) };
            tx.update(Update::new(items(), vec![statement])).await.unwrap();
        }
        "findAndModify" => {
            tx.find_and_modify(claim(one, endless_change(), false)).await.unwrap();
        }
        "findAndModify that inserts" => {
            tx.find_and_modify(claim(missing, endless_change(), true)).await.unwrap();
        }
        "findAndModify that shows" => {
            let shown = FindAndModify { projection: rawdoc! { "x": endless() }, ..claim(one, same(), false) };
            tx.find_and_modify(shown).await.unwrap();
        }
        "find" => {
            tx.find(Find::new(items(), endless_match)).await.unwrap().next_page(BatchLimit::REPLY).await.unwrap();
        }
        "find that shows" => {
            let shown = Find { projection: rawdoc! { "x": endless() }, ..Find::new(items(), one) };
            tx.find(shown).await.unwrap().next_page(BatchLimit::REPLY).await.unwrap();
        }
        other => unreachable!("{other}"),
    }
}

#[tokio::test]
async fn an_endless_request_delays_no_other_and_ends_when_it_is_cancelled() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), Sources::seeded(1), Options::default()).await.unwrap();
    let database = Database::local(store, Sources::seeded(2));
    let requests = [
        "update",
        "upsert",
        "findAndModify",
        "findAndModify that inserts",
        "findAndModify that shows",
        "find",
        "find that shows",
    ];
    for what in requests {
        let tx = database.begin().await.unwrap();
        tx.insert_one(&items(), rawdoc! { "_id": 1 }).await.unwrap();
        let began = SystemClock::new();
        let given_up = tokio::time::timeout(Duration::from_millis(50), run(tx.clone(), what)).await;
        assert!(given_up.is_err() && began.elapsed() < ENDLESS_AT_LEAST, "{what}: {:?}", began.elapsed());
        // The only thread of the runtime is free.
        tx.abort();
    }
    assert_eq!(database.counts().open(), 0);
}

/// A find by `_id` reads that document alone, whatever else the transaction has written.
#[tokio::test]
async fn many_writes_by_id_do_not_look_at_each_other() {
    let database = Database::local(handfast_store::MemoryStore::new(Sources::seeded(1)), Sources::seeded(2));
    let tx = database.begin().await.unwrap();
    let count = 20_000;
    let documents = (0..count).map(|id| rawdoc! { "_id": id, "n": 0 });
    tx.insert(handfast_store::Insert::new(items(), documents.collect())).await.unwrap();
    let began = SystemClock::new();
    for id in 0..count {
        let changed = tx.update_one(&items(), rawdoc! { "_id": id }, rawdoc! { "$inc": { "n": 1 } }).await.unwrap();
        assert_eq!(changed.modified, 1);
    }
    // Each find takes some ten microseconds; one that read all others would take a thousand times as long.
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    let ids = RawBson::Array(bson::RawArrayBuf::from_iter([7, 3, 7, count + 1]));
    let found = tx.find_all(Find::new(items(), rawdoc! { "_id": { "$in": ids } })).await.unwrap();
    assert_eq!(found, [rawdoc! { "_id": 3, "n": 1 }, rawdoc! { "_id": 7, "n": 1 }]);
}
