//! Writers of one process: the second writer of a document gets a conflict at its write, and waits for its turn when it is run
//! again.

use std::sync::Arc;
use std::time::Duration;

use bson::rawdoc;
use handfast_mql::Code;
use handfast_store::decorator::{Fault, Faulty, Plan};
use handfast_store::{DocumentStore, Namespace, Random, Result as StoreResult, SeededRandom, StoreExt, UpdateOutcome};
use handfast_txn::{Database, Error, Transaction};
use tokio::time::Instant;

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

/// The write fails at once, so that the transaction does not prewrite in vain.
#[tokio::test]
async fn a_transaction_that_began_before_a_commit_conflicts_at_its_write() {
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

/// Moves 1 from one account to the other, in the closure form.
async fn transfer(database: &Database, accounts: &Namespace, from: i32, to: i32) {
    let run = |tx: Transaction| async move {
        for (id, amount) in [(from, -1), (to, 1)] {
            tx.update_one(accounts, rawdoc! { "_id": id }, rawdoc! { "$inc": { "balance": amount } }).await?;
        }
        Ok::<_, Error>(())
    };
    database.transaction(run).await.unwrap();
}

/// Runs `tasks` concurrent tasks that each make `transfers` transfers between `accounts` accounts, over a store with a delay.
/// Returns the operations on the store for each transfer, and the time of all transfers together.
#[expect(clippy::disallowed_methods, reason = "time is virtual, and that of the runtime")]
async fn moved(accounts: u64, tasks: u64, transfers: u64) -> (f64, Duration) {
    let bank = Bank::of_the_seed().await;
    let namespace = Namespace::new("bank", "many").unwrap();
    let delayed = Plan::always(Fault::Delay(Duration::from_millis(10)));
    let store: Arc<Faulty<dyn DocumentStore>> = Arc::new(Faulty::new(bank.store.clone(), delayed));
    let database = bank.process_over(store.clone());
    for id in 0..accounts {
        let account = rawdoc! { "_id": i32::try_from(id).unwrap(), "balance": 100 };
        bank.store.insert_one(&namespace, account).await.unwrap();
    }
    // The first transfer also reads what a process reads once for a collection.
    transfer(&database, &namespace, 0, 1).await;
    database.flush().await.unwrap();
    let (before, begun) = (store.operations(), Instant::now());
    let running: Vec<_> = (0..tasks)
        .map(|task| {
            let (database, namespace, random) = (database.clone(), namespace.clone(), SeededRandom::new(task));
            tokio::spawn(async move {
                for _ in 0..transfers {
                    let from = random.next_u64() % accounts;
                    let to = (from + 1 + random.next_u64() % (accounts - 1)) % accounts;
                    transfer(&database, &namespace, i32::try_from(from).unwrap(), i32::try_from(to).unwrap()).await;
                }
            })
        })
        .collect();
    for task in running {
        task.await.unwrap();
    }
    let took = begun.elapsed();
    database.flush().await.unwrap();
    ((store.operations() - before) as f64 / (tasks * transfers) as f64, took)
}

/// A single transfer takes 8 operations; if each transaction with a conflict ran again after a random time, and got its next
/// conflict only at its commit, each would take a hundred.
#[tokio::test(start_paused = true)]
async fn many_who_want_few_documents_take_turns() {
    let (operations, _) = moved(4, 16, 5).await;
    assert!(operations <= 15.0, "{operations} operations for each transfer");
}

/// Measures in virtual time, in which only the store takes time.
#[tokio::test(start_paused = true)]
async fn hot_accounts_take_a_third_more_operations_and_three_times_as_long_at_most() {
    let (of_all, of_hot) = (moved(10_000, 8, 40).await, moved(10, 8, 40).await);
    assert!(of_hot.0 <= of_all.0 * 4.0 / 3.0, "operations for each transfer: {} and {}", of_hot.0, of_all.0);
    assert!(of_hot.1 <= of_all.1 * 3, "{:?} and {:?}", of_hot.1, of_all.1);
}
