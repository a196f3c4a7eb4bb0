//! Answers of the store that get lost: the library finds out some outcomes itself, and leaves others to its caller.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use bson::rawdoc;
use handfast_mql::Code;
use handfast_store::decorator::{Address, Fault, Faulty, Operation, Plan};
use handfast_store::{MemoryStore, Namespace, Sources, StoreExt};
use handfast_txn::{Database, Error, OnRetry, Outcome, Transaction, TransactionOptions};

fn items() -> Namespace {
    Namespace::new("d", "items").unwrap()
}

/// Returns a database over a store that loses answers according to a plan.
fn over(plan: Plan) -> Database {
    let store = Arc::new(MemoryStore::new(Sources::seeded(1)));
    Database::local(Arc::new(Faulty::new(store, plan)), Sources::seeded(2))
}

async fn insert(tx: &Transaction) -> Result<(), Error> {
    tx.insert_one(&items(), rawdoc! { "_id": 1 }).await?;
    Ok(())
}

#[tokio::test]
async fn a_transaction_that_cannot_be_begun_is_begun_again() {
    let lost = [
        (Address::first(Operation::Snapshot), Fault::LoseReply),
        (Address::second(Operation::Snapshot), Fault::LoseRequest),
    ];
    let database = over(Plan::at_requests(lost));
    let runs = AtomicU32::new(0);
    let run = |tx: Transaction| {
        runs.fetch_add(1, Ordering::Relaxed);
        async move { insert(&tx).await }
    };
    database.transaction(run).await.unwrap();
    assert_eq!((runs.into_inner(), database.counts().begun, database.counts().retries), (1, 1, 2));
}

#[tokio::test]
async fn on_retry_is_called_before_the_next_run_begins() {
    let database = over(Plan::none());
    insert(&database.begin().await.unwrap()).await.unwrap();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let (list, beginning) = (Arc::clone(&heard), database.clone());
    let on_retry = OnRetry::new(move |why| list.lock().unwrap().push((why.code(), beginning.counts().begun)));
    let options = TransactionOptions { on_retry, ..TransactionOptions::default() };
    let mut first = true;
    let run = |tx: Transaction| {
        let (database, first) = (database.clone(), std::mem::take(&mut first));
        async move {
            insert(&tx).await?;
            if first {
                // Another client writes first.
                database.insert_one(&items(), rawdoc! { "_id": 1 }).await?;
                return Ok(());
            }
            Ok::<_, Error>(())
        }
    };
    let error = database.transaction_with(options, run).await.unwrap_err();
    assert_eq!(error.code(), Code::DuplicateKey);
    // Two transactions are counted: the dropped one, and the first run, as the second run had not begun yet.
    assert_eq!(*heard.lock().unwrap(), [(Code::WriteConflict, 2)]);
}

#[tokio::test]
async fn the_library_asks_for_the_outcome_of_a_commit_without_an_answer() {
    let database = over(Plan::at_request(Address::first(Operation::Commit), Fault::LoseReply));
    database.transaction(|tx| async move { insert(&tx).await }).await.unwrap();
    let counts = database.counts();
    assert_eq!((counts.committed, counts.confirmed, counts.unknown), (1, 1, 0));
}

#[tokio::test]
async fn an_outcome_that_the_library_cannot_find_out_is_left_to_its_caller() {
    for (fault, expected) in [(Fault::LoseReply, true), (Fault::LoseRequest, false)] {
        // The store is flushed before the outcome is read.
        let lost = [(Address::first(Operation::Commit), fault), (Address::first(Operation::Flush), Fault::LoseReply)];
        let database = over(Plan::at_requests(lost));
        let run = |tx: Transaction| async move {
            // The name is asked for before the commit, so that the commit records its outcome.
            let _ = tx.id();
            insert(&tx).await
        };
        let Err(Error::CommitUnknown { id, .. }) = database.transaction(run).await else {
            panic!("the outcome is known")
        };
        let outcome = database.outcome(id).await.unwrap();
        assert_eq!(matches!(outcome, Outcome::Committed(_)), expected, "{outcome:?}");
        let counts = database.counts();
        assert_eq!((counts.committed, counts.confirmed, counts.unknown), (0, 0, 1));
    }
}
