//! Writers of one process: the second one learns at its write that it is the second, and stands in line when it is run again.

use std::sync::Arc;
use std::time::Duration;

use bson::rawdoc;
use handfast_mql::Code;
use handfast_store::decorator::{Fault, Faulty, Plan};
use handfast_store::{DocumentStore, Namespace, Result as StoreResult, StoreExt, UpdateOutcome};
use handfast_txn::{Error, Transaction};

use crate::support::*;

async fn raise(tx: &Transaction) -> StoreResult<UpdateOutcome> {
    tx.update_one(&accounts(), rawdoc! { "_id": "Bob" }, rawdoc! { "$inc": { "balance": 1 } }).await
}

#[tokio::test]
async fn the_second_writer_of_a_process_learns_at_its_write_and_that_of_another_one_at_its_commit() {
    let bank = Bank::of_the_seed().await;
    let (here, elsewhere) = (bank.process(), bank.process());
    let (first, second) = (here.begin().await.unwrap(), here.begin().await.unwrap());
    let other = elsewhere.begin().await.unwrap();
    raise(&first).await.unwrap();
    raise(&other).await.unwrap();
    assert_eq!(raise(&second).await.unwrap_err().code(), Code::WriteConflict);
    assert!(matches!(second.commit().await, Err(Error::Conflict(_))));
    first.commit().await.unwrap();
    assert!(matches!(other.commit().await, Err(Error::Conflict(_))));
    here.flush().await.unwrap();
    assert_eq!(bank.balances().await, (11, 2));
}

/// It would have prewritten for nothing.
#[tokio::test]
async fn who_began_before_a_commit_learns_of_it_at_the_write() {
    let bank = Bank::of_the_seed().await;
    let database = bank.process();
    let late = database.begin().await.unwrap();
    pay_once(&database).await.unwrap();
    database.flush().await.unwrap();
    assert_eq!(raise(&late).await.unwrap_err().code(), Code::WriteConflict);
    let next = database.begin().await.unwrap();
    raise(&next).await.unwrap();
    next.commit().await.unwrap();
}

/// Sixteen at a time move money between four accounts, with a store that is far away. A transfer alone takes 8 operations; when every
/// one that loses comes back at a random time, and finds out at its commit that it has lost again, each takes a hundred.
#[tokio::test]
async fn many_who_want_few_documents_take_turns() {
    const TASKS: i32 = 16;
    const TRANSFERS: i32 = 5;
    const OPERATIONS_MAX: u64 = 30;
    let bank = Bank::of_the_seed().await;
    let accounts = Namespace::new("bank", "hot").unwrap();
    let delayed = Plan::always(Fault::Delay(Duration::from_millis(1)));
    let store: Arc<Faulty<dyn DocumentStore>> = Arc::new(Faulty::new(bank.store.clone(), delayed));
    let database = bank.process_over(store.clone());
    for id in 0..4 {
        database.insert_one(&accounts, rawdoc! { "_id": id, "balance": 100 }).await.unwrap();
    }
    database.flush().await.unwrap();
    let before = store.operations();
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (database, accounts) = (database.clone(), accounts.clone());
            tokio::spawn(async move {
                for step in 0..TRANSFERS {
                    let (from, to) = ((task + step) % 4, (task * 3 + step + 1 + task % 2) % 4);
                    let pairs = [(from, -1), (if from == to { (to + 1) % 4 } else { to }, 1)];
                    let transfer = |tx: Transaction| {
                        let accounts = accounts.clone();
                        async move {
                            for (id, amount) in pairs {
                                let change = rawdoc! { "$inc": { "balance": amount } };
                                tx.update_one(&accounts, rawdoc! { "_id": id }, change).await?;
                            }
                            Ok::<_, Error>(())
                        }
                    };
                    database.transaction(transfer).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    database.flush().await.unwrap();
    let each = (store.operations() - before) / u64::from((TASKS * TRANSFERS).unsigned_abs());
    assert!(each <= OPERATIONS_MAX, "{each} operations for each transfer; {:?}", database.counts());
    println!("{each} operations for each transfer; {:?}", database.counts());
}
