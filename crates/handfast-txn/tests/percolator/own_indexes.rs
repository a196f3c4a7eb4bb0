//! The engine's own indexes: they are created, the cleaner and readers find old locks and versions by them, and users do not see
//! them.

use std::sync::Arc;
use std::time::Duration;

use bson::{RawDocumentBuf, rawdoc};
use handfast_embedded::{EmbeddedStore, Options};
use handfast_mql::Code;
use handfast_store::decorator::{Faulty, Plan};
use handfast_store::{
    Aggregate, BatchLimit, CreateIndexes, DocumentStore, DropIndexes, Explain, Explained, Find, Hint, IndexCounts,
    IndexSelector, IndexSpec, Insert, Sources, StoreExt, Verbosity,
};
use handfast_txn::{Database, Percolator};

use crate::loose::Loose;
use crate::support::*;

const OWN: [&str; 3] = ["_hf.c_1", "_hf.d_1", "_hf.lock.s_1"];

/// Returns the names of a collection's indexes besides that on `_id`, sorted.
async fn names(store: &dyn DocumentStore) -> Vec<String> {
    let mut names: Vec<_> = store.list_indexes(&accounts()).await.unwrap().into_iter().map(|of| of.spec.name).collect();
    names.retain(|name| name != "_id_");
    names.sort();
    names
}

async fn create(database: &Database, spec: IndexSpec) -> handfast_store::Result<IndexCounts> {
    database.create_indexes(CreateIndexes { namespace: accounts(), indexes: vec![spec] }).await
}

/// The first process that writes to a collection creates them; users see and drop only their own indexes.
#[tokio::test]
async fn own_indexes_are_made_by_the_first_write_and_not_listed() {
    let bank = Bank::of_the_seed().await;
    let database = bank.process();
    assert!(names(&*bank.store).await.is_empty());
    pay_once(&database).await.unwrap();
    database.flush().await.unwrap();
    assert_eq!(names(&*bank.store).await, OWN);
    assert!(names(&database).await.is_empty());

    let counts = create(&database, IndexSpec::new(rawdoc! { "balance": 1 })).await.unwrap();
    assert_eq!((counts, names(&database).await), (IndexCounts { before: 1, after: 2 }, vec!["balance_1".to_owned()]));
    let all = DropIndexes { namespace: accounts(), selector: IndexSelector::All };
    assert_eq!(database.drop_indexes(all).await.unwrap(), 2);
    assert_eq!((names(&database).await.len(), names(&*bank.store).await), (0, OWN.map(str::to_owned).to_vec()));
}

#[tokio::test]
async fn users_neither_name_nor_make_them() {
    let bank = Bank::of_the_seed().await;
    let database = bank.process();
    pay_once(&database).await.unwrap();
    database.flush().await.unwrap();
    let hinted = Find { hint: Some(Hint::Name(OWN[0].to_owned())), ..Find::new(accounts(), rawdoc! {}) };
    assert_eq!(database.find_all(hinted).await.unwrap_err().code(), Code::BadValue);
    let named = DropIndexes { namespace: accounts(), selector: IndexSelector::Names(vec![OWN[0].to_owned()]) };
    assert_eq!(database.drop_indexes(named).await.unwrap_err().code(), Code::IndexNotFound);
    for key in [rawdoc! { "_hf": 1 }, rawdoc! { "balance": 1, "_hf.c": 1 }] {
        let error = create(&database, IndexSpec::new(key)).await.unwrap_err();
        assert_eq!(error.code(), Code::CannotCreateIndex, "{error}");
    }
    create(&database, IndexSpec::new(rawdoc! { "_hfx": 1 })).await.unwrap();
}

/// A collection that is created by its first document, or again without the process's knowledge, gets them from the cleaner.
#[tokio::test]
async fn the_cleaner_makes_those_that_are_missing() {
    let bank = Bank::of_the_seed().await;
    let database = bank.process();
    pay_once(&database).await.unwrap();
    database.flush().await.unwrap();
    bank.store.drop_collection(&accounts()).await.unwrap();
    database.insert_one(&accounts(), rawdoc! { "_id": "Ann" }).await.unwrap();
    database.flush().await.unwrap();
    assert!(names(&*bank.store).await.is_empty());
    let cleaner = Percolator::new(bank.store.clone(), bank.sources.clone(), options()).unwrap();
    bank.let_pass(Duration::from_secs(1_300)).await;
    cleaner.clean().await.unwrap();
    assert_eq!(names(&*bank.store).await, OWN);
}

/// An index that the store cannot create as a sparse one is created as a plain one, or not at all; everything else works as before.
#[tokio::test]
async fn a_store_that_makes_none_is_used_without() {
    let refusals: [fn(&IndexSpec) -> bool; 2] = [|spec| spec.sparse, |_| true];
    for (refused, made) in refusals.into_iter().zip([3, 0]) {
        let bank = Bank::of_the_seed().await;
        let store = Arc::new(Loose::refusing(bank.store.clone(), refused));
        let database = bank.process_over(store.clone());
        pay_once(&database).await.unwrap();
        database.flush().await.unwrap();
        bank.let_pass(Duration::from_secs(1_300)).await;
        let cleaner = Percolator::new(store, bank.sources.clone(), options()).unwrap();
        assert_eq!(cleaner.clean().await.unwrap().collected, 2);
        assert_eq!(bank.balances().await, (3, 9));
        let indexes = bank.store.list_indexes(&accounts()).await.unwrap();
        assert!(indexes.iter().all(|index| !index.spec.sparse));
        assert_eq!(indexes.len(), 1 + made);
    }
}

/// A pass of the cleaner over documents without locks and old versions reads none of them, and sends as many requests as for one
/// document.
#[tokio::test]
async fn a_pass_of_the_cleaner_does_not_grow_with_the_documents() {
    let (few, examined) = cost_of_a_pass(1).await;
    assert_eq!(examined, 0);
    assert_eq!(cost_of_a_pass(2_500).await, (few, 0));
}

/// Returns the operations of a pass, and the documents and keys that its finds examine, after this many documents were changed once
/// and one pass was made.
async fn cost_of_a_pass(documents: i32) -> (u64, i64) {
    let directory = tempfile::tempdir().unwrap();
    let (sources, clock) = Sources::manual(1);
    let store = EmbeddedStore::open(directory.path(), sources.clone(), Options::default()).await.unwrap();
    let store: Arc<dyn DocumentStore> = Arc::new(store);
    let database = Database::percolator(store.clone(), sources.clone(), options()).unwrap();
    let account = |id| rawdoc! { "_id": id, "balance": 0 };
    for change in 0..2 {
        let rows: Vec<RawDocumentBuf> = (0..documents).map(|id| account(id + change * documents)).collect();
        database.insert(Insert::new(accounts(), rows)).await.unwrap();
        database.flush().await.unwrap();
    }
    database.forget_outcomes(Duration::MAX).await.unwrap();
    clock.advance(Duration::from_secs(1_300));
    database.forget_outcomes(Duration::MAX).await.unwrap();
    let loose = Arc::new(Loose::new(store.clone(), || async {}));
    let counting = Arc::new(Faulty::new(loose.clone(), Plan::none()));
    let cleaner = Percolator::new(counting.clone(), sources, options()).unwrap();
    let cleaned = cleaner.clean().await.unwrap();
    assert_eq!(cleaned.collected, 2 * documents as u64);

    loose.take_finds();
    let before = counting.operations();
    cleaner.clean().await.unwrap();
    let operations = counting.operations() - before;
    (operations, examined(&*store, loose.take_finds()).await)
}

/// A query in a snapshot examines only the documents that its index selects, however many documents there are: it finds rows that
/// are locked or have changed since by the engine's own indexes.
#[tokio::test]
async fn a_query_in_a_snapshot_does_not_look_at_what_it_does_not_find() {
    for documents in [100, 2_500] {
        let directory = tempfile::tempdir().unwrap();
        let sources = Sources::seeded(1);
        let store = EmbeddedStore::open(directory.path(), sources.clone(), Options::default()).await.unwrap();
        let store: Arc<dyn DocumentStore> = Arc::new(store);
        let loose = Arc::new(Loose::new(store.clone(), || async {}));
        let database = Database::percolator(loose.clone(), sources, options()).unwrap();
        create(&database, IndexSpec::new(rawdoc! { "branch": 1, "balance": -1 })).await.unwrap();
        let account = |id: i32| rawdoc! { "_id": id, "branch": if id < 10 { 7 } else { id }, "balance": id };
        database.insert(Insert::new(accounts(), (0..documents).map(account).collect())).await.unwrap();
        database.flush().await.unwrap();

        let tx = database.begin().await.unwrap();
        let raise = rawdoc! { "$inc": { "balance": 1 } };
        database.update_one(&accounts(), rawdoc! { "_id": 3 }, raise).await.unwrap();
        database.flush().await.unwrap();
        let filter = || rawdoc! { "branch": 7 };
        let computed = rawdoc! { "$expr": { "$eq": ["$branch", "$$branch"] } };
        for (find, expected) in [
            (Find::new(accounts(), filter()), 10),
            (Find { variables: rawdoc! { "branch": 7 }, ..Find::new(accounts(), computed) }, 10),
            (Find { sort: rawdoc! { "balance": -1 }, limit: Some(3), ..Find::new(accounts(), filter()) }, 3),
        ] {
            loose.take_finds();
            assert_eq!(tx.find_all(find).await.unwrap().len(), expected);
            let examined = examined(&*store, loose.take_finds()).await;
            // Ten documents of the branch and one that changed, each with its key, are examined twice, as this store repeats the
            // find for each page.
            assert!(examined > 0 && examined <= 2 * (10 + 1) * 2, "of {documents} documents {examined} were looked at");
        }

        // Ten documents look up ten each, by the index.
        let lookup = rawdoc! { "$lookup": {
            "from": accounts().collection(),
            "let": { "own": "$branch" },
            "pipeline": [{ "$match": { "$expr": { "$eq": ["$branch", "$$own"] } } }],
            "as": "same",
        } };
        loose.take_finds();
        let aggregate = Aggregate::new(accounts(), vec![rawdoc! { "$match": filter() }, lookup]);
        let mut cursor = tx.aggregate(aggregate).await.unwrap();
        let found = cursor.next_page(BatchLimit::REPLY).await.unwrap().documents;
        assert_eq!(found.iter().map(|found| found.get_array("same").unwrap().into_iter().count()).sum::<usize>(), 100);
        let examined = examined(&*store, loose.take_finds()).await;
        assert!(
            examined > 0 && examined <= 11 * 2 * (10 + 1) * 2,
            "of {documents} documents {examined} were looked at"
        );
    }
}

/// Returns the number of documents and keys that finds in the accounts examine. The engine's own documents are few.
async fn examined(store: &dyn DocumentStore, finds: Vec<Find>) -> i64 {
    let mut examined = 0;
    for find in finds.into_iter().filter(|find| find.namespace == accounts()) {
        let explain = Explain { explained: Explained::Find(find), verbosity: Verbosity::ExecutionStats };
        let explained = store.explain(explain).await.unwrap();
        let stats = explained.get_document("executionStats").unwrap();
        for name in ["totalDocsExamined", "totalKeysExamined"] {
            let number = stats.get(name).unwrap().unwrap();
            examined += number.as_i64().or(number.as_i32().map(i64::from)).unwrap();
        }
    }
    examined
}
