//! A new version of a row that the store would refuse is refused before the commit point, because later is too late.

use std::sync::Arc;

use bson::{RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_store::decorator::{Fault, Faulty, Plan};
use handfast_store::{DocumentStore, StoreExt, insertion};
use handfast_txn::{Database, Percolator, Result};

use crate::support::{Bank, LOCK_TIME, OPERATIONS_MAX, accounts, balances, options};

/// Stores accept such a name in an insert, and no store accepts it in a replacement, which every commit is: a secondary with such
/// a name could never be rolled forward, and all other transactions would have to wait for it.
#[tokio::test(start_paused = true)]
async fn a_field_that_begins_with_a_dollar_is_refused_with_the_whole_transaction() {
    let bank = Bank::of_the_seed().await;
    let database = bank.process();
    let tx = database.begin().await.unwrap();
    tx.update_one(&accounts(), rawdoc! { "_id": "Bob" }, rawdoc! { "$inc": { "balance": -7 } }).await.unwrap();
    let written = tx.insert_one(&accounts(), rawdoc! { "_id": "note", "$to": "Joe" }).await;
    let refused = match written {
        Ok(()) => tx.commit().await.unwrap_err().code(),
        Err(error) => error.code(),
    };
    assert_eq!(refused, Code::DollarPrefixedFieldName);
    database.flush().await.unwrap();
    assert_eq!(balances(&database).await, (10, 2));
    let operator = Percolator::new(bank.store.clone(), bank.sources.clone(), options()).unwrap();
    assert_eq!(operator.count_locks().await.unwrap(), 0);
    operator.clean().await.unwrap();
    assert!(database.drop_collection(&accounts()).await.unwrap());
}

/// Returns documents that have no space left for a lock, and so none for a record of a rollback.
fn without_room() -> [RawDocumentBuf; 2] {
    let of = |length: usize| rawdoc! { "_id": "Ann", "text": "x".repeat(length) };
    [of(insertion::DOCUMENT_BYTES_MAX - of(0).as_bytes().len()), rawdoc! { "_id": "Ann", "$to": "Joe" }]
}

/// Deletes Ann and pays Joe. The first row by `_id`, Ann's, is the primary.
async fn remove_ann_and_pay(database: &Database) -> Result<()> {
    let tx = database.begin().await?;
    tx.delete_one(&accounts(), rawdoc! { "_id": "Ann" }).await?;
    tx.update_one(&accounts(), rawdoc! { "_id": "Joe" }, rawdoc! { "$inc": { "balance": 7 } }).await?;
    tx.commit().await.map(drop)
}

/// All rows are locked at once. A process that dies when the others are locked, and before it learns that its primary cannot be
/// locked, leaves locks that can be resolved: a primary without space for a record of the rollback needs none.
#[tokio::test]
async fn a_primary_that_can_take_no_record_is_no_reason_to_stay_locked() {
    let mut locked = 0;
    for full in without_room() {
        for number in 0..OPERATIONS_MAX {
            let bank = Bank::of_the_seed().await;
            bank.store.insert_one(&accounts(), full.clone()).await.unwrap();
            let dying = Arc::new(Faulty::new(bank.store.clone(), Plan::at(number, Fault::CrashAfter)));
            let case = format!("dies at {number}");
            remove_ann_and_pay(&bank.process_over(dying.clone())).await.unwrap_err();
            bank.clock.advance(LOCK_TIME);
            let operator = Percolator::new(bank.store.clone(), bank.sources.clone(), options()).unwrap();
            locked += operator.count_locks().await.unwrap();
            let reader = bank.process();
            let joe = reader.find_one(&accounts(), rawdoc! { "_id": "Joe" }).await.expect(&case).unwrap();
            assert_eq!(joe.get_i32("balance").unwrap(), 2, "{case}");
            reader.flush().await.unwrap();
            assert_eq!(operator.count_locks().await.unwrap(), 0, "{case}");
            if dying.operations() <= number {
                break;
            }
        }
    }
    assert!(locked >= 2, "one operation of each is the lock of the other row: {locked}");
}
