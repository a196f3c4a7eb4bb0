//! A document is deleted, and inserted again with an `_id` that is equal and has another spelling: `1` and `1.0`.

use bson::{RawBson, RawDocumentBuf, rawdoc};
use handfast_store::{DocumentStore, Find, StoreExt};
use handfast_txn::Database;

use crate::queries::{all, snapshot_over};
use crate::support::*;

const INT: RawBson = RawBson::Int32(1);
const DOUBLE: RawBson = RawBson::Double(1.0);

fn account(id: RawBson, balance: i32) -> RawDocumentBuf {
    rawdoc! { "_id": id, "balance": balance }
}

/// Returns filters for all the ways in which a document is found.
fn filters() -> Vec<RawDocumentBuf> {
    vec![
        rawdoc! { "_id": 1 },
        rawdoc! { "_id": 1.0 },
        rawdoc! { "_id": { "$in": [1_i64, 5] } },
        rawdoc! { "_id": { "$gt": 0, "$lt": 2 } },
        rawdoc! { "balance": { "$gt": 0 } },
    ]
}

async fn is_spelled(database: &Database, id: &RawBson) {
    for filter in filters() {
        let found = database.find_all(Find::new(accounts(), filter.clone())).await.unwrap();
        let ids: Vec<RawBson> = found.iter().map(|found| found.get("_id").unwrap().unwrap().into()).collect();
        assert_eq!(ids, std::slice::from_ref(id), "{filter:?}");
    }
    let of_type = |name: &str| rawdoc! { "_id": { "$type": name } };
    let is_double = matches!(id, RawBson::Double(_));
    let doubles = database.count_matching(&accounts(), of_type("double")).await.unwrap();
    let ints = database.count_matching(&accounts(), of_type("int")).await.unwrap();
    assert_eq!((doubles, ints), if is_double { (1, 0) } else { (0, 1) });
}

async fn a_bank() -> Bank {
    let bank = Bank::of_the_seed().await;
    for name in ["Bob", "Joe"] {
        bank.store.delete_one(&accounts(), rawdoc! { "_id": name }).await.unwrap();
    }
    bank
}

#[tokio::test]
async fn it_comes_back_as_it_was_inserted() {
    let bank = a_bank().await;
    let database = bank.process();
    database.insert_one(&accounts(), account(INT, 1)).await.unwrap();
    is_spelled(&database, &INT).await;
    let first = snapshot_over(&bank, bank.store.clone()).await;
    for (id, balance) in [(DOUBLE, 2), (INT, 3), (DOUBLE, 4)] {
        database.delete_one(&accounts(), rawdoc! { "_id": 1 }).await.unwrap();
        database.insert_one(&accounts(), account(id.clone(), balance)).await.unwrap();
        is_spelled(&database, &id).await;
        // The spelling stays the same when the document is changed.
        database.update_one(&accounts(), rawdoc! { "_id": 1 }, rawdoc! { "$inc": { "balance": 10 } }).await.unwrap();
        is_spelled(&database, &id).await;
        database.flush().await.unwrap();
        is_spelled(&bank.process(), &id).await;
    }
    // Each snapshot shows the spelling of its time.
    for filter in filters() {
        assert_eq!(all(&*first, Find::new(accounts(), filter)).await.unwrap(), [account(INT, 1)]);
    }
}

#[tokio::test]
async fn a_negative_zero_is_spelled_otherwise_than_a_zero() {
    let bank = a_bank().await;
    let database = bank.process();
    for id in [-0.0, 0.0, -0.0_f64] {
        database.insert_one(&accounts(), account(RawBson::Double(id), 1)).await.unwrap();
        for filter in [rawdoc! { "_id": 0 }, rawdoc! { "balance": 1 }] {
            // The results are compared as bytes, as the two `_id`s are equal as numbers.
            let found = database.find_all(Find::new(accounts(), filter)).await.unwrap();
            assert_eq!(found, [account(RawBson::Double(id), 1)]);
        }
        database.delete_one(&accounts(), rawdoc! { "_id": 0 }).await.unwrap();
    }
}

/// The row is the primary of its transaction: a reader that finds the other row's lock learns from it that the transaction has committed.
#[tokio::test]
async fn it_decides_its_transaction() {
    let bank = a_bank().await;
    let database = bank.process();
    database.insert_one(&accounts(), account(INT, 1)).await.unwrap();
    bank.store.insert_one(&accounts(), rawdoc! { "_id": 2, "balance": 2 }).await.unwrap();
    let tx = database.begin().await.unwrap();
    tx.delete_one(&accounts(), rawdoc! { "_id": 1 }).await.unwrap();
    tx.insert_one(&accounts(), account(DOUBLE, 7)).await.unwrap();
    tx.update_one(&accounts(), rawdoc! { "_id": 2 }, rawdoc! { "$inc": { "balance": 1 } }).await.unwrap();
    tx.commit().await.unwrap();
    database.flush().await.unwrap();
    let row =
        bank.rows().await.into_iter().find(|row| row.get_i32("balance").is_ok_and(|balance| balance == 7)).unwrap();
    assert!(row.get_document("_hf").unwrap().get_bool("p").unwrap(), "{row}");
    let first = Find::new(accounts(), rawdoc! { "_id": 1 });
    assert_eq!(database.find_all(first).await.unwrap(), [account(DOUBLE, 7)]);
}

/// Cleaners do not change its spelling.
#[tokio::test]
async fn it_outlives_its_history() {
    let bank = a_bank().await;
    let database = bank.process();
    database.insert_one(&accounts(), account(INT, 1)).await.unwrap();
    database.delete_one(&accounts(), rawdoc! { "_id": 1 }).await.unwrap();
    database.insert_one(&accounts(), account(DOUBLE, 2)).await.unwrap();
    database.flush().await.unwrap();
    let engine = handfast_txn::Percolator::new(bank.store.clone(), bank.sources.clone(), options()).unwrap();
    for _ in 0..2 {
        bank.clock.advance(std::time::Duration::from_secs(1_000));
        engine.clean().await.unwrap();
    }
    is_spelled(&database, &DOUBLE).await;
}
