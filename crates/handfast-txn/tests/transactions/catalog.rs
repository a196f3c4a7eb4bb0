//! Collections and indexes are created and dropped beside running transactions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bson::{RawDocumentBuf, rawdoc};
use handfast_store::{
    CollectionOptions, CreateIndexes, DocumentStore, DropIndexes, Find, Hint, IndexSelector, IndexSpec, Namespace,
    RenameCollection, StoreExt,
};
use handfast_txn::{Database, Error, Transaction};

use super::{accounts, all, on_each};

/// The number of transfers of each client beside the changes.
const TRANSFERS: i32 = 60;
/// The minimal number of rounds of changes.
const ROUNDS_MIN: usize = 5;
/// The number of transfers between two rounds: while the catalog changes without a pause, no other transaction can commit.
const TRANSFERS_BETWEEN: usize = 3;
const ACCOUNTS: i32 = 8;

fn namespace(collection: &str) -> Namespace {
    Namespace::new("bank", collection).unwrap()
}

/// Checks that an index agrees with its collection in one snapshot, and that no money is lost.
async fn agree(database: &Database, index: &str) {
    let tx = database.begin().await.unwrap();
    let read = async |hint| {
        let filter = rawdoc! { "balance": { "$gt": i32::MIN } };
        all(&tx, Find { sort: rawdoc! { "_id": 1 }, hint, ..Find::new(accounts(), filter) }).await
    };
    let (by_index, found) = (read(Some(Hint::Name(index.to_owned()))).await, read(None).await);
    assert_eq!(by_index, found);
    let money: i32 = found.iter().map(|account| account.get_i32("balance").unwrap()).sum();
    assert_eq!(money, 100 * ACCOUNTS, "{found:?}");
}

/// Creates, changes and drops collections and indexes that transactions use, until `all` transfers are done; returns the number
/// of rounds.
async fn change_the_catalog(database: Database, done: Arc<AtomicUsize>, all: usize) -> usize {
    let (log, kept) = (namespace("log"), namespace("kept"));
    let index = |key: RawDocumentBuf, unique| CreateIndexes {
        namespace: accounts(),
        indexes: vec![IndexSpec { unique, ..IndexSpec::new(key) }],
    };
    let mut rounds = 0;
    while done.load(Ordering::Relaxed) < all || rounds < ROUNDS_MIN {
        let wanted = all.min(done.load(Ordering::Relaxed) + TRANSFERS_BETWEEN);
        database.create_indexes(index(rawdoc! { "balance": 1 }, false)).await.unwrap();
        database.create_indexes(index(rawdoc! { "number": 1 }, true)).await.unwrap();
        database.create_collection(&log, CollectionOptions::default()).await.unwrap();
        agree(&database, "balance_1").await;
        let rename = RenameCollection { from: log.clone(), to: kept.clone(), drop_target: true };
        database.rename_collection(rename).await.unwrap();
        database.drop_collection(&log).await.unwrap();
        database.drop_collection(&kept).await.unwrap();
        for selector in [IndexSelector::Names(vec!["balance_1".to_owned()]), IndexSelector::All] {
            database.drop_indexes(DropIndexes { namespace: accounts(), selector }).await.unwrap();
        }
        rounds += 1;
        while done.load(Ordering::Relaxed) < wanted {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    rounds
}

/// Moves 1 from an account to another one, and inserts a record of it into a collection that is created and dropped.
async fn transfer(database: &Database, number: i32) -> Result<(), Error> {
    let change = |by: i32| rawdoc! { "$inc": { "balance": by } };
    let (from, to) = (number % ACCOUNTS, (number * 5 + 3) % ACCOUNTS);
    let run = |tx: Transaction| async move {
        tx.update_one(&accounts(), rawdoc! { "_id": from }, change(-1)).await?;
        tx.update_one(&accounts(), rawdoc! { "number": to }, change(1)).await?;
        tx.insert_one(&namespace("log"), rawdoc! { "from": from, "to": to }).await?;
        Ok(())
    };
    database.transaction(run).await
}

/// The results of transactions are right, by the documents and by each index, whatever is created and dropped at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_of_the_catalog_do_no_harm_to_transactions_beside_them() {
    on_each(|database| async move {
        database.delete_many(&accounts(), rawdoc! {}).await.unwrap();
        for number in 0..ACCOUNTS {
            let account = rawdoc! { "_id": number, "number": number, "balance": 100 };
            database.insert_one(&accounts(), account).await.unwrap();
        }
        let done = Arc::new(AtomicUsize::new(0));
        let changes = tokio::spawn(change_the_catalog(database.clone(), Arc::clone(&done), 3 * TRANSFERS as usize));
        let clients = (0..3).map(|client| {
            let (database, done) = (database.clone(), Arc::clone(&done));
            tokio::spawn(async move {
                for number in 0..TRANSFERS {
                    transfer(&database, number * 3 + client).await.unwrap();
                    done.fetch_add(1, Ordering::Relaxed);
                }
            })
        });
        for client in clients.collect::<Vec<_>>() {
            client.await.unwrap();
        }
        let rounds = changes.await.unwrap();
        assert!(rounds >= ROUNDS_MIN, "{rounds} rounds");
        let mut expected = vec![100; ACCOUNTS as usize];
        for number in (0..TRANSFERS).flat_map(|number| (0..3).map(move |client| number * 3 + client)) {
            expected[(number % ACCOUNTS) as usize] -= 1;
            expected[((number * 5 + 3) % ACCOUNTS) as usize] += 1;
        }
        let sorted = Find { sort: rawdoc! { "_id": 1 }, ..Find::new(accounts(), rawdoc! {}) };
        let accounts = all(&database, sorted).await;
        let balances: Vec<_> = accounts.iter().map(|account| account.get_i32("balance").unwrap()).collect();
        assert_eq!(balances, expected);
        assert_eq!(database.counts().open(), 0);
    })
    .await;
}
