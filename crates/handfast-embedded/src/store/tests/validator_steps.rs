//! Validators that take more steps than an operation of the committer may: they are asked on other threads, meanwhile others write, and
//! what they say holds as if they were fast.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bson::{RawDocumentBuf, rawdoc};
use handfast_store::{
    AtomicBatch, AtomicStore, BatchWrite, CollectionOptions, DocumentStore, DocumentWrite, FindAndModify, Insert,
    Modification, Namespace, Random, ReturnDocument, Sources, StoreExt, Update, UpdateSpec, UpdateStatement,
    ValidationAction, ValidationLevel,
};
use handfast_txn::Database;

use crate::testing::{find_all, namespace};
use crate::{EmbeddedStore, Options};

/// Returns a store whose operations may take 1000 steps, with a validator that takes `steps` and refuses negative numbers.
async fn store(path: &std::path::Path, steps: i32, options: CollectionOptions) -> EmbeddedStore {
    store_with(Sources::seeded(1), path, steps, options).await
}

async fn store_with(sources: Sources, path: &std::path::Path, steps: i32, options: CollectionOptions) -> EmbeddedStore {
    let few = Options { turn_steps_max: 1000, ..Options::small() };
    let store = EmbeddedStore::open(path, sources, few).await.unwrap();
    let ones = rawdoc! { "$map": { "input": { "$range": [0, steps] }, "in": 1 } };
    let slow = rawdoc! { "$expr": { "$eq": [{ "$sum": ones }, steps] } };
    let validator = rawdoc! { "$and": [slow, { "n": { "$gte": 0 } }] };
    store.create_collection(&namespace(), CollectionOptions { validator, ..options }).await.unwrap();
    store
}

fn document(id: i32, n: i32) -> RawDocumentBuf {
    rawdoc! { "_id": id, "n": n }
}

fn set(id: i32, n: i32) -> UpdateStatement {
    UpdateStatement::one(rawdoc! { "_id": id }, UpdateSpec::Document(rawdoc! { "$set": { "n": n } }))
}

async fn numbers(store: &EmbeddedStore) -> Vec<(i32, i32)> {
    let number = |document: &RawDocumentBuf| (document.get_i32("_id").unwrap(), document.get_i32("n").unwrap());
    let mut numbers: Vec<_> = find_all(store).await.iter().map(number).collect();
    numbers.sort_unstable();
    numbers
}

#[tokio::test(flavor = "multi_thread")]
async fn every_write_has_the_verdict_of_a_slow_validator() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path(), 5_000, CollectionOptions::default()).await;
    let mixed = || vec![document(1, 1), document(2, -1), document(3, 3), document(4, -1), document(5, 5)];
    let ordered = store.insert(Insert::new(namespace(), mixed())).await.unwrap();
    assert_eq!((ordered.inserted, ordered.errors.len(), ordered.errors[0].index), (1, 1, 1));
    assert_eq!(ordered.errors[0].error.code().0, 121);
    let unordered = Insert { ordered: false, ..Insert::new(namespace(), mixed()) };
    let outcome = store.insert(unordered).await.unwrap();
    let errors: Vec<_> = outcome.errors.iter().map(|error| (error.index, error.error.code().0)).collect();
    assert_eq!((outcome.inserted, errors), (2, vec![(0, 11000), (1, 121), (3, 121)]));

    let update = Update { ordered: false, ..Update::new(namespace(), vec![set(1, 10), set(3, -3), set(5, 50)]) };
    let outcome = store.update(update).await.unwrap();
    assert_eq!((outcome.modified, outcome.errors.len(), outcome.errors[0].index), (2, 1, 1));
    let less = UpdateSpec::Document(rawdoc! { "$inc": { "n": -5 } });
    let many = UpdateStatement { multi: true, ..UpdateStatement::one(rawdoc! {}, less) };
    let outcome = store.update(Update::new(namespace(), vec![many])).await.unwrap();
    assert_eq!((outcome.errors.len(), outcome.errors[0].error.code().0), (1, 121), "3 would become -2");
    let upsert = |n: i32| UpdateStatement { upsert: true, ..set(9, n) };
    let outcome = store.update(Update::new(namespace(), vec![upsert(-9)])).await.unwrap();
    assert_eq!(outcome.errors[0].error.code().0, 121);
    let outcome = store.update(Update::new(namespace(), vec![upsert(9)])).await.unwrap();
    assert_eq!((outcome.errors.len(), outcome.upserted.len()), (0, 1));
    // The upsert draws an `_id`, which is the same one when the validator has been asked.
    let unnamed = UpdateSpec::Document(rawdoc! { "$set": { "n": 11 } });
    let unnamed = UpdateStatement { upsert: true, ..UpdateStatement::one(rawdoc! { "k": 1 }, unnamed) };
    let outcome = store.update(Update::new(namespace(), vec![unnamed])).await.unwrap();
    assert_eq!((outcome.errors.len(), outcome.upserted.len()), (0, 1));
    assert_eq!(store.delete_many(&namespace(), rawdoc! { "k": 1 }).await.unwrap(), 1);
    let modify = |n: i32| {
        let modification = Modification::Update {
            update: UpdateSpec::Document(rawdoc! { "$set": { "n": n } }),
            upsert: true,
            returns: ReturnDocument::After,
            array_filters: Vec::new(),
        };
        FindAndModify::new(namespace(), rawdoc! { "_id": 7 }, modification)
    };
    assert_eq!(store.find_and_modify(modify(-7)).await.unwrap_err().code().0, 121);
    assert!(store.find_and_modify(modify(7)).await.unwrap().upserted.is_some());
    assert_eq!(store.find_and_modify(modify(-7)).await.unwrap_err().code().0, 121);
    let found = numbers(&store).await;
    assert_eq!((&found[1], &found[3..]), (&(3, 3), &[(7, 7), (9, 9)][..]), "{found:?}");
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_has_the_verdicts_of_a_slow_validator() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path(), 5_000, CollectionOptions::default()).await;
    let batch = |numbers: [i32; 3]| {
        let write = |(id, n): (i32, i32)| BatchWrite::new(namespace(), id, DocumentWrite::Put(document(id, n)));
        let writes = (1..).zip(numbers).map(write).collect();
        AtomicBatch { writes, ..AtomicBatch::new(store.context.latest().timestamp) }
    };
    assert_eq!(store.commit(batch([1, 2, -3])).await.unwrap_err().code().0, 121);
    assert_eq!(numbers(&store).await, []);
    store.commit(batch([1, 2, 3])).await.unwrap();
    assert_eq!(numbers(&store).await, [(1, 1), (2, 2), (3, 3)]);
    let database = Database::local(store.clone(), Sources::seeded(2));
    let tx = database.begin().await.unwrap();
    assert_eq!(tx.insert_one(&namespace(), document(4, -4)).await.unwrap_err().code().0, 121, "at the statement");
    let tx = database.begin().await.unwrap();
    tx.insert_one(&namespace(), document(4, 4)).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(numbers(&store).await.len(), 4);
}

/// Counts the random numbers that are asked for: each check of a document asks for one.
#[derive(Debug)]
struct CountedRandom(Arc<AtomicUsize>);

impl Random for CountedRandom {
    fn next_u64(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) as u64
    }
}

/// If the batch were repeated for each of its documents, there would be more than a thousand checks.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_is_repeated_once_for_all_its_documents() {
    let directory = tempfile::tempdir().unwrap();
    let checks = Arc::new(AtomicUsize::new(0));
    let random = Arc::new(CountedRandom(checks.clone()));
    let sources = Sources { random, ..Sources::seeded(1) };
    let store = store_with(sources, directory.path(), 5_000, CollectionOptions::default()).await;
    let write = |id| BatchWrite::new(namespace(), id, DocumentWrite::Put(document(id, id)));
    let writes = (1..=50).map(write).collect();
    let batch = AtomicBatch { writes, ..AtomicBatch::new(store.context.latest().timestamp) };
    let before = checks.load(Ordering::Relaxed);
    store.commit(batch).await.unwrap();
    let checks = checks.load(Ordering::Relaxed) - before;
    assert!((100..200).contains(&checks), "{checks} checks of 50 documents");
    assert_eq!(numbers(&store).await.len(), 50);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_may_create_the_collection_with_a_slow_validator() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path(), 5_000, CollectionOptions::default()).await;
    let options = store.list_collections("db").await.unwrap().remove(0).options;
    let made = Namespace::new("db", "made").unwrap();
    let database = Database::local(store.clone(), Sources::seeded(2));
    let tx = database.begin().await.unwrap();
    tx.create_collection(&made, options).await.unwrap();
    tx.insert_one(&made, document(1, 1)).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(store.count_matching(&made, rawdoc! {}).await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_refusal_has_its_details_however_many_documents_share_the_steps() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path(), 200, CollectionOptions::default()).await;
    let documents = (0..50).map(|id| document(id, -1)).collect();
    let outcome = store.insert(Insert { ordered: false, ..Insert::new(namespace(), documents) }).await.unwrap();
    assert_eq!(outcome.errors.len(), 50);
    for refused in outcome.errors {
        let details = refused.error.details().and_then(|details| details.get_document("errInfo").ok());
        assert!(details.is_some_and(|info| info.get_document("details").is_ok()), "{}: {details:?}", refused.index);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_validator_that_warns_or_spares_invalid_documents_refuses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let warn = CollectionOptions { validation_action: ValidationAction::Warn, ..CollectionOptions::default() };
    let warned = store(&directory.path().join("warn"), 5_000, warn).await;
    warned.insert_one(&namespace(), document(1, -1)).await.unwrap();
    let moderate = CollectionOptions { validation_level: ValidationLevel::Moderate, ..CollectionOptions::default() };
    let spared = store(&directory.path().join("moderate"), 5_000, moderate).await;
    let bypass =
        Insert { validation: handfast_store::Validation::Bypass, ..Insert::new(namespace(), vec![document(1, -1)]) };
    assert_eq!(spared.insert(bypass).await.unwrap().inserted, 1);
    let outcome = spared.update(Update::new(namespace(), vec![set(1, -2)])).await.unwrap();
    assert_eq!((outcome.modified, numbers(&spared).await), (1, vec![(1, -2)]), "it was invalid before");
}

/// A validator that computes for years.
#[tokio::test(flavor = "multi_thread")]
async fn others_write_while_a_validator_computes_and_the_end_of_its_request_ends_it() {
    let directory = tempfile::tempdir().unwrap();
    let few = Options { turn_steps_max: 1000, ..Options::small() };
    let store = EmbeddedStore::open(directory.path(), Sources::seeded(1), few).await.unwrap();
    let loops = |count: i32, inner: RawDocumentBuf| {
        rawdoc! { "$size": { "$map": { "input": { "$range": [0, count] }, "in": inner } } }
    };
    let years = loops(20_000, loops(20_000, loops(20_000, rawdoc! { "$literal": 1 })));
    let validator = rawdoc! { "$expr": { "$gt": [years, 0] } };
    let options = CollectionOptions { validator, ..CollectionOptions::default() };
    store.create_collection(&namespace(), options).await.unwrap();
    let slow = store.clone();
    let mut slow = tokio::spawn(async move { slow.insert_one(&namespace(), document(1, 1)).await });
    let other = Namespace::new("db", "other").unwrap();
    for id in 0..20 {
        let insert = store.insert_one(&other, document(id, id));
        tokio::time::timeout(Duration::from_secs(60), insert).await.expect("it waits for the validator").unwrap();
        assert!(tokio::time::timeout(Duration::from_millis(1), &mut slow).await.is_err(), "it still computes");
    }
    slow.abort();
    assert!(slow.await.unwrap_err().is_cancelled());
    // The thread ends, or the runtime of this test would wait for it for ever.
    assert_eq!(find_all(&store).await.len(), 0);
    store.close().await.unwrap();
}
