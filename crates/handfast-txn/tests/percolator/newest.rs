//! A find of one document outside of a transaction costs one operation, and sees every acknowledged write.

use std::sync::Arc;
use std::time::Duration;

use bson::{RawDocumentBuf, rawdoc};
use handfast_store::decorator::{Fault, Faulty, Metered, Operation, Plan};
use handfast_store::{DocumentStore, Find, Namespace, RenameCollection, StoreExt};

use crate::support::*;

/// Returns finds of one `_id`, each of which shows Bob with his balance.
fn finds_of_bob() -> Vec<Find> {
    let by = |filter: RawDocumentBuf| Find::new(accounts(), filter);
    vec![
        by(rawdoc! { "_id": "Bob" }),
        Find { limit: Some(1), ..by(rawdoc! { "_id": "Bob" }) },
        by(rawdoc! { "_id": { "$in": ["Bob"] } }),
        by(rawdoc! { "_id": { "$eq": "Bob" }, "balance": { "$gt": 0 } }),
        Find { projection: rawdoc! { "balance": 1 }, ..by(rawdoc! { "_id": "Bob" }) },
        Find { projection: rawdoc! { "balance": { "$add": ["$balance", 0] } }, ..by(rawdoc! { "_id": "Bob" }) },
        Find { sort: rawdoc! { "balance": 1 }, ..by(rawdoc! { "_id": "Bob", "$expr": { "$gt": ["$balance", 0] } }) },
    ]
}

async fn bob_has(database: &handfast_txn::Database) -> i32 {
    let found = database.find_one(&accounts(), rawdoc! { "_id": "Bob" }).await.unwrap();
    found.unwrap().get_i32("balance").unwrap()
}

async fn joe_has(database: &handfast_txn::Database) -> i32 {
    let found = database.find_one(&accounts(), rawdoc! { "_id": "Joe" }).await.unwrap();
    found.unwrap().get_i32("balance").unwrap()
}

#[tokio::test]
async fn a_find_by_id_is_one_operation() {
    let bank = Bank::of_the_seed().await;
    let metered = Arc::new(Metered::new(bank.store.clone(), bank.sources.clock.clone()));
    let database = bank.process_over(metered.clone());
    let mut finds = 0;
    for find in finds_of_bob() {
        let found = database.find_all(find.clone()).await.unwrap();
        assert_eq!(found, [rawdoc! { "_id": "Bob", "balance": 10 }], "{find:?}");
        finds += 1;
    }
    for of in metered.report() {
        let expected = match of.operation {
            // The first page comes with the answer to the find.
            Operation::Find | Operation::NextPage => finds,
            _ => 0,
        };
        assert_eq!(of.started, expected, "{:?}", of.operation);
    }
}

/// A find of a missing document takes one operation in a process that knows the collection and a recent version of the catalog.
#[tokio::test]
async fn a_find_of_nothing_is_one_operation_where_the_collection_is_known() {
    let bank = Bank::of_the_seed().await;
    let metered = Arc::new(Metered::new(bank.store.clone(), bank.sources.clock.clone()));
    let database = bank.process_over(metered.clone());
    pay_once(&database).await.unwrap();
    database.flush().await.unwrap();
    let all = || metered.report().iter().map(|of| of.started).sum::<u64>();
    let count = async || {
        let before = all();
        assert!(database.find_one(&accounts(), rawdoc! { "_id": "nobody" }).await.unwrap().is_none());
        all() - before
    };
    assert_eq!(count().await, 2, "a find, and its first page that comes with the answer");
    bank.clock.advance(handfast_txn::percolator::RETENTION / 3);
    assert!(count().await > 2, "it has not heard of the catalog for long");
    assert_eq!(count().await, 2);
}

/// A process that has only read by `_id` does not know that another process has dropped the collection, renamed it, or created another one
/// of that name: it reads the current state.
#[tokio::test]
async fn a_find_by_id_reads_no_collection_that_has_lost_its_name() {
    let bank = Bank::of_the_seed().await;
    let (reader, other) = (bank.process(), bank.process());
    let people = Namespace::new("other", "people").unwrap();
    let bob = async |namespace: &Namespace| {
        let found = reader.find_one(namespace, rawdoc! { "_id": "Bob" }).await.unwrap();
        found.map(|bob| bob.get_i32("balance").unwrap())
    };
    let rename = async |from: Namespace, to: Namespace, drop_target| {
        other.rename_collection(RenameCollection { from, to, drop_target }).await.unwrap();
    };
    assert_eq!((bob(&accounts()).await, bob(&people).await), (Some(10), None));
    rename(accounts(), people.clone(), false).await;
    assert_eq!((bob(&accounts()).await, bob(&people).await), (None, Some(10)));
    other.insert_one(&accounts(), rawdoc! { "_id": "Bob", "balance": 1 }).await.unwrap();
    assert_eq!((bob(&accounts()).await, bob(&people).await), (Some(1), Some(10)));
    rename(people.clone(), accounts(), true).await;
    assert_eq!((bob(&accounts()).await, bob(&people).await), (Some(10), None));
    assert!(other.drop_collection(&accounts()).await.unwrap());
    assert_eq!((bob(&accounts()).await, bob(&people).await), (None, None));
    other.insert_one(&accounts(), rawdoc! { "_id": "Bob", "balance": 2 }).await.unwrap();
    assert_eq!(bob(&accounts()).await, Some(2));
    assert!(other.drop_database("bank").await.unwrap());
    assert_eq!(bob(&accounts()).await, None);
}

#[tokio::test(start_paused = true)]
#[allow(clippy::disallowed_methods, reason = "the runtime's time, which stands still but for the pauses")]
async fn a_find_by_id_takes_one_round_trip() {
    let bank = Bank::of_the_seed().await;
    let round_trip = Duration::from_millis(1);
    let database = bank.process_over(Arc::new(Faulty::new(bank.store.clone(), Plan::always(Fault::Delay(round_trip)))));
    let begun = tokio::time::Instant::now();
    assert_eq!(bob_has(&database).await, 10);
    let first_page = round_trip;
    assert_eq!(begun.elapsed(), round_trip + first_page);
}

/// At each step of a transfer, a find returns at once: before the commit point the old balances, and after it the new ones, also while rows
/// are still locked.
#[tokio::test]
async fn a_find_by_id_sees_acknowledged_writes_without_waiting() {
    let bank = Bank::of_the_seed().await;
    let payment = Stepped::payment_without_flush(&bank);
    let reader = bank.process();
    let mut seen = Vec::new();
    while stopped(&payment.store, || payment.payment.is_finished()).await {
        let operations = bank.clock_of_oracle().await;
        let both = (bob_has(&reader).await, joe_has(&reader).await);
        assert_eq!(bank.clock_of_oracle().await, operations, "no timestamp is fetched");
        let has_committed = half_committed(&bank.hidden().await) || payment.payment.is_finished();
        assert_eq!(both, if has_committed { (3, 9) } else { (10, 2) });
        seen.push((both, both_locked(&bank.hidden().await), has_committed));
        payment.store.release();
    }
    assert_eq!((bob_has(&reader).await, joe_has(&reader).await), (3, 9));
    assert!(seen.iter().any(|(_, locked, _)| *locked), "{seen:?}");
    assert!(seen.iter().any(|(both, _, committed)| *committed && *both == (3, 9)), "{seen:?}");
}

/// A primary without an entry for a lock's transaction may have forgotten it: then a read of a snapshot decides.
#[tokio::test]
async fn a_primary_that_knows_nothing_is_not_believed() {
    let bank = Bank::of_the_seed().await;
    let lock = rawdoc! {
        "s": 7_i64, "primary": { "ns": "bank.accounts", "id": "Bob" }, "op": "put", "doc": { "_id": "Joe", "balance": 9 },
        "ttl": 5_000_i64,
    };
    let set = rawdoc! { "$set": { "_hf.lock": lock, "_hf.v": 2_i64 } };
    bank.store.update_one(&accounts(), rawdoc! { "_id": "Joe" }, set).await.unwrap();
    let oracle = handfast_store::Namespace::new("handfast", "oracle").unwrap();
    bank.store.update_one(&oracle, rawdoc! {}, rawdoc! { "$set": { "ts": 7_i64 } }).await.unwrap();
    // The lock has expired: the snapshot rolls its transaction back, with a record on the primary.
    bank.clock.advance(LOCK_TIME);
    assert_eq!(joe_has(&bank.process()).await, 2);
    let hidden = bank.hidden().await;
    assert!(hidden[0].contains_key("rb") && !hidden[1].contains_key("lock"), "{hidden:?}");
}
