//! A snapshot waits for a lock while it is alive: up to the snapshot's own deadline, or as long as history is kept.

use std::sync::Arc;
use std::time::Duration;

use bson::rawdoc;
use handfast_mql::Code;
use handfast_store::{DocumentStore, Find, StoreExt};
use handfast_txn::{Database, Error, PercolatorOptions, TransactionOptions};
use tokio::task::JoinHandle;

use crate::support::*;

/// A transaction that has locked Bob, and sends a heartbeat each second, by all clocks.
struct Locked {
    bank: Arc<Bank>,
    signs: JoinHandle<()>,
}

impl Locked {
    async fn new() -> Locked {
        let bank = Arc::new(Bank::of_the_seed().await);
        let lock = rawdoc! {
            "s": 7_i64, "primary": { "ns": "bank.accounts", "id": "Bob" }, "op": "put",
            "doc": { "_id": "Bob", "balance": 3 }, "ttl": 5_000_i64,
        };
        let set = rawdoc! { "$set": { "_hf.lock": lock }, "$inc": { "_hf.v": 1_i64 } };
        bank.store.update_one(&accounts(), rawdoc! { "_id": "Bob" }, set).await.unwrap();
        let oracle = handfast_store::Namespace::new("handfast", "oracle").unwrap();
        bank.store.update_one(&oracle, rawdoc! {}, rawdoc! { "$set": { "ts": 7_i64 } }).await.unwrap();
        let of_signs = Arc::clone(&bank);
        let signs = tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
                of_signs.clock.advance(Duration::from_secs(1));
                let sign = rawdoc! { "$inc": { "_hf.lock.ttl": 1_000_i64, "_hf.v": 1_i64 } };
                of_signs.store.update_one(&accounts(), rawdoc! { "_id": "Bob" }, sign).await.unwrap();
            }
        });
        Locked { bank, signs }
    }

    /// Commits the transaction, later than all that have begun by now.
    async fn commit(self) {
        self.signs.abort();
        let at = self.bank.clock_of_oracle().await + (1 << 20);
        let row = rawdoc! { "balance": 3, "_hf": { "v": 1_000_000_i64, "c": at, "s": 7_i64, "old": [
            { "c": 6_i64, "s": 5_i64, "doc": { "_id": "Bob", "balance": 10 } }
        ] } };
        let update = handfast_store::UpdateSpec::Document(row);
        let statement = handfast_store::UpdateStatement::one(rawdoc! { "_id": "Bob" }, update);
        let outcome = self.bank.store.update(handfast_store::Update::new(accounts(), vec![statement])).await.unwrap();
        assert_eq!(outcome.matched, 1);
    }
}

fn rich() -> Find {
    Find::new(accounts(), rawdoc! { "balance": { "$gte": 10 } })
}

#[tokio::test(start_paused = true)]
async fn a_plain_find_waits_while_there_are_heartbeats() {
    let locked = Locked::new().await;
    let database = locked.bank.process();
    let find = tokio::spawn(async move { database.find_all(rich()).await });
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert!(!find.is_finished(), "{:?}", find.await);
    locked.commit().await;
    let found = find.await.unwrap().unwrap();
    assert_eq!(found, [rawdoc! { "_id": "Bob", "balance": 10 }]);
}

#[tokio::test(start_paused = true)]
async fn a_lock_without_heartbeats_is_resolved() {
    let locked = Locked::new().await;
    locked.signs.abort();
    locked.bank.clock.advance(LOCK_TIME);
    let found = locked.bank.process().find_all(rich()).await.unwrap();
    assert_eq!(found, [rawdoc! { "_id": "Bob", "balance": 10 }]);
}

/// Returns the time after which a find fails.
#[allow(clippy::disallowed_methods, reason = "the runtime's time, which stands still but for the pauses")]
async fn given_up_after(database: &impl DocumentStore) -> Duration {
    let begun = tokio::time::Instant::now();
    let error = database.find_all(rich()).await.unwrap_err();
    assert_eq!(error.code(), Code::WriteConflict, "{error}");
    assert!(error.message().contains("does not end"), "{error}");
    begun.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_reader_gives_up_at_its_deadline() {
    let locked = Locked::new().await;
    let database = locked.bank.process();
    let options = TransactionOptions { lifetime: Duration::from_secs(20), ..TransactionOptions::default() };
    let tx = database.begin_with(options).await.unwrap();
    let waited = given_up_after(&tx).await;
    assert!((20..22).contains(&waited.as_secs()), "{waited:?}");
    assert!(matches!(tx.commit().await, Err(Error::Conflict(_))));
}

#[tokio::test(start_paused = true)]
async fn no_reader_waits_for_longer_than_history_is_kept() {
    let locked = Locked::new().await;
    let options = PercolatorOptions { retention: Duration::from_secs(30), ..options() };
    let sources = locked.bank.sources.clone();
    let database = Database::percolator(locked.bank.store.clone(), sources, options).unwrap();
    let waited = given_up_after(&database).await;
    assert!((30..32).contains(&waited.as_secs()), "{waited:?}");
}
