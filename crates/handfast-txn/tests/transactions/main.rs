//! The promises of a transaction, one anomaly in each test, on both engines: on both stores that commit batches, and on one that is used
//! as atomic one document at a time.
#![allow(clippy::unwrap_used)]

mod catalog;
mod index_use;
mod indexes;
mod kept_reads;
mod lost_answers;
mod outcomes;
mod retries;
mod serializable;
mod turns;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bson::{RawDocumentBuf, rawdoc};
use handfast_embedded::{EmbeddedStore, Options};
use handfast_mql::Code;
use handfast_store::{
    Aggregate, AtomicStore, BatchLimit, DocumentStore, Find, IndexSpec, ManualClock, MemoryStore, Namespace, Sources,
    StoreExt,
};
use handfast_txn::{Database, Error, Outcome, PercolatorOptions, Transaction, TransactionOptions};

fn accounts() -> Namespace {
    Namespace::new("bank", "accounts").unwrap()
}

/// Runs a test on each engine and store, with balances of 10 for Bob and 2 for Joe.
async fn on_each<F: Future<Output = ()>>(test: impl Fn(Database) -> F) {
    on_each_local(&test).await;
    let store = Arc::new(MemoryStore::new(Sources::seeded(1)));
    let options = PercolatorOptions { cleaning_interval: None, ..PercolatorOptions::default() };
    let database = Database::percolator(store, Sources::seeded(2), options).unwrap();
    test(with_accounts(database).await).await;
}

/// Runs a test of what holds over [`Local`](handfast_txn::Local) only: a plain write does not wait for a transaction, a commit that writes
/// nothing has the timestamp of its snapshot, each commit is recorded.
async fn on_each_local<F: Future<Output = ()>>(test: impl Fn(Database) -> F) {
    test(opened(MemoryStore::new(Sources::seeded(1))).await).await;
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), Sources::seeded(1), Options::default()).await.unwrap();
    test(opened(store).await).await;
}

async fn opened(store: impl AtomicStore) -> Database {
    with_accounts(Database::local(store, Sources::seeded(2))).await
}

async fn with_accounts(database: Database) -> Database {
    for (name, balance) in [("Bob", 10), ("Joe", 2)] {
        database.insert_one(&accounts(), rawdoc! { "_id": name, "balance": balance }).await.unwrap();
    }
    database
}

async fn pay(store: &dyn DocumentStore, name: &str, amount: i32) -> handfast_store::Result<()> {
    store.update_one(&accounts(), rawdoc! { "_id": name }, rawdoc! { "$inc": { "balance": amount } }).await.map(|_| ())
}

async fn balance(store: &dyn DocumentStore, name: &str) -> Option<i32> {
    let found = store.find_one(&accounts(), rawdoc! { "_id": name }).await.unwrap();
    found.map(|account| account.get_i32("balance").unwrap())
}

async fn all(store: &dyn DocumentStore, find: Find) -> Vec<RawDocumentBuf> {
    store.find_all(find).await.unwrap()
}

#[tokio::test]
async fn bob_pays_joe_7() {
    on_each(|database| async move {
        let tx = database.begin().await.unwrap();
        pay(&tx, "Bob", -7).await.unwrap();
        assert_eq!((balance(&tx, "Bob").await, balance(&database, "Bob").await), (Some(3), Some(10)));
        pay(&tx, "Joe", 7).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!((balance(&database, "Bob").await, balance(&database, "Joe").await), (Some(3), Some(9)));
        assert_eq!(database.counts().open(), 0);
    })
    .await;
}

#[tokio::test]
async fn a_rolled_back_transaction_leaves_no_trace() {
    on_each(|database| async move {
        let tx = database.begin().await.unwrap();
        pay(&tx, "Bob", -7).await.unwrap();
        tx.insert_one(&accounts(), rawdoc! { "_id": "Eve" }).await.unwrap();
        tx.abort();
        let dropped = database.begin().await.unwrap();
        pay(&dropped, "Bob", -7).await.unwrap();
        drop(dropped);
        assert_eq!((balance(&database, "Bob").await, balance(&database, "Eve").await), (Some(10), None));
        assert_eq!((database.counts().open(), database.counts().dropped), (0, 1));
        // No claim is left.
        let next = database.begin().await.unwrap();
        pay(&next, "Bob", -1).await.unwrap();
        next.commit().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn all_reads_are_of_one_snapshot() {
    on_each(|database| async move {
        let tx = database.begin().await.unwrap();
        assert_eq!(balance(&tx, "Bob").await, Some(10));
        pay(&database, "Bob", -5).await.unwrap();
        pay(&database, "Joe", 5).await.unwrap();
        database.insert_one(&accounts(), rawdoc! { "_id": "Eve", "balance": 1 }).await.unwrap();
        assert_eq!((balance(&tx, "Bob").await, balance(&tx, "Joe").await), (Some(10), Some(2)));
        assert_eq!(tx.count_matching(&accounts(), rawdoc! {}).await.unwrap(), 2);
        tx.commit().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn the_second_writer_fails_at_once() {
    on_each(|database| async move {
        let first = database.begin().await.unwrap();
        let second = database.begin().await.unwrap();
        pay(&first, "Bob", -1).await.unwrap();
        let error = pay(&second, "Bob", -2).await.unwrap_err();
        assert_eq!(error.code(), Code::WriteConflict);
        assert!(matches!(second.commit().await, Err(Error::Conflict(_))));
        first.commit().await.unwrap();
        assert_eq!(balance(&database, "Bob").await, Some(9));
    })
    .await;
}

#[tokio::test]
async fn the_first_committer_wins() {
    on_each_local(|database| async move {
        let tx = database.begin().await.unwrap();
        pay(&tx, "Bob", -1).await.unwrap();
        // A write outside of transactions takes no claim, and comes first.
        pay(&database, "Bob", -2).await.unwrap();
        let error = tx.commit().await.unwrap_err();
        assert!(matches!(&error, Error::Conflict(_)) && error.code() == Code::WriteConflict, "{error:?}");
        assert_eq!(balance(&database, "Bob").await, Some(8));
        let late = database.begin().await.unwrap();
        assert_eq!(balance(&late, "Bob").await, Some(8));
        pay(&database, "Bob", -2).await.unwrap();
        assert_eq!(pay(&late, "Bob", -1).await.unwrap_err().code(), Code::WriteConflict);
    })
    .await;
}

/// An insert and a deletion of a document in one transaction are a write: another writer of the same document gets a conflict.
#[tokio::test]
async fn a_document_that_is_inserted_and_deleted_again_is_written() {
    on_each(|database| async move {
        let mark = || rawdoc! { "_id": "mark", "balance": 0 };
        let late = database.begin().await.unwrap();
        assert_eq!(balance(&late, "mark").await, None);
        let first = database.begin().await.unwrap();
        first.insert_one(&accounts(), mark()).await.unwrap();
        assert!(first.delete_one(&accounts(), rawdoc! { "_id": "mark" }).await.unwrap());
        pay(&first, "Bob", -1).await.unwrap();
        first.commit().await.unwrap();
        let refused = match late.insert_one(&accounts(), mark()).await {
            Ok(()) => late.commit().await.map(drop),
            Err(error) => Err(error.into()),
        };
        assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
        // A later transaction gets no conflict.
        database.begin().await.unwrap().insert_one(&accounts(), mark()).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn the_closure_runs_again_after_a_conflict() {
    on_each(|database| async move {
        let tries = Arc::new(std::sync::atomic::AtomicU32::new(0));
        let (outside, counted) = (database.clone(), tries.clone());
        let result = database.transaction(move |tx| {
            let (outside, counted) = (outside.clone(), counted.clone());
            async move {
                let seen = balance(&tx, "Bob").await.unwrap();
                if counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0 {
                    pay(&outside, "Bob", 100).await?;
                }
                tx.update_one(&accounts(), rawdoc! { "_id": "Bob" }, rawdoc! { "$set": { "balance": seen + 1 } })
                    .await?;
                Ok::<_, Error>(seen)
            }
        });
        assert_eq!(result.await.unwrap(), 110);
        assert_eq!((balance(&database, "Bob").await, database.counts().retries), (Some(111), 1));
    })
    .await;
}

#[tokio::test]
async fn an_error_of_the_closure_rolls_back_and_comes_through() {
    on_each(|database| async move {
        #[derive(Debug)]
        enum Mine {
            Poor,
            Other,
        }
        impl From<Error> for Mine {
            fn from(_: Error) -> Self {
                Mine::Other
            }
        }
        let result = database.transaction(|tx| async move {
            pay(&tx, "Bob", -7).await.map_err(Error::from)?;
            Err::<(), Mine>(Mine::Poor)
        });
        assert!(matches!(result.await, Err(Mine::Poor)));
        assert_eq!((balance(&database, "Bob").await, database.counts().retries), (Some(10), 0));
    })
    .await;
}

/// Runs two transactions of two doctors, one of whom must be on call: each reads that the other one is on call, and leaves.
async fn two_doctors_leave(database: &Database, options: TransactionOptions) -> [bool; 2] {
    let doctors = Namespace::new("clinic", "doctors").unwrap();
    for name in ["a", "b"] {
        database.insert_one(&doctors, rawdoc! { "_id": name, "on_call": true }).await.unwrap();
    }
    let mut transactions = Vec::new();
    for name in ["a", "b"] {
        let tx = database.begin_with(options.clone()).await.unwrap();
        assert_eq!(tx.count_matching(&doctors, rawdoc! { "on_call": true }).await.unwrap(), 2);
        tx.update_one(&doctors, rawdoc! { "_id": name }, rawdoc! { "$set": { "on_call": false } }).await.unwrap();
        transactions.push(tx);
    }
    let mut committed = [false; 2];
    for (place, tx) in transactions.into_iter().enumerate() {
        committed[place] = tx.commit().await.is_ok();
    }
    committed
}

#[tokio::test]
async fn write_skew_is_possible_at_snapshot_isolation() {
    on_each(|database| async move {
        assert_eq!(two_doctors_leave(&database, TransactionOptions::default()).await, [true, true]);
    })
    .await;
}

#[tokio::test]
async fn write_skew_is_refused_when_serializable() {
    on_each(|database| async move {
        assert_eq!(two_doctors_leave(&database, TransactionOptions::serializable()).await, [true, false]);
    })
    .await;
}

#[tokio::test]
async fn a_phantom_is_refused_when_serializable() {
    on_each(|database| async move {
        let tx = database.begin_with(TransactionOptions::serializable()).await.unwrap();
        let rich = rawdoc! { "balance": { "$gte": 100 } };
        assert_eq!(tx.count_matching(&accounts(), rich).await.unwrap(), 0);
        tx.insert_one(&accounts(), rawdoc! { "_id": "tax", "of": "nobody" }).await.unwrap();
        database.insert_one(&accounts(), rawdoc! { "_id": "Zoe", "balance": 1000 }).await.unwrap();
        assert!(matches!(tx.commit().await, Err(Error::Conflict(_))));
        assert_eq!(balance(&database, "tax").await, None);
    })
    .await;
}

#[tokio::test]
async fn a_serializable_read_of_one_document_that_was_missing_counts() {
    on_each(|database| async move {
        let tx = database.begin_with(TransactionOptions::serializable()).await.unwrap();
        assert_eq!(balance(&tx, "Zoe").await, None);
        pay(&tx, "Bob", 1).await.unwrap();
        database.insert_one(&accounts(), rawdoc! { "_id": "Zoe", "balance": 1 }).await.unwrap();
        assert!(matches!(tx.commit().await, Err(Error::Conflict(_))));
    })
    .await;
}

#[tokio::test]
async fn reading_alone_costs_no_write_and_always_commits() {
    on_each_local(|database| async move {
        let tx = database.begin_with(TransactionOptions::serializable()).await.unwrap();
        assert_eq!(balance(&tx, "Bob").await, Some(10));
        let before = database.begin().await.unwrap().read_at();
        let read_at = tx.commit().await.unwrap();
        assert_eq!(Some(read_at), before);
        assert_eq!(database.begin().await.unwrap().read_at(), before);
    })
    .await;
}

#[tokio::test]
async fn own_writes_are_seen_by_every_request() {
    on_each(|database| async move {
        let items = Namespace::new("bank", "items").unwrap();
        for n in 0..10 {
            database.insert_one(&items, rawdoc! { "_id": n, "n": n }).await.unwrap();
        }
        let tx = database.begin().await.unwrap();
        tx.update_one(&items, rawdoc! { "_id": 2 }, rawdoc! { "$set": { "n": 7.5 } }).await.unwrap();
        tx.delete_one(&items, rawdoc! { "_id": 4 }).await.unwrap();
        tx.insert_one(&items, rawdoc! { "_id": 99, "n": -1 }).await.unwrap();
        let sorted = Find {
            sort: rawdoc! { "n": -1 },
            skip: 1,
            limit: Some(4),
            projection: rawdoc! { "_id": 1 },
            ..Find::new(items.clone(), rawdoc! {})
        };
        let ids = |found: &[RawDocumentBuf]| found.iter().map(|d| d.get_i32("_id").unwrap()).collect::<Vec<_>>();
        assert_eq!(ids(&all(&tx, sorted).await), [8, 2, 7, 6]);
        assert_eq!(tx.count_matching(&items, rawdoc! { "n": { "$lt": 5 } }).await.unwrap(), 4);
        let groups = [rawdoc! { "$group": { "_id": null, "sum": { "$sum": "$n" } } }].to_vec();
        let mut cursor = tx.aggregate(Aggregate::new(items.clone(), groups)).await.unwrap();
        let sum = cursor.next_page(BatchLimit::REPLY).await.unwrap().documents[0].get_f64("sum").unwrap();
        assert_eq!(sum, 45.0 - 2.0 + 7.5 - 4.0 - 1.0);
        // Pages have one document, so that both sources are merged across pages.
        let mut cursor =
            tx.find(Find { sort: rawdoc! { "n": 1 }, ..Find::new(items.clone(), rawdoc! {}) }).await.unwrap();
        let mut found = Vec::new();
        loop {
            let page = cursor.next_page(BatchLimit { documents: 1, bytes: 1 }).await.unwrap();
            found.extend(page.documents);
            if page.exhausted {
                break;
            }
        }
        assert_eq!(ids(&found), [99, 0, 1, 3, 5, 6, 7, 2, 8, 9]);
        tx.commit().await.unwrap();
        assert_eq!(database.count_matching(&items, rawdoc! {}).await.unwrap(), 10);
    })
    .await;
}

#[tokio::test]
async fn a_unique_key_is_refused_at_the_statement_and_at_the_commit() {
    on_each(|database| async move {
        let unique = IndexSpec { unique: true, ..IndexSpec::new(rawdoc! { "email": 1 }) };
        let users = Namespace::new("bank", "users").unwrap();
        database.create_index(&users, unique).await.unwrap();
        database.insert_one(&users, rawdoc! { "_id": 1, "email": "a" }).await.unwrap();
        let tx = database.begin().await.unwrap();
        let refused = tx.insert_one(&users, rawdoc! { "_id": 2, "email": "a" }).await.unwrap_err();
        assert_eq!(refused.code(), Code::DuplicateKey);
        tx.insert_one(&users, rawdoc! { "_id": 3, "email": "b" }).await.unwrap();
        let refused = tx.insert_one(&users, rawdoc! { "_id": 4, "email": "b" }).await.unwrap_err();
        assert_eq!(refused.code(), Code::DuplicateKey);
        // The key moves to another document.
        tx.delete_one(&users, rawdoc! { "_id": 1 }).await.unwrap();
        tx.insert_one(&users, rawdoc! { "_id": 5, "email": "a" }).await.unwrap();
        // Another client takes the other key meanwhile.
        database.insert_one(&users, rawdoc! { "_id": 6, "email": "b" }).await.unwrap();
        let error = tx.commit().await.unwrap_err();
        assert!(matches!(&error, Error::Conflict(_)) && error.code() == Code::WriteConflict, "{error:?}");
        assert_eq!(database.count_matching(&users, rawdoc! {}).await.unwrap(), 2);
    })
    .await;
}

/// Two transactions take the next free number, as the ledger and a unique job do: the second one reads again and takes the number after it.
#[tokio::test]
async fn a_transaction_that_loses_a_unique_key_at_its_commit_runs_again() {
    on_each(|database| async move {
        let (unique, places) = (IndexSpec::new(rawdoc! { "place": 1 }), Namespace::new("bank", "places").unwrap());
        database.create_index(&places, IndexSpec { unique: true, ..unique }).await.unwrap();
        let runs = AtomicUsize::new(0);
        let take = async |tx: Transaction| {
            let place = tx.count_matching(&places, rawdoc! {}).await? as i64;
            tx.insert_one(&places, rawdoc! { "_id": "late", "place": place }).await?;
            if runs.fetch_add(1, Ordering::Relaxed) == 0 {
                database.insert_one(&places, rawdoc! { "_id": "first", "place": place }).await?;
            }
            Ok::<_, Error>(place)
        };
        assert_eq!((database.transaction(take).await.unwrap(), runs.load(Ordering::Relaxed)), (1, 2));
        // A key that the snapshot shows is refused, and the transaction is not run again.
        let twice = async |tx: Transaction| {
            runs.fetch_add(1, Ordering::Relaxed);
            tx.insert_one(&places, rawdoc! { "_id": "other", "place": 0_i64 }).await.map_err(Error::from)
        };
        assert_eq!(database.transaction(twice).await.unwrap_err().code(), Code::DuplicateKey);
        assert_eq!(runs.load(Ordering::Relaxed), 3);
    })
    .await;
}

#[tokio::test]
async fn a_drop_beside_a_transaction_makes_it_conflict() {
    on_each_local(|database| async move {
        let tx = database.begin().await.unwrap();
        pay(&tx, "Bob", 1).await.unwrap();
        database.drop_collection(&accounts()).await.unwrap();
        // The snapshot stays the same.
        assert_eq!(balance(&tx, "Joe").await, Some(2));
        assert!(matches!(tx.commit().await, Err(Error::Conflict(_))));
        assert_eq!(balance(&database, "Bob").await, None);
    })
    .await;
}

#[tokio::test]
async fn an_outcome_is_known_by_its_id() {
    on_each(|database| async move {
        let tx = database.begin().await.unwrap();
        let id = tx.id();
        assert_eq!(id.to_string().parse::<handfast_txn::TransactionId>().unwrap(), id);
        pay(&tx, "Bob", 1).await.unwrap();
        let at = tx.commit().await.unwrap();
        assert_eq!(database.outcome(id).await.unwrap(), Outcome::Committed(at));
        let rolled_back = database.begin().await.unwrap();
        let other = rolled_back.id();
        assert_ne!(id, other);
        rolled_back.abort();
        assert_eq!(database.outcome(other).await.unwrap(), Outcome::RolledBack);
        assert_eq!(database.forget_outcomes(Duration::from_secs(1)).await.unwrap(), 0);
    })
    .await;
}

#[tokio::test]
async fn a_commit_can_be_repeated_through_another_handle() {
    on_each(|database| async move {
        let tx = database.begin().await.unwrap();
        let other = tx.clone();
        pay(&tx, "Bob", 1).await.unwrap();
        let at = tx.commit().await.unwrap();
        assert_eq!(other.clone().commit().await.unwrap(), at);
        assert_eq!(pay(&other, "Bob", 1).await.unwrap_err().code(), Code::TransactionCommitted);
        assert_eq!(balance(&database, "Bob").await, Some(11));
    })
    .await;
}

#[tokio::test]
async fn a_transaction_has_a_bound_in_bytes() {
    on_each(|database| async move {
        let options = TransactionOptions { write_bytes_max: 2000, ..TransactionOptions::default() };
        let tx = database.begin_with(options).await.unwrap();
        let large = rawdoc! { "_id": 1, "text": "x".repeat(900) };
        tx.insert_one(&accounts(), large.clone()).await.unwrap();
        let error = tx.insert_one(&accounts(), rawdoc! { "_id": 2, "text": "x".repeat(900) }).await.unwrap_err();
        assert_eq!(error.code(), Code::TransactionTooLarge);
        // A second write of a document replaces the first one in the count.
        for n in 0..10 {
            tx.update_one(&accounts(), rawdoc! { "_id": 1 }, rawdoc! { "$set": { "n": n } }).await.unwrap();
        }
        tx.commit().await.unwrap();
        // Small documents have a minimal cost, and so have deletions.
        let options = TransactionOptions { write_bytes_max: 10_000, ..TransactionOptions::default() };
        for delete in [false, true] {
            let tx = database.begin_with(options.clone()).await.unwrap();
            let mut refused = None;
            for n in 0..20 {
                let written = match delete {
                    false => tx.insert_one(&accounts(), rawdoc! { "_id": 100 + n }).await,
                    true => tx.delete_one(&accounts(), rawdoc! { "_id": 100 + n }).await.map(|_| ()),
                };
                if let Err(error) = written {
                    refused = Some((n, error.code()));
                    break;
                }
            }
            assert!(matches!(refused, Some((10..20, Code::TransactionTooLarge))), "{refused:?}");
            tx.abort();
            if !delete {
                for n in 0..20 {
                    database.insert_one(&accounts(), rawdoc! { "_id": 100 + n }).await.unwrap();
                }
            }
        }
    })
    .await;
}

#[tokio::test]
async fn all_open_transactions_together_have_a_bound_in_bytes() {
    on_each(|database| async move {
        let options = TransactionOptions { all_write_bytes_max: 10_000, ..TransactionOptions::default() };
        let write = async |id: i32| {
            let tx = database.begin_with(options.clone()).await.unwrap();
            let text = "x".repeat(3000);
            tx.insert_one(&accounts(), rawdoc! { "_id": id, "text": text }).await.map(|()| tx)
        };
        let (first, second) = (write(1).await.unwrap(), write(2).await.unwrap());
        assert_eq!(write(3).await.unwrap_err().code(), Code::WriteConflict);
        assert!((6000..10_000).contains(&database.counts().write_bytes));
        // A transaction that ends releases its bytes, and leaves nothing counted.
        first.commit().await.unwrap();
        let third = write(3).await.unwrap();
        assert_eq!(write(4).await.unwrap_err().code(), Code::WriteConflict);
        second.abort();
        drop(third);
        assert_eq!(database.counts().write_bytes, 0);
    })
    .await;
}

#[tokio::test]
async fn a_transaction_without_memory_for_its_writes_runs_again() {
    on_each(|database| async move {
        let options = TransactionOptions { all_write_bytes_max: 5_000, ..TransactionOptions::default() };
        let insert = |tx: Transaction, id: i32| async move {
            tx.insert_one(&accounts(), rawdoc! { "_id": id, "text": "x".repeat(3000) }).await
        };
        let large = database.begin_with(options.clone()).await.unwrap();
        insert(large.clone(), 1).await.unwrap();
        let mut large = Some(large);
        let again = database.transaction_with(options, |tx| {
            // The large transaction ends with the first attempt, so the second one has enough memory.
            let ended = std::mem::take(&mut large).filter(|_| tx.is_open());
            async move {
                let inserted = insert(tx, 2).await;
                drop(ended);
                Ok::<_, handfast_txn::Error>(inserted?)
            }
        });
        again.await.unwrap();
        assert_eq!(database.counts().retries, 1);
    })
    .await;
}

#[tokio::test]
async fn a_transaction_that_is_open_for_too_long_is_rolled_back() {
    let (sources, clock): (Sources, Arc<ManualClock>) = Sources::manual(3);
    let database = Database::local(MemoryStore::new(sources.clone()), sources);
    database.insert_one(&accounts(), rawdoc! { "_id": "Bob", "balance": 10 }).await.unwrap();
    let slow = database.begin().await.unwrap();
    pay(&slow, "Bob", 1).await.unwrap();
    clock.advance(Duration::from_secs(61));
    // Its claim delays no other writer, whether the transaction is used again or not.
    let next = database.begin().await.unwrap();
    pay(&next, "Bob", 2).await.unwrap();
    assert_eq!(pay(&slow, "Bob", 1).await.unwrap_err().code(), Code::NoSuchTransaction);
    assert!(matches!(slow.commit().await, Err(Error::Conflict(_))));
    next.commit().await.unwrap();
    assert_eq!(balance(&database, "Bob").await, Some(12));
    assert_eq!(database.counts().open(), 0);
}

#[tokio::test]
async fn records_of_outcomes_are_as_many_as_were_open_at_once() {
    on_each_local(|database| async move {
        for _ in 0..20 {
            let tx = database.begin().await.unwrap();
            pay(&tx, "Bob", 1).await.unwrap();
            tx.commit().await.unwrap();
        }
        let records = Namespace::new("config", "transactions").unwrap();
        assert_eq!(database.count_matching(&records, rawdoc! {}).await.unwrap(), 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn money_is_neither_made_nor_lost() {
    on_each(|database| async move {
        let committed_before = database.counts().committed;
        let mut workers = tokio::task::JoinSet::new();
        for worker in 0..8 {
            let database = database.clone();
            workers.spawn(async move {
                for n in 0..25 {
                    let amount = (worker * 7 + n) % 5 - 2;
                    let moved = database.transaction(|tx| async move {
                        pay(&tx, "Bob", -amount).await?;
                        pay(&tx, "Joe", amount).await?;
                        Ok::<_, Error>(())
                    });
                    moved.await.unwrap();
                }
            });
        }
        while let Some(done) = workers.join_next().await {
            done.unwrap();
        }
        let (bob, joe) = (balance(&database, "Bob").await.unwrap(), balance(&database, "Joe").await.unwrap());
        assert_eq!(bob + joe, 12);
        let counts = database.counts();
        assert_eq!((counts.open(), counts.committed - committed_before), (0, 200), "{counts:?}");
    })
    .await;
}
