//! A serializable transaction validates all that it has read, not only documents and simple filters.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bson::{DateTime, RawDocumentBuf, rawdoc};
use handfast_embedded::{EmbeddedStore, Options};
use handfast_mql::Code;
use handfast_store::{
    CollectionOptions, DocumentStore, Find, IndexSpec, ManualClock, MemoryStore, Namespace, Sources, StoreExt,
};
use handfast_txn::{Database, Error, Transaction, TransactionOptions};

fn named(collection: &str) -> Namespace {
    Namespace::new("d", collection).unwrap()
}

/// Runs a test on each store. The stores log images of changes from the first serializable search on, and have had one.
async fn on_each<F: Future<Output = ()>>(test: impl Fn(Database, Arc<ManualClock>) -> F) {
    let (sources, clock) = Sources::manual(1);
    test(prepared(Database::local(MemoryStore::new(sources.clone()), sources)).await, clock).await;
    let directory = tempfile::tempdir().unwrap();
    let (sources, clock) = Sources::manual(1);
    // Filters that the committer evaluates get fifty times as many steps.
    let options = Options { turn_steps_max: 2, ..Options::default() };
    let store = EmbeddedStore::open(directory.path(), sources.clone(), options).await.unwrap();
    test(prepared(Database::local(store, sources)).await, clock).await;
}

async fn prepared(database: Database) -> Database {
    database.insert_one(&named("c"), rawdoc! { "_id": 0 }).await.unwrap();
    let tx = serializable(&database).await;
    tx.find_all(Find::new(named("c"), rawdoc! { "a": 1 })).await.unwrap();
    tx.insert_one(&named("other"), rawdoc! {}).await.unwrap();
    tx.commit().await.unwrap();
    database
}

async fn serializable(database: &Database) -> Transaction {
    database.begin_with(TransactionOptions::serializable()).await.unwrap()
}

/// Returns whether a transaction that read a valid lease conflicts with one that takes it away: only one of the two may
/// commit.
async fn is_refused(database: &Database, filter: RawDocumentBuf, meanwhile: impl FnOnce()) -> bool {
    let lease = rawdoc! { "_id": "lease", "until": DateTime::from_millis(ManualClock::START.timestamp_millis() + 50) };
    database.insert_one(&named("c"), lease).await.unwrap();
    let tx = serializable(database).await;
    tx.find_all(Find::new(named("c"), filter)).await.unwrap();
    tx.insert_one(&named("other"), rawdoc! {}).await.unwrap();
    database.delete_one(&named("c"), rawdoc! { "_id": "lease" }).await.unwrap();
    meanwhile();
    matches!(tx.commit().await, Err(Error::Conflict(_)))
}

#[tokio::test]
async fn a_filter_with_the_time_in_it_is_judged_as_it_was_read() {
    on_each(|database, clock| async move {
        let valid = rawdoc! { "$expr": { "$gt": ["$until", "$$NOW"] } };
        assert!(is_refused(&database, valid, || clock.advance(Duration::from_millis(100))).await);
    })
    .await;
}

#[tokio::test]
async fn a_filter_with_chance_in_it_is_judged_as_it_was_read() {
    on_each(|database, _| async move {
        for _ in 0..20 {
            let half = rawdoc! { "$expr": { "$lt": [{ "$rand": {} }, 0.5] } };
            assert!(is_refused(&database, half, || ()).await);
        }
    })
    .await;
}

/// It is undecided whether the document would have matched.
#[tokio::test]
async fn a_filter_that_fails_for_what_others_have_written_is_a_conflict() {
    on_each(|database, _| async move {
        for filter in [rawdoc! { "$gte": [{ "$strLenCP": "$text" }, 0] }, rawdoc! { "$in": [1, "$tags"] }] {
            let tx = serializable(&database).await;
            tx.find_all(Find::new(named("empty"), rawdoc! { "$expr": filter })).await.unwrap();
            tx.insert_one(&named("other"), rawdoc! {}).await.unwrap();
            database.insert_one(&named("empty"), rawdoc! { "_id": 1 }).await.unwrap();
            let committed = tx.commit().await;
            assert!(matches!(committed, Err(Error::Conflict(_))), "{committed:?}");
            database.drop_collection(&named("empty")).await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn a_filter_that_takes_too_long_in_the_turn_of_the_commit_counts_as_changed() {
    let directory = tempfile::tempdir().unwrap();
    // Filters that the committer evaluates get fifty times as many steps.
    let options = Options { turn_steps_max: 2, ..Options::default() };
    let store = EmbeddedStore::open(directory.path(), Sources::seeded(1), options).await.unwrap();
    let database = prepared(Database::local(store, Sources::seeded(1))).await;
    // The filter matches nothing, at the price of 70 steps and some for each document.
    let count = rawdoc! { "$size": { "$filter": { "input": { "$range": [0, 70] }, "cond": false } } };
    for (changes, expected) in [(1, false), (2, true)] {
        let tx = serializable(&database).await;
        tx.find_all(Find::new(named("c"), rawdoc! { "$expr": { "$gt": [count.clone(), 0] } })).await.unwrap();
        tx.insert_one(&named("other"), rawdoc! {}).await.unwrap();
        for _ in 0..changes {
            database.insert_one(&named("c"), rawdoc! {}).await.unwrap();
        }
        let refused = matches!(tx.commit().await, Err(Error::Conflict(_)));
        assert_eq!(refused, expected, "{changes}");
    }
}

#[tokio::test]
async fn a_transaction_that_a_unique_index_refuses_has_read_the_holder() {
    on_each(|database, _| async move {
        let unique = IndexSpec { unique: true, ..IndexSpec::new(rawdoc! { "email": 1 }) };
        database.create_index(&named("c"), unique).await.unwrap();
        database.insert_one(&named("c"), rawdoc! { "_id": "holder", "email": "a" }).await.unwrap();
        let tx = serializable(&database).await;
        let refused = tx.insert_one(&named("c"), rawdoc! { "_id": "mine", "email": "a" }).await.unwrap_err();
        assert_eq!(refused.code(), Code::DuplicateKey);
        tx.insert_one(&named("other"), rawdoc! { "_id": "taken" }).await.unwrap();
        database.delete_one(&named("c"), rawdoc! { "_id": "holder" }).await.unwrap();
        assert!(matches!(tx.commit().await, Err(Error::Conflict(_))));
    })
    .await;
}

/// A collection or an index that the snapshot shows cannot be created again, at any isolation.
#[tokio::test]
async fn a_collection_that_the_snapshot_still_has_cannot_be_made() {
    on_each(|database, _| async move {
        for indexes in [false, true] {
            database.insert_one(&named("gone"), rawdoc! { "_id": 1, "a": 1 }).await.unwrap();
            let tx = database.begin().await.unwrap();
            assert_eq!(tx.count_matching(&named("gone"), rawdoc! {}).await.unwrap(), 1);
            assert!(database.drop_collection(&named("gone")).await.unwrap());
            let made = match indexes {
                false => tx.create_collection(&named("gone"), CollectionOptions::default()).await,
                true => tx.create_index(&named("gone"), IndexSpec::new(rawdoc! { "a": 1 })).await,
            };
            assert_eq!(made.unwrap_err().code(), Code::WriteConflict);
            assert!(matches!(tx.commit().await, Err(Error::Conflict(_))));
            // A new transaction can create it.
            let tx = database.begin().await.unwrap();
            tx.create_collection(&named("gone"), CollectionOptions::default()).await.unwrap();
            tx.commit().await.unwrap();
            assert!(database.drop_collection(&named("gone")).await.unwrap());
        }
    })
    .await;
}
