//! Answers that get lost on the way from the store: what the library finds out by itself, and what it leaves to its caller.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use bson::rawdoc;
use handfast_mql::Code;
use handfast_store::decorator::{Fault, Faulty, Plan};
use handfast_store::{MemoryStore, Namespace, Sources, StoreExt};
use handfast_txn::{Database, Error, OnRetry, Outcome, Transaction, TransactionOptions};

fn items() -> Namespace {
    Namespace::new("d", "items").unwrap()
}

/// A database over a store that loses answers as planned. Of a transaction that inserts, operation 0 is the snapshot, 1 a
/// list of indexes, 2 and 3 reads, 4 the commit, 5 the flush before the outcome is looked for.
fn over(plan: Plan) -> Database {
    let store = Arc::new(MemoryStore::new(Sources::seeded(1)));
    Database::local(Arc::new(Faulty::new(store, plan)), Sources::seeded(2))
}

async fn insert(tx: &Transaction) -> Result<(), Error> {
    tx.insert_one(&items(), rawdoc! { "_id": 1 }).await?;
    Ok(())
}

/// The number of the operation that commits, and that of the first one after it.
async fn operations() -> (u64, u64) {
    let store = Arc::new(MemoryStore::new(Sources::seeded(1)));
    let counting = Arc::new(Faulty::new(store, Plan::none()));
    let database = Database::local(Arc::clone(&counting), Sources::seeded(2));
    database.transaction(|tx| async move { insert(&tx).await }).await.unwrap();
    (counting.operations() - 1, counting.operations())
}

#[tokio::test]
async fn a_transaction_that_cannot_be_begun_is_begun_again() {
    let database = over(Plan::explicit([(0, Fault::LoseReply), (1, Fault::LoseRequest)]));
    let runs = AtomicU32::new(0);
    let run = |tx: Transaction| {
        runs.fetch_add(1, Ordering::Relaxed);
        async move { insert(&tx).await }
    };
    database.transaction(run).await.unwrap();
    assert_eq!((runs.into_inner(), database.counts().begun, database.counts().retries), (1, 1, 2));
}

#[tokio::test]
async fn who_wants_to_hear_of_a_retry_hears_before_it_begins() {
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
                // Somebody else is faster.
                database.insert_one(&items(), rawdoc! { "_id": 1 }).await?;
                return Ok(());
            }
            Ok::<_, Error>(())
        }
    };
    let error = database.transaction_with(options, run).await.unwrap_err();
    assert_eq!(error.code(), Code::DuplicateKey);
    // The one that was dropped, and the first run: the second one was not there yet.
    assert_eq!(*heard.lock().unwrap(), [(Code::WriteConflict, 2)]);
}

#[tokio::test]
async fn the_library_asks_what_became_of_a_commit() {
    let (commit, _) = operations().await;
    let database = over(Plan::at(commit, Fault::LoseReply));
    database.transaction(|tx| async move { insert(&tx).await }).await.unwrap();
    let counts = database.counts();
    assert_eq!((counts.committed, counts.confirmed, counts.unknown), (1, 1, 0));
}

#[tokio::test]
async fn what_the_library_cannot_find_out_its_caller_asks_for() {
    let (commit, question) = operations().await;
    for (fault, expected) in [(Fault::LoseReply, true), (Fault::LoseRequest, false)] {
        let database = over(Plan::explicit([(commit, fault), (question, Fault::LoseReply)]));
        let run = |tx: Transaction| async move {
            // Whoever may have to ask has the name before.
            let _ = tx.id();
            insert(&tx).await
        };
        let Err(Error::CommitUnknown { id, .. }) = database.transaction(run).await else { panic!("it is known") };
        let outcome = database.outcome(id).await.unwrap();
        assert_eq!(matches!(outcome, Outcome::Committed(_)), expected, "{outcome:?}");
        let counts = database.counts();
        assert_eq!((counts.committed, counts.confirmed, counts.unknown), (0, 0, 1));
    }
}
